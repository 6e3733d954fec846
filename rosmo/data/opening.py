"""A data set by what a user calls it: an RLDS directory, a store of frames, a file, or `minari:ID`."""

from pathlib import Path
from typing import Any

from rosmo.data import minari, rlds
from rosmo.data.arrays import SUFFIXES, from_file
from rosmo.data.episodes import number_of_actions
from rosmo.data.store import FrameStore, is_store
from rosmo.types import Trajectory

MINARI = "minari:"


def is_file(where: str) -> bool:
    """Whether a data set is a file of arrays, by its name."""
    return (
        not where.startswith(MINARI)
        and Path(where).suffix.lower() in SUFFIXES
        and not Path(where).expanduser().is_dir()
    )


def open_data(where: str, *, fraction: float = 1.0, seed: int = 0) -> Trajectory | FrameStore:
    """Opens a data set.

    Args:
        where: the path of an RLDS directory, of a store of frames, or of a .npz, .hdf5 or .parquet file; or
            `minari:ID`.
        fraction: the share of the episodes to keep, drawn at random; for one seed, a smaller share is part of
            a larger one.
        seed: chooses the episodes.
    """
    choice: dict[str, Any] = {"fraction": fraction, "seed": seed}
    if where.startswith(MINARI):
        return minari.read(where.removeprefix(MINARI), **choice)
    path = Path(where).expanduser()
    if is_file(where):
        return from_file(path, **choice)
    _refuse_other_file(path)
    if is_store(path):
        return FrameStore(path, **choice)
    return rlds.read(path, **choice)


def _refuse_other_file(path: Path) -> None:
    if path.is_file():
        raise ValueError(f"{path} is none of the files that are read: {', '.join(SUFFIXES)}")


def count_actions(where: str | None, data: Trajectory | FrameStore) -> int:
    """Returns how many actions a data set tells of: its space or masks, or what was taken."""
    if where is not None and where.startswith(MINARI):
        return minari.number_of_actions(where.removeprefix(MINARI))
    return data.num_actions if isinstance(data, FrameStore) else number_of_actions(data)


def recorded_environment(where: str) -> str | None:
    """Returns the environment that a data set says it was recorded in, if it says so."""
    if where.startswith(MINARI) or is_file(where):
        return None
    path = Path(where).expanduser()
    _refuse_other_file(path)
    found = FrameStore(path).environment if is_store(path) else rlds.read_metadata(path).get("environment")
    return found if isinstance(found, str) else None
