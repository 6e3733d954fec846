"""The improved policy of MPO (Abdolmaleki et al., 2018), at the temperature that its dual finds."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.operators.one_step import one_step
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root, refuse_numbers

_HALVINGS = 40
_SHARPEST = 1e-6  # of the range of q: no float tells actions apart that are closer


@base.registry.register("mpo")
def mpo(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    epsilon: float = 0.1,
    per: Literal["state", "batch"] = "state",
    source: Callable[..., base.Improvement] = one_step,
    **search_settings,
) -> base.Improvement:
    """Improves the prior as far as KL(p‖π) = ε allows: p ∝ π·exp(q/η), η = argmin ηε + η log Σ π·exp(q/η).

    Where even the best actions alone are closer to the prior than ε, they have all the weight. The improved
    value is Σ p·q. η is a constant in derivatives, as in MPO.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: passed on to `source`, and samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        epsilon: ε, the KL divergence that is allowed.
        per: whether each "state" has an η of its own, or all of a "batch" share one and KL is ε in their
            mean, as in MPO: rows then depend on each other, and an agent's batch is one of its windows.
        source: the operator whose Q-values are taken: `one_step`'s look-ahead over all actions, or a search
            such as `mcts`, where actions that it never tried have the root's value.
        **search_settings: what else the source takes, all that `mctx.muzero_policy` does; the `temperature`
            is ignored, as η takes its place.
    """
    refuse_numbers(above=True, epsilon=epsilon)
    if per not in ("state", "batch"):
        raise ValueError(f"per must be 'state' or 'batch', got {per!r}")
    key_source, key_action = jax.random.split(rng_key)
    found = source(params, key_source, root, recurrent_fn, invalid_actions=invalid_actions, **search_settings)
    qvalues = base.completed(found.qvalues, root)
    eta = _dual_temperature(root.prior_logits, qvalues, invalid_actions, epsilon, shared=per == "batch")
    logits = base.tilt(root.prior_logits, qvalues, invalid_actions, eta)
    weights = base.masked_softmax(logits, invalid_actions)
    known = {name: getattr(found, name) for name in ("qvalues", "search_tree", "complete", "deterministic")}
    return base.improvement_to(weights, key_action, root, qvalues, invalid_actions, **known)


def _dual_temperature(
    prior_logits: Float[Array, "batch actions"],
    qvalues: Float[Array, "batch actions"],
    invalid_actions: LegalityMask | None,
    epsilon: float,
    *,
    shared: bool,
) -> Float[Array, "batch 1"]:
    """Returns η where the dual's slope ε − KL(p‖π) is 0, or the smallest one where KL never reaches ε.

    KL falls with η, and is at most (range of q)²/8η²: the root lies below range/√(8ε).
    """
    prior_logits, qvalues = jax.lax.stop_gradient((prior_logits, base.bounded(qvalues)))
    log_prior = base.log_prior(prior_logits, invalid_actions)
    legal = base.no_illegal(jnp.ones_like(qvalues), invalid_actions) > 0
    range_of_q = jnp.max(jnp.where(legal, qvalues, -jnp.inf), axis=-1) - jnp.min(
        jnp.where(legal, qvalues, jnp.inf), axis=-1
    )
    some = jnp.any(legal, axis=-1)
    range_of_q = jnp.where(some, jnp.maximum(range_of_q, float(jnp.finfo(qvalues.dtype).tiny) ** 0.25), 1)

    count = jnp.maximum(jnp.sum(some.astype(qvalues.dtype)), 1)

    def divergence(log_eta: Float[Array, "batch"]) -> Float[Array, "batch"]:
        eta = jnp.exp(log_eta)[:, None]
        log_weights = jax.nn.log_softmax(base.tilt(prior_logits, qvalues, invalid_actions, eta))
        weights = jnp.where(legal, jnp.exp(log_weights), 0)
        kl = jnp.sum(jnp.where(weights > 0, weights * (log_weights - log_prior), 0), axis=-1)
        return jnp.broadcast_to(jnp.sum(kl) / count, kl.shape) if shared else kl

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        too_far = divergence(middle) > epsilon
        return jnp.where(too_far, middle, ends[0]), jnp.where(too_far, ends[1], middle)

    top = jnp.log(range_of_q)
    if shared:
        top = jnp.broadcast_to(jnp.max(jnp.where(some, top, -jnp.inf), initial=-jnp.inf), top.shape)
    highest = -0.5 * math.log(8 * epsilon)
    ends = (top + min(math.log(_SHARPEST), highest), top + highest)
    return jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halve, ends)[1])[:, None]
