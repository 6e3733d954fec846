"""Writes Atari data, of RL Unplugged or collected here, as a store of frames that rosmo train reads fast."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rosmo import envs
from rosmo.commands.shared import as_seed
from rosmo.data import rlds, tfds_load
from rosmo.data.atari import STACK, environment_of, single_frames
from rosmo.data.store import ANY_ACTION, FrameStore, import_zstandard, is_store, write_store
from rosmo.data.windows import checked_steps
from rosmo.runs.progress import Progress, show
from rosmo.types import Trajectory

_TFDS = "tfds:"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what this command takes."""
    parser.add_argument(
        "source", help=f"RLDS directory, or {_TFDS}NAME as in {_TFDS}rlu_atari_checkpoints_ordered/Pong_run_1"
    )
    parser.add_argument("target", type=Path, help="the store's own directory")
    parser.add_argument("--split", action="append", help="a split to take (default: all); may be repeated")
    parser.add_argument("--fraction", type=float, default=1.0, help="share of the episodes of each split")
    parser.add_argument("--seed", type=as_seed, default=0, help="of the choice of episodes")
    parser.add_argument("--data-dir", help="where TFDS keeps its data sets")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


def run(args: argparse.Namespace) -> None:
    """Converts a data set."""
    target = args.target.expanduser()
    rlds.refuse_existing(target, args.overwrite)
    import_zstandard()
    rlds.choose_episodes(1, args.fraction, args.seed)  # refuses a share that is none, before a download
    if args.source.startswith(_TFDS):
        name, reader, where = args.source.removeprefix(_TFDS), tfds_load, {"data_dir": args.data_dir}
    elif args.data_dir:
        raise ValueError(f"--data-dir goes with {_TFDS}NAME: leave it out, as {args.source} is a directory")
    elif is_store(Path(args.source).expanduser()):
        raise ValueError(f"{args.source} is a store already: train with -p \"data = '{args.source}'\"")
    else:
        name, reader, where = args.source, rlds, {}
    info = reader.info(name, **where)
    if Path(info.data_dir).resolve() == target.resolve():
        raise ValueError(f"{target} is what is to be converted: choose another directory for the store")
    splits = args.split or [split for split in info.splits if info.splits[split].num_examples]
    choice = {"fraction": args.fraction, "seed": args.seed, **where}
    about = _about(info, args)
    num_actions = _number_of_actions(about.get("environment"))
    progress = show(len(splits), f"converting {args.source}", unit="splits")
    try:
        episodes = {}
        for split in splits:
            found = reader.numbered_episodes(name, split=split, **choice)
            converted = _convert(found, f"the split {split} of {args.source}", num_actions)
            episodes[split] = _counted(converted, progress)
        write_store(target, episodes, stack=STACK, metadata=about, overwrite=args.overwrite)
    finally:
        progress.close()
    store = FrameStore(target)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target}: {store.checksum}, {size / 1e6:,.1f} MB ({size / store.info['steps']:.0f} a frame)")


def _about(info: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the metadata of a store: that of its source, the game if known, and what was converted."""
    environment = environment_of(info.full_name)
    game = {"environment": environment} if environment else {}
    choice = {"source": args.source, "data_fraction": args.fraction, "data_seed": args.seed}
    return {**game, **(info.metadata or {}), **choice}


def _number_of_actions(environment: str | None) -> int:
    """Returns how many actions a game has, if the game is known and its emulator is here."""
    if environment not in envs.names():
        return ANY_ACTION
    try:
        return envs.number_of_actions(envs.make(environment, seed=0))
    except ImportError:
        return ANY_ACTION


def _convert(
    episodes: Iterable[tuple[int, Trajectory]], source: str, num_actions: int
) -> Iterator[Trajectory]:
    """Yields episodes as a store holds them; one that it cannot hold is named as its source has it."""
    for number, episode in episodes:
        try:
            frames = single_frames(episode)
            if len(frames.action) > 1:
                checked_steps(frames, window=1, num_actions=num_actions)
        except ValueError as error:
            raise ValueError(f"episode {number} of {source}: {error}") from error
        yield frames


def _counted(episodes: Iterable[Trajectory], progress: Progress) -> Iterator[Trajectory]:
    """Yields the episodes of a split, and counts the split when it is through."""
    for count, episode in enumerate(episodes, start=1):
        progress.advance(0, f"{count:,} episodes of this split")
        yield episode
    progress.advance(1)
