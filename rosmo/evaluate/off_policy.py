"""Off-policy estimates of what a policy would earn, by arithmetic on recorded episodes alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from rosmo.types import Trajectory

_DRAWS = 200  # of the episodes, for an interval
_LARGEST_RATIO = 1e12  # of a policy to the cloned one: where that has no probability left


class Episodes(NamedTuple):
    """Episodes side by side, `[E, T]` with T the steps of the longest; 0 beyond an episode's end.

    `ratio` is π(a|s)/b(a|s) of the policy that is evaluated to the one that recorded, and `weight` the
    product of the discounts before a step. `closing` is the weight of the last observation where an episode
    was cut off, and 0 where it terminated.
    """

    reward: Float[np.ndarray, "episodes time"]
    ratio: Float[np.ndarray, "episodes time"]
    weight: Float[np.ndarray, "episodes time"]
    real: Bool[np.ndarray, "episodes time"]
    closing: Float[np.ndarray, "episodes"]

    def taking(self, rows: Int[np.ndarray, "rows"]) -> "Episodes":
        """Returns some of the episodes."""
        return Episodes(*(column[rows] for column in self))


class Interval(NamedTuple):
    """An estimate, and where 90% of those lie that episodes drawn with replacement give."""

    mean: float
    low: float
    high: float


def beside(
    steps: Trajectory, column: Float[np.ndarray, "steps"], *, closing: bool = False
) -> Float[np.ndarray, "episodes time"]:
    """Lays a column of steps `[N]` out by episodes, without their closing steps or with them."""
    rows, places = _places(steps)
    length = places.max() + (1 if closing else 0)
    found = np.zeros((rows[-1] + 1, length))
    kept = np.ones_like(rows, bool) if closing else ~np.asarray(steps.is_last)
    found[rows[kept], places[kept]] = np.asarray(column, np.float64)[kept]
    return found


def episodes_of(
    steps: Trajectory,
    policy: Float[np.ndarray, "steps actions"],
    behavior: Float[np.ndarray, "steps actions"],
    *,
    discount: float,
) -> Episodes:
    """Lays steps `[N]` out with the probabilities of two policies in each of them."""
    is_last, is_terminal = np.asarray(steps.is_last), np.asarray(steps.is_terminal)
    taken = np.where(is_last, 0, np.asarray(steps.action))[:, None]
    ours, theirs = (np.take_along_axis(p.astype(np.float64), taken, axis=1)[:, 0] for p in (policy, behavior))
    ratio = np.minimum(ours / np.maximum(theirs, 1e-300), _LARGEST_RATIO)
    factors = beside(steps, discount * np.asarray(steps.discount, np.float64))
    real = beside(steps, np.ones(len(is_last))) > 0
    weight = np.cumprod(np.concatenate([np.ones_like(factors[:, :1]), factors], axis=1), axis=1)
    lengths = real.sum(axis=1)
    closing = weight[np.arange(len(real)), lengths] * ~is_terminal[np.flatnonzero(is_last)]
    return Episodes(
        reward=beside(steps, np.asarray(steps.reward, np.float64)),
        ratio=beside(steps, ratio),
        weight=np.where(real, weight[:, :-1], 0),
        real=real,
        closing=closing,
    )


def weighted_importance_sampling(episodes: Episodes) -> float:
    """Returns Σ_t Σ_e w_te γᵗ r_te with w_te = ρ_te/Σ_e ρ_te and ρ_te the product of the ratios up to t.

    Each reward is weighed by what led to it alone. An episode that is over keeps its weight, with rewards of
    0: one that was cut off counts as if nothing had followed.
    """
    shares, _ = _shares(episodes)
    return float(np.sum(shares * episodes.weight * episodes.reward))


def doubly_robust(
    episodes: Episodes,
    qvalues: Float[np.ndarray, "episodes time"],
    values: Float[np.ndarray, "episodes positions"],
    *,
    weighted: bool = True,
) -> float:
    """Returns Σ_t γᵗ Σ_e [w_te (r_te − Q(s, a)) + w_(t−1)e V(s)], and γᵗ w V of where an episode was cut off.

    Args:
        episodes: what was recorded.
        qvalues: Q of the recorded actions under the policy that is evaluated.
        values: V of the observations, closing ones too, `[E, T + 1]`.
        weighted: whether the products of ratios are divided by their sum over the episodes (Thomas and
            Brunskill, 2016), or by the number of episodes (Jiang and Li, 2016), without bias and with more
            variance.
    """
    now, before = _shares(episodes, weighted=weighted)
    lengths, rows = episodes.real.sum(axis=1), np.arange(len(episodes.real))
    observed = np.where(episodes.real, values[:, :-1], 0)
    corrections = now * episodes.weight * (episodes.reward - np.where(episodes.real, qvalues, 0))
    last = np.concatenate([before, now[:, -1:]], axis=1)[rows, lengths]
    ends = last * episodes.closing * values[rows, lengths]
    return float(np.sum(corrections + before * episodes.weight * observed) + np.sum(ends))


def effective_episodes(episodes: Episodes) -> float:
    """Returns (Σw)²/Σw² of the whole episodes' weights: how many the importance sampling rests on."""
    shares, _ = _shares(episodes)
    return float(1 / np.sum(np.square(shares[:, -1])))


def interval(estimate: Callable[[Int[np.ndarray, "rows"]], float], count: int, seed: int = 0) -> Interval:
    """Returns an estimate of all episodes, given by their numbers, and a 90% bootstrap interval of it."""
    rng = np.random.default_rng(seed)
    draws = [estimate(rng.integers(0, count, count)) for _ in range(_DRAWS)]
    low, high = np.quantile(draws, [0.05, 0.95])
    return Interval(estimate(np.arange(count)), float(low), float(high))


def discounted_returns(episodes: Episodes) -> Float[np.ndarray, "episodes"]:
    """Returns what the recorded episodes earned."""
    return np.sum(episodes.weight * episodes.reward, axis=1)


def _places(steps: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """The episode of each step, and its place in that."""
    first = np.flatnonzero(np.asarray(steps.is_first))
    rows = np.cumsum(np.asarray(steps.is_first)) - 1
    return rows, np.arange(len(rows)) - first[rows]


def _shares(episodes: Episodes, *, weighted: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The weight of each episode up to each step, and up to the one before, of all episodes together one."""
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log(np.where(episodes.real, episodes.ratio, 1)), axis=1)
    count = len(logs)
    if weighted:
        top = logs.max(axis=0, keepdims=True)
        now = np.exp(logs - np.where(np.isfinite(top), top, 0))
        total = now.sum(axis=0, keepdims=True)
        now = np.where(total > 0, now / np.where(total > 0, total, 1), 1 / count)  # where none is possible
    else:
        now = np.exp(np.minimum(logs, 700)) / count
    return now, np.concatenate([np.full((count, 1), 1 / count), now[:, :-1]], axis=1)
