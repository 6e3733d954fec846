"""Records episodes as an RLDS data set: those of an online agent's training, or of a written policy."""

import argparse
from pathlib import Path

from rosmo import envs
from rosmo.commands.shared import add_imports, as_seed
from rosmo.data import rlds
from rosmo.runs.datasets import collect_to, default_directory, record_to


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("environment", help="such as catch or minatar/breakout")
    parser.add_argument(
        "--policy", help="a written policy to record, such as random (default: train an online agent)"
    )
    parser.add_argument("--noise", type=float, default=0.0, help="probability that an action is replaced")
    parser.add_argument("--seed", type=as_seed, default=0)
    parser.add_argument(
        "--episodes",
        type=int,
        help="length of a DQN's training (the paper's where not given), or games of a policy",
    )
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where data sets are kept")
    parser.add_argument("--out", type=Path, help="the data set's own directory, if not one below --data-dir")
    parser.add_argument("--format", choices=("array_record", "tfrecord"), default="array_record")
    parser.add_argument(
        "--anew", action="store_true", help="train, also where a recording of it comes with the library"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    add_imports(parser)


def run(args: argparse.Namespace) -> None:
    """Collects a data set."""
    from rosmo import configs

    for module in args.imports:
        configs.import_module(module)
    # A policy's data has a place of its own: a training takes what lies in the DQN's for the DQN's.
    name = f"{args.environment}-{args.policy}" if args.policy else args.environment
    directory = args.out or default_directory(args.data_dir, name, noise=args.noise, seed=args.seed)
    how = {"noise": args.noise, "seed": args.seed, "file_format": args.format, "overwrite": args.overwrite}
    if args.policy:
        if args.episodes is None:
            raise ValueError("--policy needs --episodes: how many to record")
        record_to(directory, args.environment, args.policy, episodes=args.episodes, **how)
    else:
        collect_to(directory, args.environment, episodes=args.episodes, anew=args.anew, **how)
    rewards = [episode.reward[:-1] for episode in rlds.read_episodes(directory)]
    transitions = sum(map(len, rewards))
    mean = float(sum(reward.sum() for reward in rewards) / len(rewards))
    counts = f"{len(rewards):,} episodes, {transitions:,} transitions"
    clipped = " of clipped rewards" if envs.is_atari(args.environment) else ""
    print(f"{directory}: {counts}, mean return {mean:.2f}{clipped}")
