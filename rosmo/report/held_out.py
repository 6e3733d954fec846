"""What held-out episodes say of an agent, as a line, a report and a picture."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rosmo.report.style import panels, save, thousands

_PREFIX = "held_out/"
_LINES = {
    "reward": ("C1", "o-"),
    "value": ("C2", "o-"),
    "image": ("C0", "o-"),
    "repeated_image": ("C7", "--"),
}
_WORDS = {
    "loss": "loss, its own parameters giving the targets",
    "accuracy": "greedy actions that are those of the data",
    "return": "mean discounted return from a step on",
    "value_bias": "values above returns (below: negative)",
    "value_rmse": "values against returns, root mean squared error",
    "value_correlation": "values against returns, correlation",
    "likelihood/image": "log-likelihood of an observation",
    "likelihood/reward": "log-likelihood of a reward",
    "likelihood/discount": "log-likelihood of a discount",
    "kl": "divergence of the posterior from the prior",
    "uncertainty_taken": "disagreement about the data's actions",
    "uncertainty_other": "disagreement about other actions",
    "uncertainty_other_larger": "other actions that it is larger for",
    "uncertainty_correlation": "disagreement against errors, correlation",
}
_DEPTHS = {
    "reward": "error of the imagined reward after k steps",
    "value": "error of the imagined value after k steps",
    "image": "squared error of the imagined observation after k steps",
    "repeated_image": "the same of the last observation, repeated",
    "mean_reward": "squared error of the mean reward",
}


def in_a_line(scores: Mapping[str, Any]) -> str:
    """Returns what matters most."""
    line = f"held-out loss {scores['loss']:.3f}"
    if "accuracy" in scores:
        line += f", accuracy {scores['accuracy']:.1%}"
    if imagined := by_depth(scores, "image"):
        deepest = max(imagined)
        repeated = by_depth(scores, "repeated_image")[deepest]
        line += f", observations {deepest} steps ahead off by {imagined[deepest]:.3g}"
        line += f" (the last one, repeated: {repeated:.3g})"
    if "value_rmse" in scores:
        line += f", values off returns by {scores['value_rmse']:.3g}"
    return line


def as_report(scores: Mapping[str, Any]) -> str:
    """Returns all scores as lines for people."""
    lines = [f"{_WORDS[name]:<52}{scores[name]:>10.4g}" for name in _WORDS if name in scores]
    lines += [
        f"{f'  of it {name[5:]}':<52}{value:>10.4g}"
        for name, value in scores.items()
        if name.startswith("loss/")
    ]
    for what, words in _DEPTHS.items():
        if errors := by_depth(scores, what):
            lines += ["", f"{words}:"]
            lines += ["  " + "".join(f"{f'k = {k}':>10}" for k in errors)]
            lines += ["  " + "".join(f"{error:>10.4g}" for error in errors.values())]
    if "calibration" in scores:
        names = ("value", "return") if "value_rmse" in scores else ("disagreement", "error")
        lines += ["", f"{names[0]}s in tenths, from the lowest, and the {names[1]}s that followed:"]
        for row, name in zip(np.transpose(scores["calibration"]), names, strict=True):
            lines.append(f"  {name:<13}" + "".join(f" {x:>9.3g}" for x in row))
    return "\n".join(lines)


def by_depth(scores: Mapping[str, Any], what: str) -> dict[int, float]:
    """Returns the errors of the model by the number of imagined steps."""
    found = {name: re.fullmatch(rf"(?:{_PREFIX})?{what}_error_(\d+)", name) for name in scores}
    depths = {int(match[1]): float(scores[name]) for name, match in found.items() if match}
    return dict(sorted(depths.items()))


def held_out_curve(
    runs: Sequence[Sequence[Mapping[str, float | int]]],
    results: Sequence[Mapping[str, Any] | None],
    path: Path,
    *,
    title: str,
) -> None:
    """Draws losses, accuracy and calibration over updates, and at the end the model's error by depth.

    Args:
        runs: the metrics of each seed, as rows.
        results: what held-out episodes said at the end of those that are finished.
        path: where the picture goes.
        title: what it is of.
    """
    if not any(f"{_PREFIX}loss" in row for rows in runs for row in rows):
        return
    figure, axes = panels(2, 2, width=4.2, height=2.9)
    figure.suptitle(title)
    (loss, accuracy), (calibration, depth) = axes
    worlds = any(f"{_PREFIX}likelihood/image" in row for rows in runs for row in rows)
    for seed, rows in enumerate(runs):
        alone = seed == 0  # which names the lines of all
        _line(loss, rows, "loss", "C7", "while training" if alone else None)
        _line(loss, rows, f"{_PREFIX}loss", "C0", "held out" if alone else None)
        _line(accuracy, rows, f"{_PREFIX}{'likelihood/image' if worlds else 'accuracy'}", "C0", None)
        last = next((row for row in reversed(rows) if f"{_PREFIX}loss" in row), {})
        for what, (color, style) in _LINES.items():
            if (errors := by_depth(last, what)) and (what != "reward" or not by_depth(last, "image")):
                label = what.replace("_", " ") if alone else None
                depth.plot(*zip(*errors.items(), strict=True), style, color=color, label=label)
    tenths = [np.array(result["calibration"]) for result in results if result and "calibration" in result]
    if tenths:
        for each in tenths:
            calibration.plot(*each.T, "o-", color="C0", markersize=4)
        if worlds:
            calibration.set(xlabel="disagreement, in tenths", ylabel="error that followed")
        else:
            ends = [np.min(tenths), np.max(tenths)]
            calibration.plot(ends, ends, "--", color="C7", linewidth=1)
            calibration.set(xlabel="value, in tenths", ylabel="return that followed")
    else:
        for rows in runs:
            _line(calibration, rows, f"{_PREFIX}{'kl' if worlds else 'value_rmse'}", "C0", None)
        name = "divergence from the prior" if worlds else "values against returns, RMSE"
        calibration.set(xlabel="updates", ylabel=name)
        calibration.xaxis.set_major_formatter(thousands)
    second = "log-likelihood of an observation" if worlds else "accuracy on the data's actions"
    for axis, name in ((loss, "loss"), (accuracy, second)):
        axis.set(xlabel="updates", ylabel=name)
        axis.xaxis.set_major_formatter(thousands)
    depth.set(xlabel="imagined steps", ylabel="error of the model")
    for axis in (loss, depth):
        if axis.get_legend_handles_labels()[1]:
            axis.legend(loc="best", frameon=False)
    save(figure, path)


def _line(
    axis: Any, rows: Sequence[Mapping[str, float | int]], name: str, color: str, label: str | None
) -> None:
    found = [(row["step"], row[name]) for row in rows if name in row]
    if found:
        axis.plot(*zip(*found, strict=True), color=color, label=label)
