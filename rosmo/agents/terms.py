"""The terms of Eq. 1 position by position, each 0 where there is nothing to learn."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from rosmo.agents.base import entropy, mean_of_windows
from rosmo.agents.roots import Rooted
from rosmo.agents.targets import Boundary
from rosmo.codec import Codec
from rosmo.model import LatentModel, Unrolled
from rosmo.operators.base import mask_logits
from rosmo.regularizers import Positions
from rosmo.types import Metrics


def policy_loss(
    policy_logits: Float[Array, "batch positions actions"],
    policy: Float[Array, "batch positions actions"],
    boundary: Boundary,
) -> Float[Array, "batch positions"]:
    """ℓᵖ = −pᵀ log π wherever a decision was to be made (Eq. 5)."""
    decided = (boundary.observed & ~boundary.terminated)[:, : policy.shape[1]]
    loss = -jnp.sum(policy * jax.nn.log_softmax(policy_logits), axis=-1)
    return jnp.where(decided, loss, 0)


def value_loss(
    model: LatentModel, unrolled: Unrolled, returns: Float[Array, "batch positions"], boundary: Boundary
) -> Float[Array, "batch positions"]:
    """ℓᵛ = −φ(h(z))ᵀ log v, also in absorbing states, whose value is 0."""
    loss = _cross_entropy(model.value_codec, unrolled.value_logits, model.value_codec.encode(returns))
    return jnp.where((boundary.real | boundary.terminated)[:, : returns.shape[1]], loss, 0)


def reward_loss(
    model: LatentModel, unrolled: Unrolled, reward: Float[Array, "batch time"], boundary: Boundary
) -> Float[Array, "batch steps"]:
    """ℓʳ = −φ(h(r))ᵀ log r of each imagined step, also out of absorbing states, whose reward is 0."""
    steps = slice(0, unrolled.reward_logits.shape[1])
    real = boundary.real[:, steps]
    target = model.reward_codec.encode(jnp.where(real, reward[:, steps], 0))
    loss = _cross_entropy(model.reward_codec, unrolled.reward_logits, target)
    return jnp.where(real | boundary.terminated[:, steps], loss, 0)


def _cross_entropy(
    codec: Codec,
    logits: Float[Array, "batch positions *members bins"],
    target: Float[Array, "batch positions bins"],
) -> Float[Array, "batch positions"]:
    """The cross entropy of logits, of an ensemble its mean over the members: all have the same targets."""
    if logits.ndim == target.ndim:
        return optax.softmax_cross_entropy(logits, target)
    return jnp.mean(codec.log_normaliser(logits), axis=-1) - jnp.sum(target * jnp.mean(logits, -2), axis=-1)


def positions_of(model: LatentModel, unrolled: Unrolled, rooted: Rooted) -> Positions:
    """What a regularizer is given: the root of each window, and what was imagined from it."""
    here = slice(0, unrolled.policy_logits.shape[1])
    invalid = rooted.batch.invalid_actions
    return Positions(
        policy_logits=mask_logits(unrolled.policy_logits, None if invalid is None else invalid[:, here]),
        value=model.mean_value(unrolled.value_logits),
        prior_logits=rooted.targets.prior_logits,
        prior_value=rooted.targets.prior_value,
        action=rooted.batch.action[:, here],
        advantage=rooted.targets.advantage,
        mask=rooted.boundary.real[:, here],
    )


def mean_of_terms(term: Float[Array, "batch positions"], rooted: Rooted, positions: int) -> Float[Array, ""]:
    """Averages a term over the positions of all windows.

    Every position counts the same, masked or not, so that no row changes the weight of another.
    """
    weighted = term if rooted.share is None else rooted.share[:, None] * term
    return jnp.sum(weighted) / (len(term) * positions)


def diagnostics(
    positions: Positions, returns: Float[Array, "batch positions"], share: Float[Array, "batch"] | None
) -> Metrics:
    """What is logged beside the loss, averaged over the positions with an action."""
    mean = functools.partial(mean_of_windows, mask=positions.mask, share=share)
    return {
        "policy_entropy": mean(entropy(positions.policy_logits)),
        "value": mean(positions.value),
        "value_target": mean(returns),
        "advantage_positive": mean((positions.advantage > 0).astype(returns.dtype)),
    }
