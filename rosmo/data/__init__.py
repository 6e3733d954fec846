"""Data sets: RLDS on disk, and windows of experience for the learner."""

from rosmo.data.host import HostSampler
from rosmo.data.store import FrameStore, write_store
from rosmo.data.streaming import StoreSampler
from rosmo.data.windows import WindowSampler, window_sampler

__all__ = ["FrameStore", "HostSampler", "StoreSampler", "WindowSampler", "window_sampler", "write_store"]
