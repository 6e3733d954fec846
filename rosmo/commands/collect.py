"""Trains an online DQN and records every episode of its training as an RLDS data set."""

import argparse
from pathlib import Path

from rosmo.data import rlds
from rosmo.runs.datasets import collect_to, default_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("environment", help="such as catch or minatar/breakout")
    parser.add_argument("--noise", type=float, default=0.0, help="probability that an action is replaced")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, help="length of the training (the paper's where not given)")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where data sets are kept")
    parser.add_argument("--out", type=Path, help="the data set's own directory, if not one below --data-dir")
    parser.add_argument("--format", choices=("array_record", "tfrecord"), default="array_record")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE")


def run(args: argparse.Namespace) -> None:
    """Collects a data set."""
    from rosmo.configs.bindings import import_module

    for module in args.imports:
        import_module(module)
    directory = args.out or default_directory(
        args.data_dir, args.environment, noise=args.noise, seed=args.seed
    )
    collect_to(
        directory,
        args.environment,
        noise=args.noise,
        seed=args.seed,
        episodes=args.episodes,
        file_format=args.format,
        overwrite=args.overwrite,
    )
    steps = rlds.read(directory)
    episodes = int(steps.is_last.sum())
    mean = float(steps.reward[~steps.is_last].sum() / episodes)
    transitions = len(steps.action) - episodes
    print(f"{directory}: {episodes:,} episodes, {transitions:,} transitions, mean return {mean:.2f}")
