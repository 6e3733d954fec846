"""The regularized policy that a search approximates (Grill et al., 2020), solved exactly."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.operators.one_step import one_step
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root, refuse_numbers

_HALVINGS = 40  # of an interval of log t of at most 44: 4e-11


@base.registry.register("regularized")
def regularized(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    source: Callable[..., base.Improvement] = one_step,
    num_simulations: int = 20,
    c: float = 1.25,
    temperature: Number = 1.0,
    **search_settings,
) -> base.Improvement:
    """Improves the prior by max_p Σ p·q − λ KL(π‖p): p = λ π/(α − q), with α such that p sums to one.

    λ = β·c·√N/(|A| + N) with |A| legal actions: after N simulations MuZero's search is about there, and here
    it is exact. Since KL(π‖p) holds π, every action of the prior keeps a share, π/(1 + (max q − q)/λ) and
    more: in q it falls as 1/q, where `one_step` falls as exp q. An action whose prior is below 1e-19 counts
    as one that has none. The improved value is Σ p·q; q are the model's own, not rescaled.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: passed on to `source`, and samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        source: the operator whose Q-values are taken: `one_step`'s look-ahead over all actions, or a search
            such as `mcts`, where actions that it never tried have the root's value.
        num_simulations: N of λ, and of the search.
        c: c of λ.
        temperature: β; at 0 the best actions have all the weight. May be traced.
        **search_settings: what else the source takes; all that `mctx.muzero_policy` does.
    """
    if num_simulations < 1:
        raise ValueError(f"regularized needs num_simulations of at least 1, got {num_simulations}")
    refuse_numbers(above=True, c=c)
    base.refuse_bad_numbers(temperature=temperature)
    key_source, key_action = jax.random.split(rng_key)
    found = source(
        params,
        key_source,
        root,
        recurrent_fn,
        invalid_actions=invalid_actions,
        num_simulations=num_simulations,
        **search_settings,
    )
    qvalues = base.completed(found.qvalues, root)
    legal = base.no_illegal(jnp.ones_like(qvalues), invalid_actions)
    actions = jnp.maximum(jnp.sum(legal, axis=-1, keepdims=True), 1)
    least = float(jnp.finfo(qvalues.dtype).tiny) ** 0.5
    strength = base.as_divisor(temperature, qvalues.dtype, least=least) * c * math.sqrt(num_simulations)
    strength = strength / (actions + float(num_simulations))
    log_prior = base.log_prior(root.prior_logits, invalid_actions)
    weights = base.no_illegal(_regularized_policy(log_prior, qvalues, strength, least), invalid_actions)
    known = {name: getattr(found, name) for name in ("qvalues", "search_tree", "complete", "deterministic")}
    return base.improvement_to(weights, key_action, root, qvalues, invalid_actions, **known)


def _regularized_policy(
    log_prior: Float[Array, "batch actions"],
    qvalues: Float[Array, "batch actions"],
    strength: Float[Array, "batch 1"],
    least: float,
) -> Float[Array, "batch actions"]:
    """Returns π/(t + d) that sums to one, where d = (max q − q)/λ and t = (α − max q)/λ.

    t lies between max(π − d) and 1, as no weight exceeds 1 and all weights at t = 1 are at most π. It is
    halved in log t, for t may be as small as the prior of the best action.
    """
    floor = math.log(least)
    known = log_prior > floor  # squares of 1/t stay finite
    known = known | ~jnp.any(known, axis=-1, keepdims=True)  # where nothing is legal
    log_prior = jnp.maximum(log_prior, floor)
    top = jnp.max(jnp.where(known, base.bounded(qvalues), -jnp.inf), axis=-1, keepdims=True)
    compared = jnp.where(known, base.bounded(qvalues), 0)
    gap = base.at_temperature(jnp.where(known, top - compared, 0), strength, compared)
    total = functools.partial(jnp.sum, axis=-1, keepdims=True)

    def weights_at(t: Array, log_prior: Array, gap: Array) -> Float[Array, "batch actions"]:
        return jnp.where(known, jnp.exp(log_prior - jnp.log(t + gap)), 0)

    fixed = jax.lax.stop_gradient((log_prior, gap))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        too_small = total(weights_at(jnp.exp(middle), *fixed)) > 1
        return jnp.where(too_small, middle, ends[0]), jnp.where(too_small, ends[1], middle)

    lowest = jnp.max(jnp.where(known, jnp.exp(fixed[0]) - fixed[1], 0), axis=-1, keepdims=True)
    lowest = jnp.log(jnp.maximum(lowest, least))
    t = jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halve, (lowest, jnp.zeros_like(lowest)))[0])
    # One step of Newton's brings the derivative of t with it.
    slope = total(weights_at(t, *fixed) / (t + fixed[1]))
    t = t + (total(weights_at(t, log_prior, gap)) - 1) / slope
    weights = weights_at(t, log_prior, gap)
    return weights / total(weights)
