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
    """Draws the errors of several runs by depth side by side, and returns against their values."""
    figure, axes = panels(1, len(_BY_DEPTH) + 1, width=3.1, height=3.0)
    styles = looks(list(runs))
    for name, found in runs.items():
        for axis, (term, title) in zip(axes[0], _BY_DEPTH.items(), strict=False):
            numbers = np.array(found["depth"][term], float)
            axis.plot(np.arange(len(numbers)), numbers, marker="o", markersize=3, label=name, **styles[name])
            axis.set(title=title, xlabel="imagined steps")
        value, earned = np.array(found["values"]["calibration"]).T
        axes[0][-1].plot(value, earned, marker="o", markersize=3, label=name, **styles[name])
    axes[0][-1].set(title="return against value", xlabel="value, mean of tenths", ylabel="discounted return")
    ends = [min(axes[0][-1].get_xlim()[0], axes[0][-1].get_ylim()[0])]
    ends.append(max(axes[0][-1].get_xlim()[1], axes[0][-1].get_ylim()[1]))
    axes[0][-1].plot(ends, ends, color="grey", linewidth=0.8)
    legend(figure, axes, list(runs))
    figure.savefig(path, dpi=120)
