"""Data sets: windows of experience for the learner."""

from rosmo.data.windows import WindowSampler, window_sampler

__all__ = ["WindowSampler", "window_sampler"]
