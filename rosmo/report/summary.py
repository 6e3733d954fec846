"""All numbers that a report shows, as one JSON-able dictionary."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from rosmo.report import statistics
from rosmo.report.results import Key, Results, Run, normalised_matrix
from rosmo.report.selected import selected

_THRESHOLDS = 101  # of a performance profile
_BUDGETS = 100  # points of a curve over compute


def summarise(results: Results) -> dict[str, Any]:
    """Returns the numbers of every table and figure, and each seed's own score."""
    grid = itertools.product(results.settings, results.methods, results.environments)
    cells = [_cell(results, Key(method, environment, setting)) for setting, method, environment in grid]
    complete = {
        (setting, method): rows
        for setting, method in itertools.product(results.settings, results.methods)
        if (rows := results.complete(method, setting))
    }
    scores = {key: normalised_matrix(rows) for key, rows in complete.items()}
    fields = ("name", "about", "axis", "figure", "methods", "environments", "settings", "paper", "paper_note")
    return {
        **{field: getattr(results, field) for field in fields},
        "departed": results.departed,
        "cells": [cell for cell in cells if cell],
        "equal_updates": _equal_updates(results),
        "selected": selected(results),
        "missing": [
            {**missing.key._asdict(), "seed": missing.seed, "updates": missing.updates}
            for missing in results.missing
        ],
        "aggregated_environments": results.scored_environments(),
        "aggregates": _aggregates(scores),
        "improvement": _improvement(scores),
        "profiles": _profiles(scores),
        "over_compute": [
            {"setting": setting, "method": method, **_over_compute(results, rows)}
            for (setting, method), rows in complete.items()
        ],
    }


def _cell(results: Results, key: Key) -> dict[str, Any]:
    """The runs of one combination, or nothing if there are none."""
    runs = results.of(*key)
    if not runs:
        return {}
    compute = results.compute[key]
    seconds = [run.seconds_per_update for run in runs if run.seconds_per_update is not None]
    return {
        **key._asdict(),
        "seeds": [run.seed for run in runs],
        "updates": [run.updates for run in runs],
        "sampled": [run.sampled for run in runs],
        "greedy": [run.greedy for run in runs],
        "normalised": [run.normalised for run in runs],
        **{
            f"{policy}_{name}": value
            for policy in ("sampled", "greedy")
            for name, value in statistics.mean_and_std([getattr(run, policy) for run in runs]).items()
        },
        "curve": _curve(runs),
        **compute._asdict(),
        "seconds_per_update": float(np.median(seconds)) if seconds else None,
        **_stages(results, runs),
    }


def _stages(results: Results, runs: Sequence[Run]) -> dict[str, Any]:
    """What all of a run's training took, by its stages; no first one where nothing came before it."""
    key = runs[0].key
    world = results.worlds.get(key)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    second = {
        "updates": max(run.updates for run in runs),
        "seconds": float(np.median(seconds)) if seconds else None,
        "flops": results.compute[key].flops * max(run.updates for run in runs),
    }
    return {"first_stage": world._asdict() if world else None, "second_stage": second}


def _equal_updates(results: Results) -> list[dict[str, Any]]:
    """Where methods took different numbers of updates: all of them after as many as the shortest took."""
    found = []
    for environment in results.environments:
        taken = {run.updates for run in results.runs if run.key.environment == environment}
        if len(taken) < 2:
            continue
        for setting, method in itertools.product(results.settings, results.methods):
            runs = results.of(method, environment, setting)
            scores = [[e.score for e in run.evaluations if e.updates <= min(taken)][-1:] for run in runs]
            if runs and all(scores):
                where = {"setting": setting, "method": method, "environment": environment}
                found.append(
                    {**where, "updates": min(taken), **statistics.mean_and_std(np.ravel(scores).tolist())}
                )
    return found


