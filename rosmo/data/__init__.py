"""Data sets: RLDS on disk, and windows of experience for the learner."""

from rosmo.data.host import HostSampler
from rosmo.data.windows import WindowSampler, window_sampler

__all__ = ["HostSampler", "WindowSampler", "window_sampler"]
