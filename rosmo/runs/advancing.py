"""Taking a number of updates on data that is kept on the device, in host memory or on disk."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rosmo.agents import Trained
from rosmo.data import DataSet, FrameStore, HostSampler, StoreSampler, window_sampler
from rosmo.learner import Learner, TrainState
from rosmo.runs.training import Training
from rosmo.types import Keys, Metrics

Advance = Callable[[TrainState, int], tuple[TrainState, Metrics]]


def advancer(training: Training, agent: Trained, learner: Learner, steps: DataSet) -> Advance:
    """Returns what takes a number of updates, on data kept on the device, in host memory or on disk."""
    settings = {"window": agent.window, "num_actions": training.spaces()[1]}
    if isinstance(steps, FrameStore):
        sampler = StoreSampler(steps, **settings)
    elif sum(x.nbytes for x in jax.tree.leaves(steps)) <= training.device_bytes:
        source = learner.place(window_sampler(steps, **settings))
        return lambda state, count: learner.update_many(state, source, count)
    else:
        sampler = HostSampler(steps, **settings)

    @jax.jit
    def draw_keys(data: Array, step: int | Array) -> Keys:
        return learner.draw_keys(jax.random.wrap_key_data(data), step)[learner.own_windows]

    def advance(state: TrainState, count: int) -> tuple[TrainState, Metrics]:
        rows = []
        data = jax.device_get(jax.random.key_data(state.key))  # on the host, where batches are drawn
        for batch in sampler.batches(functools.partial(draw_keys, data), int(state.step), count):
            state, metrics = learner.update(state, batch)
            rows.append(metrics)
        return state, jax.tree.map(lambda *x: jnp.stack(x), *rows)

    return advance
