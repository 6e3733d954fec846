"""Pictures of training runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rosmo.report.style import panels, thousands


def learning_curve(
    runs: Sequence[Sequence[Mapping[str, float | int]]], path: Path, *, title: str, top: float | None = None
) -> None:
    """Draws the returns of one or several seeds over updates: a line each, and the mean of several.

    One seed alone is drawn by its greedy actions too, by which an agent may play well long before.

    Args:
        runs: the metrics of each seed, as rows; those with a `return` are drawn.
        path: where the picture goes.
        title: what it is of.
        top: the score of the online agent, as a dashed line.
    """
    curves = [curve for curve in map(_curve, runs) if curve[0].size]
    if not curves:
        return
    figure, [[axes]] = panels(1, 1, width=7.0, height=3.4)
    if len(curves) == 1:
        [(steps, returns, stderr, greedy)] = curves
        axes.plot(steps, returns, color="C0", linewidth=2, label="sampled actions")
        axes.fill_between(steps, returns - stderr, returns + stderr, color="C0", alpha=0.2, linewidth=0)
        axes.plot(steps, greedy, color="C2", linestyle=":", linewidth=1.5, label="greedy actions")
    else:
        for steps, returns, *_ in curves:
            axes.plot(steps, returns, color="C0", alpha=0.3, linewidth=1)
        steps = sorted(set.intersection(*(set(steps) for steps, *_ in curves)))
        mean = [np.mean([returns[list(own).index(step)] for own, returns, *_ in curves]) for step in steps]
        axes.plot(steps, mean, color="C0", linewidth=2.5, label=f"mean of {len(curves)} seeds")
    if top is not None:
        axes.axhline(top, color="C1", linestyle="--", label=f"online DQN ({top:g})")
    axes.legend(loc="best", frameon=False)
    axes.set(xlabel="updates", ylabel="episode return", title=title)
    axes.xaxis.set_major_formatter(thousands)
    figure.savefig(path, dpi=120)


def _curve(rows: Sequence[Mapping[str, float | int]]) -> tuple[np.ndarray, ...]:
    """Steps, returns, their standard errors, and the returns by greedy actions, where evaluated."""
    evaluated = [row for row in rows if "return" in row]
    missing = {"return_stderr": 0.0, "greedy_return": np.nan}
    columns = ("step", "return", "return_stderr", "greedy_return")
    return tuple(np.array([row.get(name, missing.get(name)) for row in evaluated], float) for name in columns)
