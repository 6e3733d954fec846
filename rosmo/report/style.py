"""What the figures of a report share: colours, panels and files."""

import collections
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Apart for the colour-blind, too (Okabe and Ito, with brown and grey for yellow).
# The same in every experiment:
_FIXED = {"ROSMO": "#0072B2", "MZU": "#D55E00", "CRR": "#009E73", "CQL": "#CC79A7", "BC": "#E69F00"}
_FREE = ["#56B4E9", "#7A4B2A", "#999999", "#000000"]
_DASHES = ["-", "--", ":", "-."]


def looks(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns a colour for each method, and another line style for the next one of the same colour.

    Variants of a method, told from it after a comma as in "MZU, N = 4", have its colour.
    """
    colors, used, found = dict(_FIXED), collections.Counter(), {}
    free = itertools.cycle(_FREE)
    for method in methods:
        family = method.partition(",")[0]
        color = colors[family] if family in colors else colors.setdefault(family, next(free))
        found[method] = {"color": color, "linestyle": _DASHES[used[color] % len(_DASHES)]}
        used[color] += 1
    return found


def panels(rows: int, columns: int, *, width: float = 3.4, height: float = 2.6, **sharing: Any) -> Any:
    """Returns a figure and its axes `[rows][columns]`, drawn without a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (max(columns * width, 5.0), rows * height + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = FigureCanvasAgg(figure).figure.subplots(rows, columns, squeeze=False, **sharing)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend(figure: Any, axes: Any, methods: Sequence[str]) -> None:
    """Puts one legend above all panels, in the order of the methods."""
    found = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    shown = [method for method in methods if method in found]
    widths = [0.75 + 0.085 * len(method) for method in shown]  # in inches, about
    fits = sum(widths) < figure.get_figwidth()
    columns = len(shown) if fits else max(1, int(figure.get_figwidth() // max(widths)))
    figure.legend([found[method] for method in shown], shown, loc="outside upper center", ncols=columns,
                  frameon=False)  # fmt: skip


def thousands(value: float, _: Any = None) -> str:
    """Writes 15000 as 15k."""
    return f"{value / 1000:g}k" if value else "0"


def update_ticks(axis: Any, lengths: Sequence[int]) -> None:
    """Has the x axis count updates of runs of these lengths.

    Past the shortest run it is logarithmic, where the longest would leave no room for the others.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if lengths and max(lengths) > 3 * min(lengths) > 0:
        axis.set_xscale("symlog", linthresh=min(lengths), linscale=2)
        axis.xaxis.set_major_locator(FixedLocator([0, min(lengths) / 2, min(lengths), max(lengths)]))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(thousands)


def log_ticks(axis: Any, unit: float) -> None:
    """Makes the x axis logarithmic, with plain numbers of a unit that do not run into each other."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / unit:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())


def save(figure: Any, path: Path) -> Path:
    """Writes a figure in 256 colours, small enough for a repository."""
    from PIL import Image

    figure.set_dpi(110)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    picture.quantize(256).save(path, optimize=True)
    return path
