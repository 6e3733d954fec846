"""Files of flat rows: NumPy's .npz, HDF5 as d4rl writes it, and Parquet."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rosmo.data.arrays.flat import from_flat
from rosmo.data.episodes import take_episodes
from rosmo.data.rlds.episodes import choose_episodes, named
from rosmo.types import Trajectory

_FIELDS = "observation|action|reward|terminal|timeout|next_observation|invalid_action"
_FIELDS += "|termination|terminated|truncation|truncated|done"
_KNOWN = re.compile(rf"({_FIELDS})s?")
_NUMBERED = re.compile(rf"(({_FIELDS})s?)_(\d+)")  # a column of one number, as in observations_0


def from_file(
    path: str | Path, *, fraction: float = 1.0, seed: int = 0, num_actions: int | None = None
) -> Trajectory:
    """Returns the steps `[N]` of a file with the arrays that `from_flat` takes, by the same names.

    Groups and arrays of other names are passed over. A table may hold observations as lists, or one column
    for each number: `observations_0`, `observations_1`, …

    Args:
        path: a .npz, .hdf5, .h5 or .parquet.
        fraction: the share of the episodes to keep, drawn at random; for one seed, a smaller share is part of
            a larger one.
        seed: chooses the episodes.
        num_actions: every action must lie below it; where not given, up to the largest that was taken.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in _READERS:
        raise ValueError(f"{path} is none of the files that are read: {', '.join(_READERS)}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with named(str(path)):
        steps = from_flat(_READERS[path.suffix.lower()](path), num_actions=num_actions)
        chosen = choose_episodes(int(steps.is_last.sum()), fraction, seed)
    return steps if fraction == 1 else take_episodes(steps, chosen)


# Readers give what is known, and of all else the name, so that a message can say what there is.


def _read_npz(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it cannot be read as .npz (it is none, or not all of one): write it by numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] if _KNOWN.fullmatch(name) else None for name in map(str, file.files)}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"it cannot be read as arrays of numbers ({error}): write it by numpy.savez"
        ) from error


def _read_hdf5(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f'HDF5 files need h5py: pip install "rosmo[files]" ({error})') from error

    def read(node: Any) -> Any:
        return {name: read(node[name]) for name in node} if isinstance(node, h5py.Group) else node[()]

    try:
        with h5py.File(path, "r") as file:
            return {name: read(file[name]) if _KNOWN.fullmatch(name) else None for name in map(str, file)}
    except OSError as error:
        raise ValueError(f"it cannot be read as HDF5 ({error}): write it again") from error


def _read_parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f'Parquet files need pyarrow: pip install "rosmo[files]" ({error})') from error
    try:
        file = parquet.ParquetFile(path)
        wanted = [
            name for name in file.schema_arrow.names if _KNOWN.fullmatch(name) or _NUMBERED.fullmatch(name)
        ]
        table = file.read(columns=wanted)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it cannot be read as Parquet ({error}): write it again") from error
    columns = {name: _as_array(name, table[name]) for name in wanted}
    numbered: dict[str, dict[int, np.ndarray]] = {}
    for name in wanted:
        if match := _NUMBERED.fullmatch(name):
            numbered.setdefault(match[1], {})[int(match[3])] = columns.pop(name)
    for name, parts in numbered.items():
        if sorted(parts) != list(range(len(parts))):
            raise ValueError(
                f"the columns {name}_… must be numbered from 0 without a gap, got {sorted(parts)}"
            )
        columns[name] = np.stack([parts[i] for i in range(len(parts))], axis=1)
    return columns | dict.fromkeys(set(file.schema_arrow.names) - set(wanted))


def _as_array(name: str, column: Any) -> np.ndarray:
    """Returns a column of numbers, or of lists of them that are all of one length."""
    if column.null_count:
        raise ValueError(
            f"the column {name} has {column.null_count} empty cells: fill them, or drop their episodes"
        )
    values = column.to_numpy()
    while values.dtype == object:
        try:
            values = np.stack([np.stack(v) if v.dtype == object else v for v in values])
        except (ValueError, AttributeError) as error:
            raise ValueError(
                f"the column {name} must hold numbers, or lists of one length of them"
            ) from error
    return values


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".npz": _read_npz,
    ".hdf5": _read_hdf5,
    ".h5": _read_hdf5,
    ".parquet": _read_parquet,
}
SUFFIXES = tuple(_READERS)
