"""Where an episode ends inside a window, and the value targets that respect it."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from rosmo.types import Trajectory


class Boundary(NamedTuple):
    """The steps of a window seen from its first step.

    With e the first `is_last` step: `real` (t < e) has an action and a reward; `observed` (t ≤ e) has an
    observation of this episode; `terminated` (t ≥ e, where e is terminal) is an absorbing state of value 0
    without rewards. After a truncation none of them holds: nothing is known there.
    """

    real: Bool[Array, "batch time"]
    observed: Bool[Array, "batch time"]
    terminated: Bool[Array, "batch time"]


def find_boundary(batch: Trajectory) -> Boundary:
    """Finds the first episode end of each window."""
    ended = jnp.cumsum(batch.is_last, axis=1) > 0
    observed = ~jnp.concatenate([jnp.zeros_like(ended[:, :1]), ended[:, :-1]], axis=1)
    terminated = jnp.cumsum(observed & batch.is_last & batch.is_terminal, axis=1) > 0
    return Boundary(real=~ended, observed=observed, terminated=terminated)


def n_step_returns(
    batch: Trajectory,
    values: Float[Array, "batch time"],
    boundary: Boundary,
    *,
    discount: float,
    steps: int,
) -> Float[Array, "batch positions"]:
    """Returns z_t = Σ_{i<n} γ^i r_{t+i} + γ^n v_{t+n} for the first T − n steps of each window (Eq. 8).

    A termination ends the sum, and after a truncation at e the sum ends with the value of its last
    observation, γ^{e−t} v_e.
    """
    positions = values.shape[1] - steps
    values = jnp.where(boundary.terminated, 0, values)
    rewards = jnp.where(boundary.real, batch.reward, 0)
    discounts = discount * jnp.where(boundary.real, batch.discount, 0)
    returns = values[:, steps:]
    for offset in reversed(range(steps)):
        now = slice(offset, offset + positions)
        onward = rewards[:, now] + discounts[:, now] * returns
        returns = jnp.where(boundary.real[:, now], onward, values[:, now])
    return returns
