"""Runs all of an experiment's grid over the cores, or what is left of it."""

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gin

from rosmo import configs, experiments
from rosmo.commands.shared import EXPERIMENTS, add_imports, load_data
from rosmo.commands.worlds import in_its_world
from rosmo.configs import Consent, open_run
from rosmo.data import DataSet
from rosmo.experiments import Cell, Experiment, pool
from rosmo.runs.datasets import checksum
from rosmo.runs.folder import RunFolder
from rosmo.runs.training import Training

_DATA = Path("data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("name", metavar="NAME", help=f"{', '.join(experiments.names())}, or a file")
    parser.add_argument("--out", type=Path, default=EXPERIMENTS, help="where its runs are kept")
    parser.add_argument("--data-dir", type=Path, default=_DATA, help="where collected data is kept")
    parser.add_argument("--seeds", type=int, help="seeds to run, if not all of them")
    parser.add_argument("-p", "--bind", action="append", default=[], metavar="BINDING", help="for every run")
    add_imports(parser)


def run(args: argparse.Namespace) -> None:
    """Begins the runs that are missing and trains all that are not finished."""
    experiment = experiments.load(args.name)
    if args.seeds is not None and not 1 <= args.seeds <= experiment.seeds:
        raise ValueError(
            f"--seeds must lie between 1 and the {experiment.seeds} of the file, got {args.seeds}"
        )
    runs = prepare(experiment, args)
    modules = configs.sources(args.imports)
    for each in runs:
        if not each.folder.exists():
            each.folder.begin(each.config, each.settings, modules)
    folders = [each.folder for each in runs]
    left = sum(not folder.finished() for folder in folders)
    print(f"{experiment.name}: {len(folders)} runs, {left} to do")
    pool.train_all(
        {folder: open_run(folder, Consent(imports=args.imports))[0].num_updates for folder in folders},
        experiment.name,
        _command(args, "experiment"),
        [word for module in args.imports for word in ("--import", module)],  # which runs do not run unasked
    )
    print(f"all runs are in {args.out / experiment.name}; for tables and figures: {_command(args, 'report')}")


class Prepared(NamedTuple):
    """A run that can be begun."""

    folder: RunFolder
    config: str
    settings: Mapping[str, Any]


def prepare(experiment: Experiment, args: argparse.Namespace) -> list[Prepared]:
    """Checks every run of the grid before anything is made, and collects the data that is missing."""
    data: dict[tuple, tuple[DataSet, str]] = {}
    runs = []
    for cell in experiment.cells():
        if args.seeds is not None and cell.seed >= args.seeds:
            continue
        try:
            runs.append(_prepare(cell, args.out / experiment.name / cell.folder, args, data))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{cell.label}: {error}") from error
    return runs


def _prepare(cell: Cell, path: Path, args: argparse.Namespace, data: dict) -> Prepared:
    bindings = [*cell.bindings, *args.bind]
    again = _command(args, "experiment")
    training, known = in_its_world(cell.configs, bindings, args.imports, args.data_dir, again)
    steps, found = _data_of(training, args.data_dir, data)
    settings = {"data_dir": str(args.data_dir.resolve()), "wandb": None, "mesh": "data=1"}
    settings |= {"data": found, "seed": cell.seed, **known}
    run = Prepared(RunFolder(path), gin.config_str(), settings)
    if run.folder.exists():
        _refuse_another(run)
    elif cell.seed == 0:  # the seeds differ in nothing that could fail
        training.rehearse(training.learner(training.build_agent()), steps)
    return run


def _data_of(training: Training, root: Path, known: dict[tuple, tuple[DataSet, str]]) -> tuple[DataSet, str]:
    """Returns the data of a run and what it is recognised by, loaded once for the runs that share it."""
    key = (training.environment, training.noise, training.data, training.data_seed, training.data_fraction)
    if key not in known:
        steps = load_data(training, root)
        known[key] = steps, checksum(steps)
    return known[key]


def _refuse_another(run: Prepared) -> None:
    """One table has runs of one configuration and of one data set."""
    known = run.folder.read_settings()["data"]
    what = None
    if run.folder.config.read_text() != run.config:
        what = "with another configuration"
    elif known not in (None, run.settings["data"]):
        what = f"on other data ({known}, and now {run.settings['data']})"
    if what:
        raise ValueError(f"{run.folder.path} was begun {what}: move it away, or run with another --out")


def _command(args: argparse.Namespace, command: str) -> str:
    """The command line that goes on from here."""
    words = ["rosmo", command, args.name]
    words += ["--out", str(args.out)] if args.out != EXPERIMENTS else []
    if command == "experiment":
        words += ["--data-dir", str(args.data_dir)] if args.data_dir != _DATA else []
        words += ["--seeds", str(args.seeds)] if args.seeds else []
        words += [word for binding in args.bind for word in ("-p", binding)]
        words += [word for module in args.imports for word in ("--import", module)]
    return shlex.join(words)
