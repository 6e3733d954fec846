"""Ensembles: members that are trained on the same, and differ where nothing was to be learned."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Shaped

from rosmo.networks.base import (
    AbstractDynamics,
    AbstractPrediction,
    AbstractRepresentation,
    Linear,
    Networks,
    Output,
    State,
    lecun_normal,
)
from rosmo.networks.frozen import Frozen
from rosmo.types import Key, map_arrays


class Members(eqx.Module):
    """A layer of logits for each of M members, with randomised priors (Osband et al., 2018).

    W_m x + b_m + β·p_m(x/|x|): where there is data, what is trained learns to make up for p_m, a fixed random
    function of each member's own; elsewhere p_m stays. No gradient reaches p_m or goes through it, so that x
    is not shaped by what is random. All members are one product.
    """

    output: Output
    prior: Frozen
    members: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(self, key: Key, in_size: int, out_size: int, *, members: int, scale: float):
        key_hidden, key_output = jax.random.split(key)
        self.output = Output(in_size, members * out_size)
        hidden = max(8, in_size // 4)  # few features of x: what is random need not be rich
        weight = lecun_normal(key_output, (hidden, members * out_size), hidden)
        self.prior = Frozen((Linear(key_hidden, in_size, hidden), weight))
        self.members, self.scale = members, scale

    def __call__(self, x: Float[Array, "in_size"]) -> Float[Array, "members out_size"]:
        layer, weight = map_arrays(lambda a: a.astype(x.dtype), self.prior.thaw())
        # Of the direction of x alone: a state that grows as it is imagined on would drown what is learned.
        still = jax.lax.stop_gradient(x)
        size = jnp.sqrt(jnp.mean(jnp.square(still)) + 1e-6).astype(x.dtype)
        joined = jnp.concatenate([x, jax.nn.relu(layer(still / size))])
        weights = jnp.concatenate([self.output.weight, self.scale * weight])
        output = eqx.tree_at(lambda output: output.weight, self.output, weights)
        return output(joined).reshape(self.members, -1)


class SpreadRepresentation(AbstractRepresentation):
    """One encoder, whose state every member starts from with a copy of its own, `[M, ...]`."""

    representation: AbstractRepresentation
    members: int = eqx.field(static=True)

    def __call__(self, observation: Shaped[Array, "..."]) -> State:
        """Encodes one observation."""
        state = self.representation(observation)
        return jax.tree.map(lambda x: jnp.broadcast_to(x[None], (self.members, *x.shape)), state)


class StackedDynamics(AbstractDynamics):
    """Members that each lead from a state of their own to the next."""

    stack: AbstractDynamics  # every array with M in front

    def __call__(
        self, state: State, action: Integer[Array, ""]
    ) -> tuple[State, Float[Array, "members reward_bins"]]:
        """Takes one step with each."""
        state, reward_logits = eqx.filter_vmap(lambda member, state: member(state, action))(self.stack, state)
        return state, reward_logits[:, 0]


class StackedPrediction(AbstractPrediction):
    """Members that each predict the value of a state of their own, and a policy together."""

    stack: AbstractPrediction  # every array with M in front

    def __call__(self, state: State) -> tuple[Float[Array, "actions"], Float[Array, "members value_bins"]]:
        """Predicts the policy by the mean of the members' logits, and each one's value logits."""
        policy_logits, value_logits = eqx.filter_vmap(lambda member, state: member(state))(self.stack, state)
        return jnp.mean(policy_logits, axis=0), value_logits[:, 0]


def stacked(build: Callable[[Key], Networks], key: Key, members: int) -> Networks:
    """Returns an ensemble of dynamics and predictions of any network, on one encoder."""
    representations, dynamics, prediction = eqx.filter_vmap(build)(jax.random.split(key, members))
    first = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, representations)
    return Networks(
        SpreadRepresentation(first, members), StackedDynamics(dynamics), StackedPrediction(prediction)
    )
