"""Writes a data set as one of Minari's, for everyone else's libraries."""

import argparse

import numpy as np

from rosmo.data import FrameStore, minari
from rosmo.data.episodes import checked
from rosmo.data.opening import MINARI, count_actions, open_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument("source", help="RLDS directory, or a .npz, .hdf5 or .parquet file")
    parser.add_argument("target", metavar="minari:ID", help="of the new data set, as in minari:mine/catch-v0")


def run(args: argparse.Namespace) -> None:
    """Exports a data set."""
    if not args.target.startswith(MINARI):
        raise ValueError(
            f"a data set is exported to {MINARI}ID, as in {MINARI}mine/catch-v0, not {args.target!r}"
        )
    name = args.target.removeprefix(MINARI)
    minari.refuse_unusable(name)
    steps = open_data(args.source)
    if isinstance(steps, FrameStore):
        raise ValueError(
            f"{args.source} is a store of frames: export the data set that it was converted from"
        )
    steps = checked(steps)
    about = f"Episodes of {args.source}, exported by rosmo."
    minari.write(name, steps, num_actions=count_actions(args.source, steps), description=about)
    print(f"{args.target}: {int(np.sum(steps.is_last)):,} episodes; minari.load_dataset({name!r}) opens it")
