"""Data sets: arrays and files of any origin, RLDS on disk, and windows of experience for the learner."""

from pathlib import Path

from rosmo.data import minari, rlds
from rosmo.data.arrays import from_episodes, from_file, from_flat, from_transitions
from rosmo.data.episodes import checked
from rosmo.data.host import HostSampler
from rosmo.data.store import FrameStore, write_store
from rosmo.data.streaming import StoreSampler
from rosmo.data.windows import WindowSampler, window_sampler
from rosmo.types import Trajectory

DataSet = Trajectory | FrameStore  # steps `[N]` in memory, or frames on disk


def from_minari(dataset_id: str, *, fraction: float = 1.0, seed: int = 0) -> Trajectory:
    """Returns the steps `[N]` of a local Minari data set, as `rosmo.data.minari.read` does."""
    return minari.read(dataset_id.removeprefix("minari:"), fraction=fraction, seed=seed)


def from_rlds(
    directory: str | Path, *, split: str = "train", fraction: float = 1.0, seed: int = 0
) -> Trajectory:
    """Returns the steps `[N]` of an RLDS directory as `rosmo.data.rlds.read` does, checked."""
    return checked(rlds.read(directory, split=split, fraction=fraction, seed=seed))


__all__ = [
    "DataSet",
    "FrameStore",
    "HostSampler",
    "StoreSampler",
    "WindowSampler",
    "from_episodes",
    "from_file",
    "from_flat",
    "from_minari",
    "from_rlds",
    "from_transitions",
    "window_sampler",
    "write_store",
]
