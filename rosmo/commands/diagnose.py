"""Shows why trained runs are as good as they are: errors of their models by depth, and their policies."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax

from rosmo import operators
from rosmo.commands.shared import add_consent, add_imports, as_seed, consent, load_kept_data
from rosmo.configs import open_run
from rosmo.data import FrameStore
from rosmo.data.files import refuse_unwritable
from rosmo.data.opening import open_data
from rosmo.evaluate.diagnosis import Diagnosis
from rosmo.report import draw_diagnosis
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder, seed_folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs with a model")
    about = (
        "episodes to ask about, as `rosmo data show` takes them (default: held out of the run's, or its own)"
    )
    parser.add_argument("--data", metavar="PATH", help=about)
    parser.add_argument("--depth", type=int, default=10, help="imagined steps")
    parser.add_argument("--windows", type=int, default=2_048, help="of the episodes at most")
    parser.add_argument("--operators", nargs="+", default=[], metavar="NAME", help="to ask (default: all)")
    parser.add_argument("--picture", type=Path, default=Path("diagnosis.png"), help="where it goes")
    parser.add_argument("--seed", type=as_seed, default=0, help="of what is random in the operators")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_imports(parser)
    add_consent(parser)


def run(args: argparse.Namespace) -> None:
    """Prints tables of all runs side by side, and draws the errors by depth."""
    for name in ("depth", "windows"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(args, name)}")
    for name in args.operators:
        operators.get(name)
    refuse_unwritable(args.picture)
    folders = [folder for path in args.runs for folder in seed_folders(RunFolder(path))]
    found = {str(folder.path): _diagnose(folder, args) for folder in folders}
    draw_diagnosis(found, args.picture)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print("\n".join(_tables(found)))
    print(f"\npicture: {args.picture}")


def _diagnose(folder: RunFolder, args: argparse.Namespace) -> dict[str, Any]:
    training, _ = open_run(folder, consent(args))
    agent = training.build_acting_agent()
    learner = training.learner(agent)
    if args.data:
        steps, which = open_data(args.data), args.data
    else:
        own, held_out = training.divided(agent, load_kept_data(training, folder))
        steps, which = (own, "the run's own data") if held_out is None else (held_out, "held-out episodes")
    if isinstance(steps, FrameStore):
        raise ValueError(f"{which} is a store of frames on disk, and its steps are needed in memory")
    settings = {"depth": args.depth, "windows": args.windows, "names": args.operators}
    diagnosis = Diagnosis(agent, steps, num_actions=training.spaces()[1], **settings)
    checkpoints = Checkpoints(folder.checkpoints)
    state = checkpoints.restore(learner.init(jax.random.key(0)))
    checkpoints.close()
    print(f"{folder.path} at update {int(state.step):,}, asked about {which}", file=sys.stderr)
    return {"data": which, "step": int(state.step), **diagnosis(learner.gather(state.params), args.seed)}


def _tables(runs: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of all tables."""
    width = max(map(len, runs)) + 2
    lines = []
    for term, title in (
        ("reward", "mean absolute error of the reward"),
        ("value", "mean absolute error of the value, against returns"),
        ("policy", "log loss of the data's action"),
        ("accuracy", "accuracy of the data's action"),
    ):
        depths = len(next(iter(runs.values()))["depth"][term])
        lines += ["", f"{title}, by imagined steps", " " * width + "".join(f"{k:>8}" for k in range(depths))]
        lines += [
            f"{name:<{width}}" + "".join(map(_cell, found["depth"][term])) for name, found in runs.items()
        ]
    for part, title in (
        ("values", "values of what is observed, against returns"),
        ("policy", "the policy that acts, on the data's observations"),
    ):
        rows = {
            name: {k: x for k, x in found[part].items() if not isinstance(x, list)}
            for name, found in runs.items()
        }
        lines += ["", title, *_table(rows, width)]
    for name in next(iter(runs.values()))["operators"]:
        rows = {run: found["operators"][name] for run, found in runs.items()}
        lines += ["", f"operator {name}", *_table(rows, width)]
    return lines[1:]


def _table(rows: dict[str, dict[str, float]], width: int) -> list[str]:
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    header = " " * width + "".join(f"{name.replace('_', ' '):>20}" for name in names)
    return [
        header,
        *(f"{run:<{width}}" + "".join(_cell(row.get(n), 20) for n in names) for run, row in rows.items()),
    ]


def _cell(number: float | None, width: int = 8) -> str:
    return f"{'' if number is None else format(number, '.3g'):>{width}}"
