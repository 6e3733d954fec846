"""What a world imagines beside what was observed, as pictures of any observation."""

import colorsys
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from rosmo.agents import Trained
from rosmo.data.stacking import stack_frames
from rosmo.evaluate.windows import ChosenWindows
from rosmo.types import Params, is_array
from rosmo.worlds import filter_window
from rosmo.worlds.base import states_at

_SIDE = 160  # pixels that a picture's longer side has, at least
_GAP = 8


def dream(
    agent: Trained,
    params: Params,
    windows: ChosenWindows,
    seed: int,
    *,
    context: int = 8,
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Yields real beside imagined observations of one window, the one that is of one episode the longest.

    The first `context` pictures on the right are what the world makes of what it has seen; those that follow
    it imagines along the data's actions, in a brighter frame.
    """
    static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]
    world = eqx.combine(eqx.filter(params, is_array), static)
    batch = stack_frames(next(iter(windows.batches())))
    lengths = np.where(batch.is_last.any(axis=1), batch.is_last.argmax(axis=1), batch.is_last.shape[1])
    row = int(np.argmax(lengths))
    batch = jax.tree.map(lambda x: jnp.asarray(x)[row : row + 1], batch)
    keys = jax.random.split(jax.random.key(seed), 1)
    seen = min(context, int(lengths[row]))
    states = filter_window(world, jax.tree.map(lambda x: x[:, :seen], batch), keys)
    state, step = states_at(states, jnp.zeros(1, jnp.int32)), eqx.filter_jit(world.imagine)
    reconstruct, real = eqx.filter_jit(world.reconstruct), np.asarray(batch.observation[0])
    top = float(real.max()) or 1.0
    for time in range(min(int(lengths[row]) + 1, len(real))):
        if time < seen:
            state = states_at(states, jnp.full(1, time))
        else:
            keys = jax.vmap(lambda key, t=time: jax.random.fold_in(key, t))(keys)
            state = step(state, batch.action[:, time - 1], keys).state
        pair = [picture(x / top) for x in (real[time], np.asarray(reconstruct(state))[0])]
        yield _beside(*pair, imagined=time >= seen)


def picture(observation: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "height width 3"]:
    """Draws an observation of numbers from 0 to 1: planes in colours, a stack by its newest frame, a vector
    as a row."""
    image = np.clip(np.nan_to_num(np.atleast_2d(np.asarray(observation, np.float64))), 0, 1)
    if image.ndim == 3 and image.shape[0] >= 32:  # a stack of screens
        image = image[..., -1]
    if image.ndim == 2:
        image = image[..., None]
    hues = [colorsys.hsv_to_rgb(i / image.shape[-1], 0.6, 1.0) for i in range(image.shape[-1])]
    colours = np.array(hues if image.shape[-1] > 1 else [(1.0, 1.0, 1.0)])
    screen = np.zeros((*image.shape[:2], 3))
    for plane, colour in zip(np.moveaxis(image, -1, 0), colours, strict=True):  # later planes on top
        screen = screen * (1 - plane[..., None]) + plane[..., None] * colour
    times = max(1, -(-_SIDE // max(screen.shape[:2])))
    return (255 * screen).round().astype(np.uint8).repeat(times, axis=0).repeat(times, axis=1)


def _beside(left: Any, right: Any, *, imagined: bool) -> UInt8[np.ndarray, "height width 3"]:
    frame = np.full((left.shape[0] + 2 * _GAP, 2 * left.shape[1] + 3 * _GAP, 3), 40, np.uint8)
    if imagined:
        frame[:, left.shape[1] + _GAP :] = 160
    frame[_GAP:-_GAP, _GAP : _GAP + left.shape[1]] = left
    frame[_GAP:-_GAP, -_GAP - right.shape[1] : -_GAP] = right
    return frame
