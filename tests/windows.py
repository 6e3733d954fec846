"""Random experience with every kind of ending, and small agents to train on it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import rosmo.worlds  # noqa: F401 (the registry of agents has its agents then)
from rosmo import Trajectory, latent_model

OBSERVATION = (4,)
ACTIONS = 3
ON_WORLD = ("combo", "mopo", "morel")  # agents that act in a world: tests/worlds/test_agents.py

small_model = functools.partial(
    latent_model,
    observation_shape=OBSERVATION,
    num_actions=ACTIONS,
    representation=(8, 6),
    dynamics=(12,),
    prediction=(8,),
    discount=0.9,
)


def random_steps(rng: np.random.Generator, lengths, terminal) -> Trajectory:
    """Episodes of `lengths` steps, the closing one included, terminated or truncated, in a row.

    The closing steps' actions and discounts are anything; data with rewards there is warned of.
    """
    count = sum(lengths)
    ends = np.cumsum(lengths) - 1
    is_last = np.zeros(count, bool)
    is_last[ends] = True
    is_terminal = np.zeros(count, bool)
    is_terminal[ends] = terminal
    discount = rng.choice([0.5, 1.0], count).astype(np.float32)
    discount[ends - 1] = np.where(terminal, 0.0, discount[ends - 1])
    return Trajectory(
        observation=rng.normal(size=(count, *OBSERVATION)).astype(np.float32),
        action=rng.integers(0, ACTIONS, count).astype(np.int32),
        reward=np.where(is_last, 0, rng.normal(size=count)).astype(np.float32),
        discount=discount,
        is_first=np.roll(is_last, 1),
        is_last=is_last,
        is_terminal=is_terminal,
    )


def every_ending(rng: np.random.Generator, length: int) -> Trajectory:
    """Windows `[B, length]` that end at every offset, by termination and by truncation, and not at all."""
    rows = []
    for end in range(1, length + 1):
        for terminal in (True, False):
            later = [end + 1, 2, 3, length + 2]  # what follows the first end has ends of its own
            steps = random_steps(rng, later, np.array([terminal, *rng.integers(0, 2, 3).astype(bool)]))
            never_read = np.where(steps.is_last, rng.normal(size=len(steps.reward)), steps.reward)
            steps = dataclasses.replace(steps, reward=never_read.astype(np.float32))
            rows.append(jax.tree.map(lambda x: x[:length], steps))
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *rows)


def talkative(params, key):
    """Moves every parameter: heads start at zero and would hide mistakes."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    moved = [x + 0.3 * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return tree.unflatten(moved)
