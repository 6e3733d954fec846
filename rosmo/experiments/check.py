"""What an experiment's file may say; every mistake is one sentence that names the place."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rosmo.registry import nearest

GROUPS = ("methods", "environments", "settings")
_FIGURES = ("curves", "bars", "lines")


def experiment(table: Any, known: Iterable[str]) -> None:
    """Refuses a table that is no experiment.

    Args:
        table: the contents of a file.
        known: what it may say.
    """
    keys("an experiment", table, known)
    if absent := [key for key in ("about", "methods", "environments") if key not in table]:
        raise ValueError(f"it has no {' and no '.join(absent)}")
    for key in ("about", "axis", "paper_note"):
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{key} must be a text, got {table[key]!r}")
    if table.get("figure", "bars") not in _FIGURES:
        raise ValueError(f"figure must be one of {', '.join(_FIGURES)}, got {table['figure']!r}")
    if type(seeds := table.get("seeds", 1)) is not int or seeds < 1:
        raise ValueError(f"seeds must be a whole number of at least 1, got {seeds!r}")
    texts("bindings", table.get("bindings", []))
    for name in GROUPS:
        if name in table:
            group(name, table[name])
    paper(table.get("paper", {}), table["environments"], table.get("settings", [""]), table["methods"])


def group(name: str, parts: Any) -> None:
    """Refuses methods, environments or settings that are not tables of configurations and bindings."""
    if not isinstance(parts, Mapping) or not parts:
        raise ValueError(f"{name} must be a table with at least one entry, got {parts!r}")
    for entry, part in parts.items():
        if not entry.isprintable():
            raise ValueError(f"{name} has the name {entry!r}, which no table could show")
        if not isinstance(part, Mapping):
            raise ValueError(f"{name}.{entry} must be a table of configs and bindings, got {part!r}")
        for key, values in part.items():
            if key not in ("configs", "bindings"):
                raise ValueError(f"{name}.{entry} has configs and bindings, and no {key!r}")
            texts(f"{name}.{entry}.{key}", values)


def texts(name: str, values: Any) -> None:
    """Refuses what is not a list of texts, a single text among others."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of texts, got {values!r}")


def keys(where: str, table: Any, known: Iterable[str]) -> None:
    """Refuses a table with a name that is not known, and names the nearest that is."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table, got {table!r}")
    names = list(known)
    for name in table:
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(map(repr, names))}"
            raise ValueError(f"{where} has no {name!r}; {hint}")


def paper(figures: Any, environments: Iterable[str], settings: Iterable[str], methods: Iterable[str]) -> None:
    """Refuses figures of what is not run, and those that are no mean and standard deviation."""
    keys("paper", figures, environments)
    for environment, by_setting in figures.items():
        keys(f"paper.{environment}", by_setting, settings)
        for setting, by_method in by_setting.items():
            where = f'paper.{environment}."{setting}"'
            keys(where, by_method, methods)
            for method, pair in by_method.items():
                numbers = isinstance(pair, list) and all(type(x) in (int, float) for x in pair)
                if not numbers or len(pair) != 2 or not all(map(math.isfinite, pair)):
                    raise ValueError(f"{where}.{method} must be [mean, standard deviation], got {pair!r}")
