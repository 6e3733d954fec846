"""The three functions of a latent model, and the initialisation they share.

Networks see one example, without a batch axis: `LatentModel` maps them over batches, and over the actions of
a look-ahead with the state held fixed. So an action should enter a dynamics by a term of its own: what
depends on the state alone is then computed once for all actions.
"""

import abc
from collections.abc import Callable, Sequence
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

_TRUNCATED_STDDEV = 0.87962566103423978  # of a standard normal cut off at two deviations


class AbstractRepresentation(eqx.Module):
    """h: encodes an observation as a latent state."""

    @abc.abstractmethod
    def __call__(self, observation: Shaped[Array, "..."]) -> State: ...


class AbstractDynamics(eqx.Module):
    """g: predicts the next latent state and the reward that an action leads to."""

    @abc.abstractmethod
    def __call__(
        self, state: State, action: Integer[Array, ""]
    ) -> tuple[State, Float[Array, "*members reward_bins"]]: ...


class AbstractPrediction(eqx.Module):
    """f: predicts the policy and the value of a latent state."""

    @abc.abstractmethod
    def __call__(
        self, state: State
    ) -> tuple[Float[Array, "actions"], Float[Array, "*members value_bins"]]: ...


class Networks(NamedTuple):
    """What a registered network builds."""

    representation: AbstractRepresentation
    dynamics: AbstractDynamics
    prediction: AbstractPrediction


def lecun_normal(key: Key, shape: Sequence[int], fan_in: int) -> Float[Array, "..."]:
    """Draws weights from a truncated normal of variance 1/fan-in."""
    return jax.nn.initializers.truncated_normal(fan_in**-0.5 / _TRUNCATED_STDDEV)(key, shape, jnp.float32)


class Linear(eqx.Module):
    """A fully connected layer.

    The weight is stored `[in, out]` and multiplied from the right: mapped over a batch, the product comes out
    in the order that the next layer reads. `eqx.nn.Linear` multiplies from the left, and XLA then transposes
    every activation (a look-ahead on a CPU takes 1.8× as long).
    """

    weight: Float[Array, "in_size out_size"]
    bias: Float[Array, "out_size"]

    def __init__(self, key: Key, in_size: int, out_size: int):
        self.weight = lecun_normal(key, (in_size, out_size), in_size)
        self.bias = jnp.zeros(out_size, jnp.float32)

    def __call__(self, x: Float[Array, "in_size"]) -> Float[Array, "out_size"]:
        return x @ self.weight + self.bias


class Output(eqx.Module):
    """A layer of logits that starts at 0: a uniform policy, rewards and values of 0.

    Its products are summed up, and returned, in float32 whatever the network computes in: an advantage is the
    difference of two values that logits in bfloat16 could not tell apart.
    """

    weight: Float[Array, "in_size out_size"]
    bias: Float[Array, "out_size"]

    def __init__(self, in_size: int, out_size: int):
        self.weight = jnp.zeros((in_size, out_size), jnp.float32)
        self.bias = jnp.zeros(out_size, jnp.float32)

    def __call__(self, x: Float[Array, "in_size"]) -> Float[Array, "out_size"]:
        logits = jnp.matmul(x, self.weight, preferred_element_type=jnp.float32)
        return logits + self.bias.astype(jnp.float32)


LayerBuilder = Callable[[Key, int, int], Callable[[Array], Array]]  # of a layer of logits, by its sizes


def logits_layer(
    key: Key, in_size: int, out_size: int, ensemble: LayerBuilder | None = None
) -> Callable[[Array], Array]:
    """Returns a layer of logits, or that of an ensemble. The key may have been used: it is folded."""
    if ensemble is None:
        return Output(in_size, out_size)
    return ensemble(jax.random.fold_in(key, out_size), in_size, out_size)


class Head(eqx.Module):
    """One hidden layer and a layer of logits."""

    hidden: Linear
    output: Callable[[Array], Array]

    def __init__(
        self, key: Key, in_size: int, hidden_size: int, out_size: int, ensemble: LayerBuilder | None = None
    ):
        self.hidden = Linear(key, in_size, hidden_size)
        self.output = logits_layer(key, hidden_size, out_size, ensemble)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "*members out"]:
        return self.output(jax.nn.relu(self.hidden(features)))
