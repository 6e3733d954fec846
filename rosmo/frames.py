"""Observations that are stacks of frames, made on the device from windows that hold every frame once."""

import dataclasses

import jax.numpy as jnp

from rosmo.types import Trajectory


def stack_frames(windows: Trajectory) -> Trajectory:
    """Stacks the frames of windows `[B, T]` whose observations are single frames, `[B, T + n, H, W]`.

    The n frames come before the first step, and every observation becomes its own frame behind the n before
    it, `[B, T, H, W, n + 1]`, the newest last. Beyond the end of an episode, stacks mix it with what follows;
    no target reads that far. Windows with as many observations as steps are returned as they are.
    """
    frames, steps = windows.observation, windows.action.shape[1]
    before = frames.shape[1] - steps
    if before == 0:
        return windows
    stacked = jnp.stack([frames[:, i : i + steps] for i in range(before + 1)], axis=-1)
    return dataclasses.replace(windows, observation=stacked)