def _curve(runs: Sequence[Run]) -> dict[str, Any]:
    """The returns over the updates that all seeds were evaluated at: mean, deviation and each seed's."""
    by_updates = [{e.updates: e.score for e in run.evaluations} for run in runs]
    updates = sorted(set.intersection(*map(set, by_updates)))
    points = [statistics.mean_and_std([scores[step] for scores in by_updates]) for step in updates]
    return {
        "updates": updates,
        "seconds": _mean_seconds(runs, updates),
        "mean": [point["mean"] for point in points],
        "std": [point["std"] for point in points],
        "seeds": [[scores[step] for step in updates] for scores in by_updates],
    }


def _mean_seconds(runs: Sequence[Run], updates: Sequence[int]) -> list[float] | None:
    """When the mean run was evaluated after these updates, if all runs say so."""
    when = [{e.updates: e.seconds for e in run.evaluations if e.seconds is not None} for run in runs]
    if any(step not in seconds for step in updates for seconds in when):
        return None
    return [float(np.mean([seconds[step] for seconds in when])) for step in updates]


def _aggregates(scores: dict[tuple[str, str], np.ndarray]) -> list[dict[str, Any]]:
    estimates = statistics.iqm(scores)
    return [
        {
            "setting": key[0],
            "method": key[1],
            "seeds": len(x),
            "iqm": estimates[key].value,
            "interval": estimates[key].interval,
        }
        for key, x in scores.items()
    ]


def _improvement(scores: dict[tuple[str, str], np.ndarray]) -> list[dict[str, Any]]:
    """Every method against every other of the same setting; P(Y > X) is 1 − P(X > Y)."""
    pairs = {(a, b): (scores[a], scores[b]) for a, b in itertools.combinations(scores, 2) if a[0] == b[0]}
    found = []
    for ((setting, method), (_, other)), (value, interval) in statistics.improvement(pairs).items():
        mirrored = None if interval is None else (1 - interval[1], 1 - interval[0])
        found += [
            {"setting": setting, "method": method, "over": other, "probability": value, "interval": interval},
            {
                "setting": setting,
                "method": other,
                "over": method,
                "probability": 1 - value,
                "interval": mirrored,
            },
        ]
    return found


def _profiles(scores: dict[tuple[str, str], np.ndarray]) -> dict[str, Any]:
    if not scores:
        return {"thresholds": [], "methods": []}
    everything = np.concatenate([x.ravel() for x in scores.values()])
    thresholds = np.linspace(min(0.0, everything.min()), max(1.0, everything.max()), _THRESHOLDS)
    found = statistics.profiles(scores, thresholds)
    return {
        "thresholds": thresholds.tolist(),
        "methods": [{"setting": key[0], "method": key[1], **found[key]._asdict()} for key in scores],
    }


def _over_compute(results: Results, rows: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """The IQM that a budget of compute per run reaches: each run at its last evaluation within it."""
    runs = [run for row in rows for run in row]
    flops = [float(results.compute[run.key].flops) for run in runs]
    seconds = [run.seconds_per_update for run in runs]
    timed = [cost for cost in seconds if cost is not None]
    return {
        "flops": _within_budgets(runs, flops),
        "seconds": _within_budgets(runs, timed) if len(timed) == len(runs) else None,
    }


def _within_budgets(runs: Sequence[Run], costs: Sequence[float]) -> dict[str, list[float]]:
    spent = [
        np.array([evaluation.updates * cost for evaluation in run.evaluations])
        for run, cost in zip(runs, costs, strict=True)
    ]
    later = [x[x > 0].min() for x in spent if x.max(initial=0) > 0]
    if len(later) < len(runs):
        return {"budget": [], "iqm": []}
    budgets = np.geomspace(min(later), max(x.max() for x in spent), _BUDGETS)
    reached = np.stack([_reached(run, x, budgets) for run, x in zip(runs, spent, strict=True)])
    return {"budget": budgets.tolist(), "iqm": stats.trim_mean(reached, 0.25, axis=0).tolist()}


def _reached(
    run: Run, spent: Float[np.ndarray, "evaluations"], budgets: Float[np.ndarray, "budgets"]
) -> Float[np.ndarray, "budgets"]:
    scores = np.array([evaluation.normalised for evaluation in run.evaluations], np.float64)
    last = np.searchsorted(spent, budgets * (1 + 1e-9), side="right") - 1
    return scores[np.maximum(last, 0)]
