"""Episodes through `tfds.load`, which downloads what it knows, but needs TensorFlow."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rosmo.data.check import DTYPES, Columns
from rosmo.data.rlds.episodes import choose_episodes, from_record, named
from rosmo.data.rlds.features import import_tfds
from rosmo.types import Trajectory

_TOGETHER = 1024  # steps that are taken from TensorFlow at a time


def info(name: str, data_dir: str | None = None) -> Any:
    """Returns what TFDS knows of a data set, such as "rlu_atari_checkpoints_ordered/Pong_run_1"."""
    return _load(name, None, data_dir)[1]


def numbered_episodes(
    name: str, *, split: str, fraction: float = 1.0, seed: int = 0, data_dir: str | None = None
) -> Iterator[tuple[int, Trajectory]]:
    """Reads episodes `[L+1]` in order, each with its number; what was asked for is checked at once.

    Args:
        name: of the data set, as in `tfds.load`.
        split: of the data set.
        fraction: the share of the episodes to keep, drawn at random as `rosmo.data.rlds.read` draws it.
        seed: chooses the episodes.
        data_dir: where TFDS keeps its data sets, if not in its usual place.
    """
    dataset, about = _load(name, split, data_dir)
    keep = set(choose_episodes(about.splits[split].num_examples, fraction, seed).tolist())

    def episodes() -> Iterator[tuple[int, Trajectory]]:
        for index, episode in enumerate(dataset):
            if index not in keep:
                continue
            with named(f"episode {index} of the split {split} of {name}"):
                columns = _columns(episode)
            if columns:
                yield index, Trajectory(**columns)

    return episodes()


def _columns(episode: Any) -> Columns:
    """Takes the steps of an episode from TensorFlow."""
    parts = list(episode["steps"].batch(_TOGETHER).as_numpy_iterator())
    if not parts:
        return {}
    fields = [field for field in ("observation", *DTYPES) if field in parts[0]]
    return from_record({field: np.concatenate([part[field] for part in parts]) for field in fields})


def _load(name: str, split: str | None, data_dir: str | None) -> tuple[Any, Any]:
    tfds = import_tfds()
    try:
        import tensorflow  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'tfds.load needs TensorFlow: pip install "rosmo[tensorflow]", or name the directory of '
            f"{name!r}, which is read without it"
        ) from error
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    return tfds.load(name, split=split, data_dir=data_dir, read_config=in_order, with_info=True)
