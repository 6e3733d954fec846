"""Ranks trained runs by recorded episodes alone, without an environment to play them in."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rosmo.agents import Agent, Remembers
from rosmo.commands.shared import add_consent, add_imports, as_seed, consent, load_kept_data
from rosmo.configs import open_run
from rosmo.evaluate import Judge, Judgement
from rosmo.evaluate.ranking import rank
from rosmo.evaluate.selection import ESTIMATORS, ranked_by
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder, seed_folders
from rosmo.runs.selecting import build_judge
from rosmo.runs.training import Training
from rosmo.types import Params


class Candidate(NamedTuple):
    """A trained policy."""

    name: str
    training: Training
    agent: Agent | Remembers
    params: Params


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    about = "folders of runs, each of one seed or several; the data is that of the first"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=about)
    parser.add_argument("--checkpoints", choices=("last", "all"), default="last", help="which of each run")
    parser.add_argument("--greedy", action="store_true", help="judge their greedy actions")
    parser.add_argument("--updates", type=int, default=5_000, help="of the Q that is learned for each")
    parser.add_argument("--steps", type=int, default=100_000, help="of the data at most, in whole episodes")
    parser.add_argument("--truth", action="store_true", help="play them too, and say how right the ranks are")
    parser.add_argument("--episodes", type=int, default=100, help="to play of each, for --truth")
    parser.add_argument("--seed", type=as_seed, default=0, help="of all that is random")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_imports(parser)
    add_consent(parser)


def run(args: argparse.Namespace) -> None:
    """Prints what is estimated of each policy, the best first, and what the data cannot tell of it."""
    for name in ("updates", "steps", "episodes"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(args, name)}")
    folders = [folder for path in args.runs for folder in seed_folders(RunFolder(path))]
    judge = _judge(folders[0], args)
    rows = []
    for candidate in _candidates(folders, args):
        print(f"judging {candidate.name}", file=sys.stderr)
        found = judge(candidate.agent, candidate.params, greedy=args.greedy)
        row = {"policy": candidate.name, **_numbers(found), "doubts": list(found.doubts)}
        rows.append(row | (_play(candidate, judge.discount, args) if args.truth else {}))
    rows.sort(key=lambda row: -row["fqe"])
    ranks = _ranks(rows) if args.truth else {}
    if args.json:
        print(json.dumps(_without_nan({"policies": rows, "ranks": ranks}), indent=2))
        return
    _print(rows, args)
    if ranks:
        _print_ranks(ranks)


def _judge(folder: RunFolder, args: argparse.Namespace) -> Judge:
    """What judges, by the data and with the networks of a run."""
    training, _ = open_run(folder, consent(args))
    steps = load_kept_data(training, folder)
    training = training.with_spaces_of(steps)
    print(f"cloning the policy of the data of {folder.path}", file=sys.stderr)
    return build_judge(training, steps, updates=args.updates, seed=args.seed, most=args.steps)


def _candidates(folders: list[RunFolder], args: argparse.Namespace) -> Iterator[Candidate]:
    """Yields the policies of runs; the configuration is that of one until the next is asked for."""
    data, spaces = None, None
    for folder in folders:
        training, settings = open_run(folder, consent(args))
        data, spaces = data or settings["data"], spaces or training.spaces()
        if training.spaces() != spaces:
            raise ValueError(
                f"{folder.path} has other observations or actions than {folders[0].path}: select among runs "
                "of one environment"
            )
        if settings["data"] != data:
            print(f"{folder.path} was trained on other data than the first run", file=sys.stderr)
        agent = training.build_acting_agent()
        learner = training.learner(agent)
        checkpoints = Checkpoints(folder.checkpoints)
        for step in checkpoints.steps if args.checkpoints == "all" else [None]:
            state = checkpoints.restore(learner.init(jax.random.key(0)), step)
            yield Candidate(
                f"{folder.path} at {int(state.step):,}", training, agent, learner.gather(state.params)
            )
        checkpoints.close()


def _numbers(found: Judgement) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name in ("fqe", "dr", "wis"):
        mean, low, high = getattr(found, name)
        numbers |= {name: mean, f"{name}_interval": [low, high]}
    return numbers | {name: getattr(found, name) for name in ("model", "td_error", "effective", "rare")}


def _play(candidate: Candidate, discount: float, args: argparse.Namespace) -> dict[str, float]:
    """The mean return and the mean discounted return in the environment, of the same episodes."""
    build, seed = candidate.training.build_evaluator, args.seed
    returns = {
        name: build(candidate.agent, args.episodes, discount=factor)
        for name, factor in (("return", 1.0), ("discounted", discount))
    }
    return {
        n: float(np.mean(play(candidate.params, seed, greedy=args.greedy))) for n, play in returns.items()
    }


def _ranks(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How right each estimator's ranks are. The TD error is one too, as a foil: the smallest comes first."""
    truth, discounted = ([row[name] for row in rows] for name in ("return", "discounted"))
    ranks = {}
    for name in ESTIMATORS:
        scores = [row[name] for row in rows]
        found = rank([ranked_by(name, x) for x in scores], truth)
        errors = np.abs(np.subtract(scores, discounted))
        error = np.nan if name == "td_error" or np.isnan(errors).all() else float(np.nanmean(errors))
        ranks[name] = {"correlation": found.correlation, "absolute_error": error}
        ranks[name] |= {f"regret@{k}": regret for k, regret in found.regret.items()}
    return ranks


def _print(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    width = max(len(row["policy"]) for row in rows)
    header = [f"{'policy':<{width}}", f"{'fqe':>10}{'90% interval':>20}"]
    columns = [
        "dr",
        "wis",
        "model",
        "td_error",
        "effective",
        *(("return", "discounted") if args.truth else ()),
    ]
    print("".join(header) + "".join(f"{name:>12}" for name in columns))
    for row in rows:
        low, high = row["fqe_interval"]
        cells = "".join(f"{row[name]:>12.4g}" for name in columns)
        print(f"{row['policy']:<{width}}{row['fqe']:>10.4g}{f'{low:.4g} to {high:.4g}':>20}{cells}")
    print("\nAll but td_error, effective (episodes) and return are discounted returns of whole episodes.")
    for row in rows:
        for doubt in row["doubts"]:
            print(f"  ! {row['policy']}: {doubt}")


def _print_ranks(ranks: dict[str, dict[str, float]]) -> None:
    names = list(next(iter(ranks.values())))
    print(
        "\nagainst what was played:\n" + " " * 10 + "".join(f"{name.replace('_', ' '):>16}" for name in names)
    )
    for name, found in ranks.items():
        print(f"{name:<10}" + "".join(f"{found[column]:>16.4g}" for column in names))


def _without_nan(tree: Any) -> Any:
    return jax.tree.map(lambda x: None if isinstance(x, float) and np.isnan(x) else x, tree)
