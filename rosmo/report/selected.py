"""What the checkpoints would earn that were the best on the way, beside the last ones."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from rosmo.report import statistics
from rosmo.report.results import Results, Run, Selected, normalised_matrix

_LAST = "last"  # checkpoint of a run, which is no choice


def selected(results: Results) -> list[dict[str, Any]]:
    """Returns the returns and the IQM of each method by criterion, if its runs were selected by any."""
    found = []
    for setting, method in itertools.product(results.settings, results.methods):
        runs = [run for name in results.environments for run in results.of(method, name, setting)]
        criteria = dict.fromkeys(name for run in runs for name in run.selected)
        for criterion in [_LAST, *criteria] if criteria else []:
            cells = dict(_cells(results, method, setting, criterion))
            names = {"setting": setting, "method": method, "criterion": criterion}
            found.append({**names, "cells": cells, **_aggregate(results, method, setting, criterion)})
    return found


def _cells(
    results: Results, method: str, setting: str, criterion: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for environment in results.environments:
        runs = results.of(method, environment, setting)
        if ones := [one for run in runs if (one := _chosen(run, criterion)) is not None]:
            returns = statistics.mean_and_std([one.sampled for one in ones])
            yield environment, {**returns, "updates": int(np.median([one.updates for one in ones]))}


def _aggregate(results: Results, method: str, setting: str, criterion: str) -> dict[str, Any]:
    """The IQM over complete seeds, where all of their runs were selected so."""
    complete = results.complete(method, setting)
    rows = [[one for run in row if (one := _chosen(run, criterion)) is not None] for row in complete]
    if not rows or any(len(chosen) < len(row) for chosen, row in zip(rows, complete, strict=True)):
        return {"iqm": None, "interval": None}
    [estimate] = statistics.iqm({("", ""): normalised_matrix(rows)}).values()
    return {"iqm": estimate.value, "interval": estimate.interval}


def _chosen(run: Run, criterion: str) -> Selected | None:
    if criterion == _LAST:
        return Selected(run.updates, run.sampled, run.normalised)
    return run.selected.get(criterion)
