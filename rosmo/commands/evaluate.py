"""Plays a trained agent in its environment, or asks held-out episodes of it, and reports its scores."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from rosmo import envs
from rosmo.agents import Agent, Remembers
from rosmo.commands.shared import add_consent, add_imports, as_seed, consent, load_kept_data
from rosmo.configs import open_run
from rosmo.data import DataSet
from rosmo.evaluate import summarise
from rosmo.evaluate.dreams import dream
from rosmo.evaluate.film import refuse_unknown, write_video
from rosmo.evaluate.windows import ChosenWindows
from rosmo.report.held_out import as_report
from rosmo.runs.evaluation import build_evaluation, is_world, play
from rosmo.runs.folder import RunFolder, seed_folders
from rosmo.trained.loading import read_params

POLICIES = ("sampled", "greedy")
_DREAM = 60  # steps of a film of a world


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument(
        "folder", type=Path, metavar="RUN", help="the folder of a run, of one seed or several"
    )
    parser.add_argument("--episodes", type=int, default=100, help="episodes for each seed")
    parser.add_argument("--seed", type=as_seed, default=0, help="of the episodes")
    parser.add_argument(
        "--step",
        help="the checkpoint to play: an update, or what it was selected by, as fqe (default: the newest)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="film an episode as a .gif or an .mp4; of a world, real beside imagined",
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_imports(parser)
    add_consent(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the scores of the improved policy, by sampled and by greedy actions, or by held-out episodes."""
    if args.record:
        refuse_unknown(args.record)
    if args.episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {args.episodes}")
    returns = [play_run(folder, args) for folder in seed_folders(RunFolder(args.folder))]
    if "held_out" in returns[0]:
        _print_held_out(returns, args)
        return
    environment = returns[0]["environment"]
    steps = ", ".join(f"{step:,}" for step in sorted({played["step"] for played in returns}))
    rows = [score(environment, policy, [played[policy] for played in returns]) for policy in POLICIES]
    if args.json:
        print(json.dumps({"environment": environment, "seeds": len(returns), "step": steps, "scores": rows}))
        return
    print(f"{environment}, {len(returns)} seed(s), checkpoint of update {steps}\n")
    print("".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        cells = (f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values())
        print("".join(f"{cell:>12}" for cell in cells))


def _print_held_out(seeds: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps({"environment": None, "seeds": seeds}))
        return
    for seed in seeds:
        print(f"{seed['data']}, held-out episodes, checkpoint of update {seed['step']:,}\n")
        print(as_report(seed["held_out"]) + "\n")


def score(environment: str, policy: str, returns: list[list[float]]) -> dict[str, Any]:
    """Sums up the returns of each seed; of several, the standard error is that of their means."""
    scores = summarise(np.concatenate(returns))
    if len(returns) > 1:
        scores = scores._replace(stderr=summarise(np.array([np.mean(one) for one in returns])).stderr)
    row = {"policy": policy, **scores._asdict()}
    if np.isnan(scores.stderr):
        row["stderr"] = None  # a single episode has none, and JSON has no nan
    normalised = envs.normalised_or_none(environment, scores.mean)
    return row if normalised is None else row | {"normalised": normalised}


def play_run(folder: RunFolder, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the returns of one seed's newest (or asked for) checkpoint."""
    training, _ = open_run(folder, consent(args))
    agent = training.build_agent()
    params, step = read_params(folder, training, args.step)
    if not training.plays(agent) and (is_world(agent) or not args.record):
        if folder.weights.exists():
            raise ValueError(
                f"{folder.path} was trained on data alone, which did not come with it: what held-out "
                "episodes said of it is in its README.md; rosmo.evaluate plays it in an environment of yours"
            )
        held_out = cast(DataSet, training.divided(agent, load_kept_data(training, folder))[1])
        if args.record:
            windows = ChosenWindows(held_out, _DREAM, training.spaces()[1])
            _write(args, dream(agent, params, windows, args.seed))
        evaluation = build_evaluation(training, agent, held_out)
        found = {"data": training.label, "step": step}
        return found | evaluation.result(params, args.seed)
    evaluator = training.build_evaluator(cast(Agent | Remembers, agent), args.episodes)
    if args.record:
        _write(args, evaluator.film(params, args.seed))
    return {
        "environment": training.environment,
        "step": step,
        **play(evaluator, params, args.seed),
    }


def _write(args: argparse.Namespace, screens: Iterator[Any]) -> None:
    """Writes a film; of several seeds, of the first."""
    count = write_video(args.record, screens)
    print(f"{args.record}: {count:,} screens of an episode", file=sys.stderr)
    args.record = None
