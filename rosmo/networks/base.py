"""The three functions of a latent model, and the initialisation they share.

Networks see one example, without a batch axis: `LatentModel` maps them over batches, and over the actions of
a look-ahead with the state held fixed. So an action should enter a dynamics by a term of its own: what
depends on the state alone is then computed once for all actions.
"""

import abc
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, PyTree, Shaped

from rosmo.registry import Registry
from rosmo.types import Key

registry = Registry(
    "network", requires=("key", "observation_shape", "num_actions", "num_value_bins", "num_reward_bins")
)

State = PyTree[Array]


class AbstractRepresentation(eqx.Module):
    """h: encodes an observation as a latent state."""

    @abc.abstractmethod
    def __call__(self, observation: Shaped[Array, "..."]) -> State: ...


class AbstractDynamics(eqx.Module):
    """g: predicts the next latent state and the reward that an action leads to."""

    @abc.abstractmethod
    def __call__(self, state: State, action: Integer[Array, ""]) -> tuple[State, Float[Array, "reward_bins"]]: ...


class AbstractPrediction(eqx.Module):
    """f: predicts the policy and the value of a latent state."""

    @abc.abstractmethod
    def __call__(self, state: State) -> tuple[Float[Array, "actions"], Float[Array, "value_bins"]]: ...


class Networks(NamedTuple):
    """What a registered network builds."""

    representation: AbstractRepresentation
    dynamics: AbstractDynamics
    prediction: AbstractPrediction


def lecun_normal(layer, key: Key):
    """Redraws a layer's weight as a truncated normal of variance 1/fan-in and clears its bias."""
    fan_in = math.prod(layer.weight.shape[1:])
    stddev = fan_in**-0.5 / 0.87962566103423978  # the truncation at two deviations shrinks the variance
    weight = stddev * jax.random.truncated_normal(key, -2.0, 2.0, layer.weight.shape, layer.weight.dtype)
    layer = eqx.tree_at(lambda m: m.weight, layer, weight)
    return layer if layer.bias is None else eqx.tree_at(lambda m: m.bias, layer, jnp.zeros_like(layer.bias))


def linear(key: Key, in_size: int, out_size: int, *, use_bias: bool = True) -> eqx.nn.Linear:
    """A fully connected layer."""
    return lecun_normal(eqx.nn.Linear(in_size, out_size, use_bias=use_bias, key=key), key)


def zero_linear(in_size: int, out_size: int) -> eqx.nn.Linear:
    """An output layer that starts at 0: a uniform policy, and rewards and values of 0."""
    layer = eqx.nn.Linear(in_size, out_size, key=jax.random.key(0))
    return jax.tree.map(jnp.zeros_like, layer)


class Head(eqx.Module):
    """One hidden layer and a zero-initialised output layer."""

    hidden: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self, key: Key, in_size: int, hidden_size: int, out_size: int):
        self.hidden = linear(key, in_size, hidden_size)
        self.output = zero_linear(hidden_size, out_size)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "out"]:
        return self.output(jax.nn.relu(self.hidden(features)))
