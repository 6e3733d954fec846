"""A picture of a data set."""

from pathlib import Path
from typing import Any

import numpy as np

from rosmo.data.summary import Summary
from rosmo.report.style import panels, save

_SHOWN = 12  # observations
_MOST_ACTIONS = 30  # that are named below their bars


def draw_dataset(summary: Summary, samples: np.ndarray, path: Path, *, title: str) -> None:
    """Draws returns, lengths, actions, rewards and observations of a data set.

    Args:
        summary: of the data set.
        samples: some of its observations `[S, ...]`.
        path: where the picture goes.
        title: what it is of.
    """
    figure, axes = panels(2, 3, width=3.6, height=2.7)
    figure.suptitle(title)
    (returns, order, lengths), (actions, rewards, shown) = axes
    returns.hist(summary.returns, bins=_bins(summary.returns), color="C0")
    returns.set(xlabel="return", ylabel="episodes")
    order.plot(
        np.arange(len(summary.returns)), summary.returns, ".", markersize=3, color="C0", rasterized=True
    )
    order.set(xlabel="episode", ylabel="return")
    lengths.hist(summary.lengths, bins=_bins(summary.lengths), color="C2")
    lengths.set(xlabel="transitions", ylabel="episodes")
    share = summary.actions / max(1, summary.actions.sum())
    actions.bar(np.arange(len(share)), share, color="C1")
    actions.set(xlabel="action", ylabel="share of the transitions")
    if len(share) <= _MOST_ACTIONS:
        actions.set_xticks(np.arange(len(share)))
    finite = summary.rewards[np.isfinite(summary.rewards)]
    rewards.hist(finite, bins=_bins(finite), color="C4", log=True)
    rewards.set(xlabel="reward", ylabel="transitions")
    _observations(shown, samples)
    save(figure, path)


def _bins(values: np.ndarray) -> Any:
    """Bars for whole numbers where they are few, and else as many as tell something."""
    if not values.size:
        return 1
    low, high = values.min(), values.max()
    if high - low <= 40 and np.array_equal(values, np.round(values)):
        return np.arange(low, high + 2) - 0.5
    return min(40, max(5, int(np.sqrt(values.size))))


def _observations(axes: Any, samples: np.ndarray) -> None:
    """Images side by side, or the range of each number of a vector."""
    if samples.ndim >= 3 and min(samples.shape[1:3]) > 2:
        axes.imshow(_contact_sheet(samples[:_SHOWN]), cmap="gray", aspect="equal", interpolation="nearest")
        axes.set_axis_off()
        axes.set_title("observations", fontsize=10)
        return
    numbers = samples.reshape(len(samples), -1).astype(np.float64)
    place = np.arange(numbers.shape[1])
    low, middle, high = np.quantile(numbers, (0.05, 0.5, 0.95), axis=0)
    axes.vlines(place, low, high, color="C0", linewidth=3, alpha=0.5)
    axes.plot(place, middle, "o", color="C0", markersize=3)
    axes.set(xlabel="number of the observation", ylabel="median, 5% to 95%")


def _contact_sheet(images: np.ndarray) -> np.ndarray:
    """Images in rows of four; of stacks of frames the newest, of many planes the brightest."""
    images = images.astype(np.float32)
    if images.ndim == 4:
        color = images.shape[-1] == 3
        images = images if color else images[..., -1] if images.shape[-1] == 4 else images.max(axis=-1)
    images = images / max(float(images.max()), 1.0)
    images = np.pad(images, [(0, 0), (1, 1), (1, 1), *[(0, 0)] * (images.ndim - 3)], constant_values=0.5)
    blank = np.zeros((-len(images) % 4, *images.shape[1:]), np.float32)
    rows = np.concatenate([images, blank]).reshape(-1, 4, *images.shape[1:])
    return np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
