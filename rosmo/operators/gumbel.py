"""Gumbel MuZero (Danihelka et al., 2022), through mctx: few actions tried, those not tried completed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root


@base.registry.register("gumbel")
@base.without_search
def gumbel(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_simulations: int = 20,
    max_depth: int | None = None,
    loop_fn: Callable[..., Any] | None = None,
    qtransform: Callable[..., Any] | None = None,
    max_num_considered_actions: int = 16,
    gumbel_scale: Number = 1.0,
) -> base.Improvement:
    """Improves the prior by a search that tries actions sampled without replacement: p ∝ π·exp(σ(q̂)).

    q̂ is the search's Q of a visited action and v̂ of another, v̂ = (v + ΣN·Σπq/Σπ)/(1 + ΣN) with the sums
    over visited ones; σ is the `qtransform`, (50 + max N)·0.1·q̂ with q̂ rescaled to [0, 1] where not given.
    The action is the best of the most visited by g + log π + σ(q̂) with Gumbel noise g, as in mctx. The
    improved value is Σ p·q̂.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: draws the Gumbel noise, which samples the actions that are tried.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_simulations: N, the model calls of a search.
        max_depth: d, how deep the search may go; unlimited where not given.
        loop_fn: runs the simulations; `jax.lax.fori_loop` where not given.
        qtransform: σ of the completed Q-values of a node; mctx's where not given.
        max_num_considered_actions: how many actions of the root are tried at most.
        gumbel_scale: of the noise; at 0 the actions of the largest prior are tried. May be traced.

    Of what else `mctx.muzero_policy` takes, pUCT's constants, Dirichlet noise and `temperature` are taken and
    ignored: nothing here is read from visits.
    """
    if num_simulations < 1:
        raise ValueError(f"gumbel needs num_simulations of at least 1, got {num_simulations}")
    if isinstance(max_depth, int) and max_depth < 1:
        raise ValueError(f"gumbel needs a max_depth of at least 1, or None for any, got {max_depth}")
    if max_num_considered_actions < 1:
        raise ValueError(
            f"gumbel needs max_num_considered_actions of at least 1, got {max_num_considered_actions}"
        )
    base.refuse_bad_numbers(gumbel_scale=gumbel_scale)
    given: dict[str, Any] = {"loop_fn": loop_fn, "qtransform": qtransform}
    prior_logits = base.searchable(root.prior_logits, invalid_actions)
    # mctx mixes types and ranks, which a program that forbids it could not call.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        output: Any = mctx.gumbel_muzero_policy(
            params,
            rng_key,
            root.replace(prior_logits=prior_logits),
            recurrent_fn,
            num_simulations=num_simulations,
            invalid_actions=invalid_actions,
            max_depth=max_depth,
            max_num_considered_actions=max_num_considered_actions,
            gumbel_scale=gumbel_scale,
            **{name: function for name, function in given.items() if function is not None},
        )
        summary = output.search_tree.summary()
    weights = base.no_illegal(output.action_weights, invalid_actions)
    prior = base.masked_softmax(prior_logits, invalid_actions)
    qvalues = _completed(summary.qvalues, summary.visit_counts, prior, root)
    return base.Improvement(
        action=output.action,
        action_weights=weights,
        value=base.or_roots(base.expected_value(weights, qvalues), root, invalid_actions),
        qvalues=jnp.where(summary.visit_counts > 0, summary.qvalues, jnp.nan),
        search_tree=output.search_tree,
    )


def _completed(
    qvalues: Float[Array, "batch actions"], visits: Array, prior: Float[Array, "batch actions"], root: Root
) -> Float[Array, "batch actions"]:
    """Gives unvisited actions v̂, the mean of the root's value and the visited actions' Q under the prior."""
    share = jnp.where(visits > 0, jnp.maximum(prior, jnp.finfo(prior.dtype).tiny), 0)
    share = share / jnp.maximum(jnp.sum(share, axis=-1, keepdims=True), jnp.finfo(prior.dtype).tiny)
    count = jnp.sum(visits, axis=-1).astype(qvalues.dtype)
    mixed = (root.value + count * base.expected_value(share, qvalues)) / (1 + count)
    return jnp.where(visits > 0, qvalues, mixed[:, None])
