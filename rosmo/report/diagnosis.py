"""The picture of what is wrong with agents: their models' errors by depth, and their values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rosmo.report.style import legend, looks, panels

_BY_DEPTH = {
    "reward": "error of the reward",
    "value": "error of the value",
    "policy": "log loss of the data's action",
}


def draw_diagnosis(runs: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draws the errors of several runs by depth side by side, and returns against their values.

    Where runs have an ensemble, errors of the values against the deviations of its members come last.
    """
    doubted = {name: found["values"]["doubts"] for name, found in runs.items() if "doubts" in found["values"]}
    figure, axes = panels(1, len(_BY_DEPTH) + 1 + bool(doubted), width=3.1, height=3.0)
    against = axes[0][len(_BY_DEPTH)]
    styles = looks(list(runs))
    for name, found in runs.items():
        for axis, (term, title) in zip(axes[0], _BY_DEPTH.items(), strict=False):
            numbers = np.array(found["depth"][term], float)
            axis.plot(np.arange(len(numbers)), numbers, marker="o", markersize=3, label=name, **styles[name])
            axis.set(title=title, xlabel="imagined steps")
        value, earned = np.array(found["values"]["calibration"]).T
        against.plot(value, earned, marker="o", markersize=3, label=name, **styles[name])
    against.set(title="return against value", xlabel="value, mean of tenths", ylabel="discounted return")
    ends = [min(against.get_xlim()[0], against.get_ylim()[0])]
    ends.append(max(against.get_xlim()[1], against.get_ylim()[1]))
    against.plot(ends, ends, color="grey", linewidth=0.8)
    for name, tenths in doubted.items():
        axes[0][-1].plot(*np.array(tenths).T, marker="o", markersize=3, label=name, **styles[name])
        title = "error against doubt"
        axes[0][-1].set(title=title, xlabel="deviation, mean of tenths", ylabel="absolute error")
    legend(figure, axes, list(runs))
    figure.savefig(path, dpi=120)
