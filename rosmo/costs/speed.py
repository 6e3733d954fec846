"""How fast updates are on this machine, beside its own large matrix product."""

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rosmo.learner import Learner, TrainState
from rosmo.learner.kept_targets import Source
from rosmo.types import Trajectory

_PRODUCT_SIZE = 4096
_EPISODE = 10


def product_rate() -> float:
    """Returns the FLOP per second of a 4,096³ float32 product on all cores, the best of three."""
    x = jnp.ones((_PRODUCT_SIZE, _PRODUCT_SIZE))
    product = jax.jit(jnp.matmul)
    product(x, x).block_until_ready()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        product(x, x).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * _PRODUCT_SIZE**3 / min(times)


def made_up_steps(count: int, observation_shape: Sequence[int], num_actions: int) -> Trajectory:
    """Returns episodes of ten steps: what is learned from them does not matter, what is computed does.

    Args:
        count: number of steps.
        observation_shape: of one observation; those of three axes are images of bytes.
        num_actions: number of discrete actions.
    """
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *observation_shape), np.uint8)
    place = np.arange(count) % _EPISODE
    closing = place == _EPISODE - 1
    return Trajectory(
        observation=images if len(observation_shape) == 3 else (images > 240).astype(np.float32),
        action=rng.integers(0, num_actions, count).astype(np.int32),
        reward=np.where(closing, np.float32(0), rng.choice(np.array([-1, 0, 1], np.float32), count)),
        discount=(place < _EPISODE - 2).astype(np.float32),
        is_first=place == 0,
        is_last=closing,
        is_terminal=closing,
    )


def update_rate(
    learner: Learner, state: TrainState, source: Source, updates: int
) -> tuple[TrainState, float]:
    """Takes updates in one call, and returns the next state and the updates per second."""
    start = time.perf_counter()
    state, metrics = learner.update_many(state, source, updates)
    jax.block_until_ready((state, metrics))
    return state, updates / (time.perf_counter() - start)
