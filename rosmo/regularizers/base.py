"""What a regularizer is given, and the advantage-weighted cloning that several of them share.

A regularizer is a pure function `regularizer(positions, **settings) -> loss per position`. The agent masks
the positions without a real action, averages, and applies the weight it was given for it.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer

from rosmo.registry import Registry

registry = Registry("regularizer", requires=("positions",))


class Positions(eqx.Module):
    """What the loss knows of each position of a window; at most the first two carry gradients."""

    policy_logits: Float[Array, "*batch actions"]  # online network
    value: Float[Array, "*batch"]  # online network
    prior_logits: Float[Array, "*batch actions"]  # the policy that is improved: that of the target network
    prior_value: Float[Array, "*batch"]  # its value
    action: Integer[Array, "*batch"]  # data set
    advantage: Float[Array, "*batch"]  # of that action: by the target model's look-ahead, or by a critic
    mask: Bool[Array, "*batch"]  # where the action is real


@runtime_checkable
class Regularizer(Protocol):
    """The call that every regularizer answers, its settings bound."""

    def __call__(self, positions: Positions) -> Float[Array, "*batch"]:
        """Returns the loss of every position."""
        ...


def log_probability(positions: Positions) -> Float[Array, "*batch"]:
    """Returns log π(a|s) of the data set's actions under the online policy."""
    log_policy = jax.nn.log_softmax(positions.policy_logits)
    return jnp.take_along_axis(log_policy, positions.action[..., None], axis=-1)[..., 0]
