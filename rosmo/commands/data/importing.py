"""Writes a file of arrays, or another's data set, as an RLDS directory that rosmo train reads."""

import argparse
from pathlib import Path

import numpy as np

from rosmo import envs
from rosmo.data import FrameStore, rlds
from rosmo.data.episodes import checked, each_episode
from rosmo.data.opening import open_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("source", metavar="FILE", help="a .npz, .hdf5 or .parquet; minari:ID; a directory")
    parser.add_argument("target", type=Path, help="the data set's own directory")
    parser.add_argument("--environment", help="where it was recorded, if an agent can be evaluated there")
    parser.add_argument("--format", choices=("array_record", "tfrecord"), default="array_record")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


def run(args: argparse.Namespace) -> None:
    """Imports a data set."""
    target = args.target.expanduser()
    rlds.refuse_existing(target, args.overwrite)
    if args.environment is not None:
        envs.get(args.environment)
    steps = open_data(args.source)
    if isinstance(steps, FrameStore):
        raise ValueError(
            f"{args.source} is a store of frames already: train with -p \"data = '{args.source}'\""
        )
    steps = checked(steps)
    about = {"source": Path(args.source).name}
    about |= {"environment": args.environment} if args.environment else {}
    how = {"file_format": args.format, "overwrite": args.overwrite}
    rlds.write(target, each_episode(steps), name="imported", metadata=about, **how)
    episodes = int(np.sum(steps.is_last))
    print(f"{target}: {episodes:,} episodes, {len(steps.action) - episodes:,} transitions")
