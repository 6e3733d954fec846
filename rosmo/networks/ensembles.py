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
    Head,
    Networks,
    State,
    lecun_normal,
)
from rosmo.networks.frozen import Frozen
from rosmo.types import Key, map_arrays


class HeadWithPrior(eqx.Module):
    """A head with a randomised prior (Osband et al., 2018): what is trained, plus a fixed random head.

    f(x) + β·p(x): where there is data, f learns to make up for p; elsewhere p stays, another one for each
    member. No gradient reaches p or goes through it, so that x is not shaped by what is random.
    """

    head: Head
    prior: Frozen
    scale: float = eqx.field(static=True)

    def __init__(self, key: Key, in_size: int, hidden_size: int, out_size: int, scale: float):
        key_head, key_prior, key_output = jax.random.split(key, 3)
        self.head = Head(key_head, in_size, hidden_size, out_size)
        prior = Head(key_prior, in_size, hidden_size, out_size)
        weight = lecun_normal(key_output, (hidden_size, out_size), hidden_size)
        self.prior = Frozen(eqx.tree_at(lambda head: head.output.weight, prior, weight))
        self.scale = scale

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "out"]:
        prior = map_arrays(lambda x: x.astype(features.dtype), self.prior.thaw())
        return self.head(features) + self.scale * prior(jax.lax.stop_gradient(features))


class Members(eqx.Module):
    """M heads with priors on the same features, computed together."""

    stack: HeadWithPrior  # every array with M in front

    def __init__(
        self, key: Key, in_size: int, hidden_size: int, out_size: int, *, ensemble: int, prior_scale: float
    ):
        keys = jax.random.split(key, ensemble)
        build = eqx.filter_vmap(lambda key: HeadWithPrior(key, in_size, hidden_size, out_size, prior_scale))
        self.stack = build(keys)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "members out"]:
        return eqx.filter_vmap(lambda head, x: head(x), in_axes=(eqx.if_array(0), None))(self.stack, features)


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
        return eqx.filter_vmap(lambda member, state: member(state, action))(self.stack, state)


class StackedPrediction(AbstractPrediction):
    """Members that each predict the value of a state of their own, and a policy together."""

    stack: AbstractPrediction  # every array with M in front

    def __call__(self, state: State) -> tuple[Float[Array, "actions"], Float[Array, "members value_bins"]]:
        """Predicts the policy by the mean of the members' logits, and each one's value logits."""
        policy_logits, value_logits = eqx.filter_vmap(lambda member, state: member(state))(self.stack, state)
        return jnp.mean(policy_logits, axis=0), value_logits


def stacked(build: Callable[[Key], Networks], key: Key, members: int) -> Networks:
    """Returns an ensemble of dynamics and predictions of any network, on one encoder."""
    representations, dynamics, prediction = eqx.filter_vmap(build)(jax.random.split(key, members))
    first = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, representations)
    return Networks(
        SpreadRepresentation(first, members), StackedDynamics(dynamics), StackedPrediction(prediction)
    )
