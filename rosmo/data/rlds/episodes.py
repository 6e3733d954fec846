"""Episodes as columns of steps: their types, what makes one whole, and which of them to keep."""

import contextlib
from collections.abc import Iterator

import numpy as np

from rosmo.data.check import DTYPES, Columns, refuse_bad_shapes, typed
from rosmo.types import Trajectory, refuse_counts, refuse_numbers


def choose_episodes(count: int, fraction: float, seed: int) -> np.ndarray:
    """Draws `max(1, round(fraction·count))` of `count` episodes without replacement, in ascending order."""
    refuse_numbers(0, 1, above=True, fraction=fraction)
    refuse_counts(0, seed=seed)
    chosen = np.random.default_rng(seed).permutation(count)[: max(1, round(fraction * count))]
    return np.sort(chosen)


def discounts(is_terminal: np.ndarray) -> np.ndarray:
    """Returns the discounts of one episode: 1, and 0 from the action that leads to its termination."""
    return 1 - (is_terminal | np.append(is_terminal[1:], False)).astype(np.float32)


def to_columns(index: int, episode: Trajectory) -> Columns:
    """Gives every field the type it is stored with, and refuses what is not one whole episode."""
    observation = np.asarray(episode.observation).dtype
    if observation.kind not in "biuf" or observation.itemsize > 8 or observation == np.uint64:
        raise TypeError(
            f"episode {index}: observations of {observation} cannot be stored; convert them to a float, "
            "integer or boolean type of at most 64 bits (not uint64)"
        )
    with named(f"episode {index}"):
        columns = typed(vars(episode))
    lengths = {field: len(column) if column.ndim else None for field, column in columns.items()}
    count = lengths["action"]
    if not count or columns["action"].ndim != 1 or set(lengths.values()) != {count}:
        raise ValueError(f"episode {index}: every field must have the same steps [L+1], got {lengths}")
    masks = columns.get("invalid_actions")
    with named(f"episode {index}"):
        refuse_bad_shapes(columns, 0 if masks is None else masks.shape[-1])
    step = np.arange(count)
    for field, right in (("is_first", step == 0), ("is_last", step == count - 1)):
        if (columns[field] != right).any():
            where = "first" if field == "is_first" else "last"
            raise ValueError(f"episode {index}: {field} must be set on its {where} step and no other")
    if columns["is_terminal"][:-1].any():
        raise ValueError(f"episode {index}: is_terminal can be set on its last step only")
    return columns


@contextlib.contextmanager
def named(episode: str) -> Iterator[None]:
    """Says of what is wrong which episode it is in."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{episode}: {error}") from error


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


def _as_flag(field: str, column: np.ndarray) -> np.ndarray:
    """Returns a column of flags as such if it is one and nothing is lost."""
    flags = DTYPES.get(field) is np.bool_ and column.dtype != bool
    return column == 1 if flags and np.isin(column, (0, 1)).all() else column


def from_record(fields: Columns) -> Columns:
    """Makes an episode of what another's record holds of it.

    Flags may be the numbers 0 and 1. What the record leaves out is added, and its last step closes it; an end
    or a beginning in its middle is refused.
    """
    columns = typed({field: _as_flag(field, column) for field, column in fields.items()})
    step = np.arange(len(columns["action"]))
    first, last = step == 0, step == len(step) - 1
    ends = np.flatnonzero(columns.get("is_last", last) & ~last)
    if ends.size:
        raise ValueError(
            f"step {ends[0]} is_last, and more steps follow: a record is one episode, so make two of it, or "
            "take is_last from that step"
        )
    begins = np.flatnonzero(columns.get("is_first", first) != first)
    if begins.size:
        raise ValueError(
            f"is_first is wrong on step {begins[0]}: a record is one episode, so set it on its first step "
            "(0) and no other, or leave the field out"
        )
    columns |= {"is_first": first, "is_last": last}
    if "discount" not in columns:
        columns["discount"] = discounts(columns["is_terminal"])
    return columns
