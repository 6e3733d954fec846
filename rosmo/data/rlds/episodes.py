"""Episodes as columns of steps: their types, what makes one whole, and which of them to keep."""

from collections.abc import Iterator

import numpy as np

from rosmo.types import Trajectory

Columns = dict[str, np.ndarray]  # the fields of a Trajectory, by name

DTYPES = {  # of every field but the observation, which keeps its own
    "action": np.int32,
    "reward": np.float32,
    "discount": np.float32,
    "is_first": np.bool_,
    "is_last": np.bool_,
    "is_terminal": np.bool_,
    "invalid_actions": np.bool_,
}


def choose_episodes(count: int, fraction: float, seed: int) -> np.ndarray:
    """Draws `max(1, round(fraction·count))` of `count` episodes without replacement, in ascending order."""
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    chosen = np.random.default_rng(seed).permutation(count)[: max(1, round(fraction * count))]
    return np.sort(chosen)


def discounts(is_terminal: np.ndarray) -> np.ndarray:
    """Returns the discounts of one episode: 1, and 0 from the action that leads to its termination."""
    return 1 - (is_terminal | np.append(is_terminal[1:], False)).astype(np.float32)


def to_columns(index: int, episode: Trajectory) -> Columns:
    """Gives every field the type it is stored with, and refuses one that has none."""
    fields = {field: np.asarray(value) for field, value in vars(episode).items() if value is not None}
    observation, action = fields["observation"].dtype, fields["action"].dtype
    if not np.issubdtype(action, np.integer):
        raise TypeError(f"episode {index}: actions must be integers, got {action}")
    if observation.kind not in "biuf" or observation.itemsize > 8 or observation == np.uint64:
        raise TypeError(
            f"episode {index}: observations of {observation} cannot be stored; convert them to a float, "
            "integer or boolean type of at most 64 bits (not uint64)"
        )
    dtypes = {"observation": observation.newbyteorder("="), **DTYPES}
    return {field: column.astype(dtypes[field], copy=False) for field, column in fields.items()}


def checked(index: int, columns: Columns) -> Columns:
    """Refuses what is not one whole episode."""
    lengths = {field: len(column) if column.ndim else None for field, column in columns.items()}
    count = lengths["action"]
    if not count or columns["action"].ndim != 1 or set(lengths.values()) != {count}:
        raise ValueError(f"episode {index}: every field must have the same steps [L+1], got {lengths}")
    step = np.arange(count)
    for field, right in (("is_first", step == 0), ("is_last", step == count - 1)):
        if (columns[field] != right).any():
            where = "first" if field == "is_first" else "last"
            raise ValueError(f"episode {index}: {field} must be set on its {where} step and no other")
    if columns["is_terminal"][:-1].any():
        raise ValueError(f"episode {index}: is_terminal can be set on its last step only")
    return columns


def alike(first: Columns, rest: Iterator[Columns]) -> Iterator[Columns]:
    """Yields the first episode and the rest, as long as they have the same kinds of steps."""

    def kinds(columns: Columns) -> dict[str, tuple[list[int], str]]:
        return {field: (list(column.shape[1:]), column.dtype.name) for field, column in columns.items()}

    yield first
    expected = kinds(first)
    for index, columns in enumerate(rest, start=1):
        if (found := kinds(columns)) != expected:
            raise ValueError(f"episode {index} has steps unlike the first: {found} instead of {expected}")
        yield columns


def completed(columns: Columns) -> Columns:
    """Adds what an episode leaves out, and closes it on its last step."""
    count = len(columns["action"])
    last = np.arange(count) == count - 1
    columns["is_last"] = columns.get("is_last", last) | last
    if "is_first" not in columns:
        columns["is_first"] = np.append(True, columns["is_last"][:-1])[:count]
    if "discount" not in columns:
        columns["discount"] = discounts(columns["is_terminal"])
    return columns
