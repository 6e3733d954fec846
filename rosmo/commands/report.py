"""Writes the tables and figures of an experiment, of as many of its runs as are finished."""

import argparse
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gin
import numpy as np

from rosmo import envs, experiments
from rosmo.commands.shared import EXPERIMENTS, add_consent, add_imports, consent, load_configuration
from rosmo.configs import NOTHING, Consent, open_run
from rosmo.costs import Compute, update_compute
from rosmo.experiments import Cell, Experiment
from rosmo.report import Evaluation, FirstStage, Key, Missing, Results, Run, Selected, write
from rosmo.runs import clock
from rosmo.runs.damage import BEGIN_AGAIN
from rosmo.runs.folder import RunFolder
from rosmo.runs.metrics import seconds_per_update
from rosmo.runs.training import Training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(experiments.names())}, or a file")
    parser.add_argument("--out", type=Path, default=EXPERIMENTS, help="where the experiment's runs are kept")
    parser.add_argument("--to", type=Path, help="where reports are kept (default: beside the runs)")
    add_imports(parser)
    add_consent(parser)


def run(args: argparse.Namespace) -> None:
    """Gathers what is finished and writes the report."""
    if importlib.util.find_spec("rliable") is None:
        raise ImportError('a report needs rliable: pip install "rosmo[report]"')
    experiment = experiments.load(args.name)
    results = gather(experiment, args.out / experiment.name, consent(args))
    if not results.runs:
        elsewhere = f" --out {args.out}" if args.out != EXPERIMENTS else ""
        raise ValueError(
            f"no run of {experiment.name} in {args.out / experiment.name} is finished: train them with "
            f"rosmo experiment {args.name}{elsewhere}"
        )
    report = write(results, args.to / experiment.name if args.to else args.out / experiment.name / "report")
    count = len(results.runs)
    print(f"{report}: {count} of {count + len(results.missing)} runs, pictures and results.json beside it")


def gather(experiment: Experiment, root: Path, allowed: Consent = NOTHING) -> Results:
    """Reads the runs of an experiment below `root`."""
    finished: list[Run] = []
    missing: list[Missing] = []
    environments: dict[Key, str] = {}
    compute: dict[Key, Compute] = {}
    departed: list[str] = []
    stages: dict[str | None, FirstStage | None] = {None: None}  # by the world, which agents share
    worlds: dict[Key, FirstStage] = {}
    for cell in experiment.cells():
        key, folder = Key(cell.method, cell.environment, cell.setting), RunFolder(root / cell.folder)
        if not folder.finished():
            missing.append(Missing(key, cell.seed, folder.updates_taken()))
            continue
        if key not in compute:
            training, _ = open_run(folder, allowed)
            environments[key] = training.label
            compute[key] = _compute(training)  # at once: its parts ask gin, which knows one run at a time
            if training.world not in stages:
                stages[training.world] = _first_stage(RunFolder(Path(str(training.world))), allowed)
            if world := stages[training.world]:
                worlds[key] = world
        if not _as_the_file_says(cell, folder):
            departed.append(str(cell.folder))
        finished.append(read_run(folder, key, cell.seed, environments[key]))
    return Results(
        name=experiment.name,
        about=experiment.about,
        axis=experiment.axis,
        figure=experiment.figure,
        methods=tuple(experiment.methods),
        environments=tuple(experiment.environments),
        settings=tuple(experiment.settings),
        paper=experiment.paper,
        paper_note=experiment.paper_note,
        runs=tuple(finished),
        missing=tuple(missing),
        compute=compute,
        departed=tuple(departed),
        worlds=worlds,
    )


def read_run(folder: RunFolder, key: Key, seed: int, environment: str) -> Run:
    """Reads one finished run.

    Args:
        folder: of the run.
        key: what it is a run of.
        seed: of the run.
        environment: registered name, which reference scores are looked up by.
    """
    result = folder.read_result()
    if result.held_out is not None:
        raise ValueError(
            f"{folder.path} was trained without an environment, and a report is of returns in one"
        )
    sampled, greedy = float(np.mean(result.sampled)), float(np.mean(result.greedy))
    rows = folder.metrics.rows()
    if not rows:
        raise ValueError(f"{folder.metrics.path} has no rows: {BEGIN_AGAIN}")
    evaluations = (
        Evaluation(
            int(row["step"]),
            float(row["return"]),
            envs.normalised_or_none(environment, float(row["return"])),
            float(row["seconds"]) if "seconds" in row else None,
        )
        for row in rows
        if "return" in row
    )
    return Run(
        key=key,
        seed=seed,
        updates=int(result.step),
        sampled=sampled,
        greedy=greedy,
        normalised=envs.normalised_or_none(environment, sampled),
        evaluations=tuple(evaluations),
        seconds_per_update=seconds_per_update(rows),
        seconds=clock.seconds_trained(rows) or None,
        selected={name: _selected(one, environment) for name, one in result.selected.items()},
    )


def _selected(one: Mapping[str, Any], environment: str) -> Selected:
    mean = float(np.mean(one["sampled"]))
    return Selected(int(one["step"]), mean, envs.normalised_or_none(environment, mean))


def _as_the_file_says(cell: Cell, folder: RunFolder) -> bool:
    """Whether a run was configured by the experiment's file alone, as it is now."""
    load_configuration(cell.configs, cell.bindings, [])  # what it imports has been imported
    return gin.config_str() == folder.config.read_text()


def _first_stage(folder: RunFolder, allowed: Consent) -> FirstStage | None:
    """What a world cost to train, if its run is still there."""
    if not folder.finished():
        return None
    updates = int(folder.read_result().step)
    world, _ = open_run(folder, allowed)
    seconds = clock.seconds_trained(folder.metrics.rows())
    return FirstStage(updates, seconds, _compute(world).flops * updates)


def _compute(training: Training) -> Compute:
    agent = training.build_agent()
    batch_size = training.learner(agent).batch_size
    return update_compute(agent, batch_size=batch_size, observation_shape=training.spaces()[0])
