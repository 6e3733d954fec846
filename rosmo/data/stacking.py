"""Observations that are stacks of frames, made on the device from windows that hold every frame once."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

from rosmo.types import Trajectory


def stack_frames(windows: Trajectory) -> Trajectory:
    """Stacks the frames of windows `[B, T]` whose observations are single frames, `[B, T + n, H, W]`.

    The n frames come before the first step, and every observation becomes its own frame behind the n before
    it, `[B, T, H, W, n + 1]`, the newest last. Frames before the first step of an episode are 0, also of one
    that begins inside the window. Windows with as many observations as steps are returned as they are.
    """
    frames, steps = windows.observation, windows.action.shape[1]
    before = frames.shape[1] - steps
    if before == 0:
        return windows
    age = _steps_since_the_last_end(windows.is_last, before)

    def earlier(count: int) -> Array:
        """The frames of `count` steps before each, those of the same episode."""
        part = frames[:, before - count : before - count + steps]
        return jnp.where((age >= count).reshape(*age.shape, *(1,) * (part.ndim - 2)), part, 0)

    own = frames[:, before:]
    stacked = jnp.stack([*(earlier(count) for count in range(before, 0, -1)), own], axis=-1)
    return dataclasses.replace(windows, observation=stacked)


def _steps_since_the_last_end(is_last: Bool[Any, "batch time"], before: int) -> Int[Array, "batch time"]:
    """How many steps before each are of its episode, and at least `before` for the window's first episode."""
    place = jnp.arange(is_last.shape[1])[None]
    first = jax.lax.cummax(jnp.where(is_last, place + 1, -before), axis=1)
    first = jnp.concatenate([jnp.full_like(first[:, :1], -before), first[:, :-1]], axis=1)
    return place - first
