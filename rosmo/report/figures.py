"""The figures of a report, drawn from its summary."""

import itertools
from typing import Any

import numpy as np

from rosmo.report.style import legend, log_ticks, looks, panels, update_ticks

Summary = dict[str, Any]
_BUDGETS = {"flops": ("TFLOP per run", 1e12), "seconds": ("seconds of updates per run", 1.0)}


def draw(summary: Summary) -> dict[str, Any]:
    """Returns all figures that there are numbers for, by name."""
    main = {"bars": _bars, "lines": _lines}
    drawn = {}
    if summary["aggregates"]:
        if summary["figure"] in main:
            drawn["main"] = main[summary["figure"]](summary)
        drawn["profile"] = _profile(summary)
        drawn["compute"] = _compute(summary)
    if any(one["iqm"] is not None for one in summary["selected"]):
        drawn["selected"] = _selected(summary)
    drawn["curves"] = _curves(summary, "updates")
    if all(cell["curve"]["seconds"] for cell in summary["cells"]):
        drawn["clock"] = _curves(summary, "seconds")
    return drawn


def _bars(summary: Summary) -> Any:
    """The IQM of each method."""
    return _iqm_bars(summary, summary["aggregates"], ("method",))


def _selected(summary: Summary) -> Any:
    """The IQM of the checkpoints of each method, by what chose them."""
    known = [one for one in summary["selected"] if one["iqm"] is not None]
    return _iqm_bars(summary, known, ("method", "criterion"))


def _iqm_bars(summary: Summary, found: list[dict[str, Any]], named_by: tuple[str, ...]) -> Any:
    """A bar with its interval for each name, a panel for each setting."""
    settings, style = _settings(found, summary), looks(summary["methods"])
    found = sorted(found, key=lambda one: summary["methods"].index(one["method"]))
    names = list(dict.fromkeys(", ".join(one[field] for field in named_by) for one in found))
    height = 0.8 + 0.35 * len(names)
    figure, axes = panels(1, len(settings), width=5.5, height=height, sharex=True, sharey=True)
    for axis, setting in zip(axes[0], settings, strict=True):
        for one in _of(found, setting):
            place = names.index(", ".join(one[field] for field in named_by))
            axis.barh(place, one["iqm"], color=style[one["method"]]["color"], alpha=0.8, height=0.65)
            for color, width in (("white", 4), ("black", 2)) if one["interval"] else ():
                axis.plot(one["interval"], [place, place], color=color, linewidth=width)
        axis.set_xlabel("IQM of the normalised score")
        axis.set_title(_title(summary, setting), fontsize="medium")
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="y", visible=False)
    axes[0][0].invert_yaxis()
    return figure


def _lines(summary: Summary) -> Any:
    """The IQM over the settings, a line for each method."""
    style = looks(summary["methods"])
    figure, axes = panels(1, 1, width=6.0, height=3.6)
    axis = axes[0][0]
    spread = np.linspace(-0.06, 0.06, len(summary["methods"])) if len(summary["methods"]) > 1 else [0.0]
    for method, shift in zip(summary["methods"], spread, strict=True):
        found = [a for a in summary["aggregates"] if a["method"] == method]
        places = [summary["settings"].index(a["setting"]) + shift for a in found]
        values = [a["iqm"] for a in found]
        if not found:
            continue
        axis.plot(places, values, marker="o", label=method, **style[method])
        for place, a in zip(places, found, strict=True):
            if a["interval"]:
                axis.plot([place, place], a["interval"], color=style[method]["color"], linewidth=1.5)
    axis.set_xticks(range(len(summary["settings"])), [name or "—" for name in summary["settings"]])
    axis.set(xlabel=summary["axis"], ylabel="IQM of the normalised score")
    legend(figure, axes, summary["methods"])
    return figure


