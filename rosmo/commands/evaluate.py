"""Plays a trained agent in its environment and reports its scores."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rosmo import envs
from rosmo.commands.shared import as_seed, open_run, seed_folders
from rosmo.evaluate import summarise
from rosmo.runs.checkpoint import Checkpoints
from rosmo.runs.folder import RunFolder
from rosmo.runs.train import play
from rosmo.video import refuse_unknown, write_video

POLICIES = ("sampled", "greedy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument(
        "folder", type=Path, metavar="RUN", help="the folder of a run, of one seed or several"
    )
    parser.add_argument("--episodes", type=int, default=100, help="episodes for each seed")
    parser.add_argument("--seed", type=as_seed, default=0, help="of the episodes")
    parser.add_argument("--step", type=int, help="the checkpoint to play (the newest where not given)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="film an episode as a .gif or an .mp4")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")


def run(args: argparse.Namespace) -> None:
    """Prints the scores of the improved policy, its actions drawn and its likeliest."""
    if args.record:
        refuse_unknown(args.record)
    returns = [play_run(folder, args) for folder in seed_folders(RunFolder(args.folder))]
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
    training, _ = open_run(folder)
    agent = training.build_agent()
    learner = training.learner(agent)
    checkpoints = Checkpoints(folder.checkpoints)
    state = checkpoints.restore(learner.init(jax.random.key(0)), args.step)
    checkpoints.close()
    evaluator = training.build_evaluator(agent, args.episodes)
    if args.record:
        count = write_video(args.record, evaluator.film(state.params, args.seed))
        print(f"{args.record}: {count:,} screens of an episode", file=sys.stderr)
        args.record = None  # of several seeds, the first
    return {
        "environment": training.environment,
        "step": int(state.step),
        **play(evaluator, state.params, args.seed),
    }
