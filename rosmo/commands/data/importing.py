"""Writes a file of arrays, or another's data set, as an RLDS directory that rosmo train reads."""

import argparse
from pathlib import Path

import numpy as np

from rosmo import envs
from rosmo.data import FrameStore, rlds
from rosmo.data.episodes import checked, each_episode, number_of_actions
from rosmo.data.opening import open_data
from rosmo.types import Trajectory


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
    if args.environment is not None:
        _refuse_other_spaces(steps, args.environment)
    about = {"source": Path(args.source).name}
    about |= {"environment": args.environment} if args.environment else {}
    how = {"file_format": args.format, "overwrite": args.overwrite}
    rlds.write(target, each_episode(steps), name="imported", metadata=about, **how)
    episodes = int(np.sum(steps.is_last))
    print(f"{target}: {episodes:,} episodes, {len(steps.action) - episodes:,} transitions")


def _refuse_other_spaces(steps: Trajectory, name: str) -> None:
    """Refuses to say of data that it was recorded where it cannot have been."""
    environment = envs.make(name, seed=0)
    shapes = [list(shape) for shape in (steps.observation.shape[1:], envs.observation_shape(environment))]
    counts = number_of_actions(steps), envs.number_of_actions(environment)
    if shapes[0] != shapes[1] or counts[0] > counts[1]:
        raise ValueError(
            f"the data was not recorded in {name}: it has observations of the shape {shapes[0]} and "
            f"{counts[0]} actions, and {name} has {shapes[1]} and {counts[1]}; leave --environment out, or "
            "name another"
        )
