"""Runs all of an experiment's grid over the cores, or what is left of it."""

import argparse
from pathlib import Path

import gin

from rosmo import configs, experiments
from rosmo.commands import pool
from rosmo.commands.shared import load_data
from rosmo.experiments import Cell, Experiment
from rosmo.runs.folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(experiments.names())}, or a file")
    parser.add_argument("--out", type=Path, default=Path("runs/experiments"), help="where its runs are kept")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where collected data is kept")
    parser.add_argument("--seeds", type=int, help="seeds to run, if not all of them")
    parser.add_argument("-p", "--bind", action="append", default=[], metavar="BINDING", help="for every run")


def run(args: argparse.Namespace) -> None:
    """Begins the runs that are missing and trains all that are not finished."""
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    experiment = experiments.load(args.name)
    folders = begin(experiment, args)
    left = sum(not folder.finished() for folder in folders)
    print(f"{experiment.name}: {len(folders)} runs, {left} to do")
    pool.train_all(folders, experiment.name, f"rosmo experiment {args.name}")
    print(f"all runs are in {args.out / experiment.name}; for tables and figures: rosmo report {args.name}")


def begin(experiment: Experiment, args: argparse.Namespace) -> list[RunFolder]:
    """Returns a folder for each run of the grid, made where it is missing, with the data that it needs."""
    with_data: set[tuple] = set()
    cells = [cell for cell in experiment.cells() if args.seeds is None or cell.seed < args.seeds]
    prepared = []
    for cell in cells:
        training = configs.load(cell.configs, [*cell.bindings, *args.bind])
        data = (training.environment, training.noise, training.data, training.data_seed)
        if data not in with_data:
            training.check(training.build_agent(), load_data(training, args.data_dir))
            with_data.add(data)
        prepared.append((RunFolder(args.out / experiment.name / cell.folder), cell, gin.config_str()))
    for folder, cell, text in prepared:
        _begin_run(folder, cell, text, args.data_dir)
    return [folder for folder, _, _ in prepared]


def _begin_run(folder: RunFolder, cell: Cell, text: str, data_dir: Path) -> None:
    if not folder.exists():
        settings = {
            "imports": [],
            "data_dir": str(data_dir.resolve()),
            "wandb": None,
            "mesh": "data=1",
            "data": None,
        }
        folder.begin(text, settings | {"seed": cell.seed})
    elif folder.config.read_text() != text:
        raise ValueError(
            f"{folder.path} was begun with another configuration: move it away, or run with another --out"
        )