def _profile(summary: Summary) -> Any:
    """The share of runs above each score, a panel for each setting."""
    style = looks(summary["methods"])
    profiles = summary["profiles"]
    settings = _settings(profiles["methods"], summary)
    figure, axes = panels(1, len(settings), width=5.5 if len(settings) == 1 else 2.9, sharey=True)
    for axis, setting in zip(axes[0], settings, strict=True):
        for found in _of(profiles["methods"], setting):
            look = style[found["method"]]
            axis.plot(profiles["thresholds"], found["share"], label=found["method"], **look)
            if found["low"]:
                band = (profiles["thresholds"], found["low"], found["high"])
                axis.fill_between(*band, color=look["color"], alpha=0.15, linewidth=0)
        axis.set(xlabel="normalised score τ", ylim=(-0.02, 1.02))
        axis.set_title(_title(summary, setting), fontsize="medium")
    axes[0][0].set_ylabel("share of runs above τ")
    legend(figure, axes, summary["methods"])
    return figure


def _compute(summary: Summary) -> Any:
    """The IQM that a budget of compute per run reaches, in operations and in seconds."""
    style = looks(summary["methods"])
    settings = _settings(summary["over_compute"], summary)
    single = len(settings) == 1
    shape = (1, 2) if single else (2, len(settings))
    figure, axes = panels(
        *shape, width=4.0 if single else 2.9, sharey=True, sharex=False if single else "row"
    )
    for column, setting in enumerate(settings):
        pair = axes[0] if single else axes[:, column]
        for axis, quantity in zip(pair, _BUDGETS, strict=True):
            for found in _of(summary["over_compute"], setting):
                if points := found[quantity]:
                    look = style[found["method"]]
                    axis.step(points["budget"], points["iqm"], where="post", label=found["method"], **look)
            axis.set_xlabel(_BUDGETS[quantity][0])
        pair[0].set_title(_title(summary, setting), fontsize="medium")
    for row in axes:
        row[0].set_ylabel("IQM, normalised")
    for quantity, group in zip(_BUDGETS, axes.T if single else axes, strict=True):
        for axis in group:  # once all is drawn: the range says which ticks there is room for
            log_ticks(axis, _BUDGETS[quantity][1])
    legend(figure, axes, summary["methods"])
    return figure


def _curves(summary: Summary, over: str) -> Any:
    """The returns over updates or seconds: a column for each environment and a row for each setting."""
    style = looks(summary["methods"])
    settings = _settings(summary["cells"], summary)
    found = {cell["environment"] for cell in summary["cells"]}
    environments = [name for name in summary["environments"] if name in found]
    grid = [[(environment, setting) for environment in environments] for setting in settings]
    alone = len(environments) == 1
    if alone:
        grid = [[panel for row in grid for panel in row]]
    height = 2.6 if len(grid) == 1 else 1.9
    figure, axes = panels(len(grid), len(grid[0]), height=height, sharex="col", sharey=alone or "col")
    for axis, (environment, setting) in zip(axes.flat, (panel for row in grid for panel in row), strict=True):
        for cell in _of(summary["cells"], setting):
            if cell["environment"] == environment:
                _curve(axis, cell, style[cell["method"]], over)
        title = f"{environment}, {_title(summary, setting)}" if setting else environment
        axis.set_title(title, fontsize="medium")
        if over == "updates":  # of all settings: their panels share an axis
            alike = [cell["updates"] for cell in summary["cells"] if cell["environment"] == environment]
            update_ticks(axis, list(itertools.chain(*alike)))
    for row in axes:
        row[0].set_ylabel("episode return")
    for axis in axes[-1]:
        axis.set_xlabel(over)
    legend(figure, axes, summary["methods"])
    return figure


def _curve(axis: Any, cell: dict[str, Any], look: dict[str, Any], over: str) -> None:
    places, mean = np.array(cell["curve"][over]), np.array(cell["curve"]["mean"])
    std = np.array([0.0 if value is None else value for value in cell["curve"]["std"]])
    axis.plot(places, mean, label=cell["method"], **look)
    axis.fill_between(places, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0)


def _settings(found: list[dict[str, Any]], summary: Summary) -> list[str]:
    """The settings that there is anything of, in order."""
    return [setting for setting in summary["settings"] if _of(found, setting)]


def _of(found: list[dict[str, Any]], setting: str) -> list[dict[str, Any]]:
    return [one for one in found if one["setting"] == setting]


def _title(summary: Summary, setting: str) -> str:
    name = summary["axis"]
    return f"{name}: {setting}" if setting and name and name not in setting else setting
