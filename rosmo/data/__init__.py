"""Data sets: RLDS on disk, and windows of experience for the learner."""

from rosmo.data.host import HostSampler
from rosmo.data.store import FrameStore, write_store
from rosmo.data.streaming import StoreSampler
from rosmo.data.windows import WindowSampler, window_sampler
from rosmo.types import Trajectory

DataSet = Trajectory | FrameStore  # steps `[N]` in memory, or frames on disk

__all__ = [
    "DataSet",
    "FrameStore",
    "HostSampler",
    "StoreSampler",
    "WindowSampler",
    "window_sampler",
    "write_store",
]
