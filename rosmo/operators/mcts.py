"""Monte-Carlo tree search as in MuZero Unplugged (paper, Eq. 2 and 3), through mctx."""

from typing import Any

import jax
import jax.numpy as jnp
import mctx

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root


@base.registry.register("mcts")
def mcts(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_simulations: int = 20,
    max_depth: int | None = None,
    temperature: float = 1.0,
    dirichlet_fraction: float = 0.0,
    dirichlet_alpha: float = 0.3,
    pb_c_init: float = 1.25,
    pb_c_base: float = 19652.0,
) -> base.Improvement:
    """Improves the prior by a pUCT search: p ∝ n^(1/T), and the visit-weighted Q as the value.

    The value is Eq. 3's Σ n·Q/Σ n, without the network's own estimate of the root that mctx averages in.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: breaks ties and draws the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_simulations: N, the model calls of a search.
        max_depth: d, how deep the search may go; unlimited where not given.
        temperature: T of the visit counts.
        dirichlet_fraction: share of exploration noise in the root's prior; none for offline learning.
        dirichlet_alpha: concentration of that noise.
        pb_c_init: c₁ of the pUCT rule.
        pb_c_base: c₂ of the pUCT rule.
    """
    if num_simulations < 1:
        raise ValueError(f"a search needs num_simulations of at least 1, got {num_simulations}")
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    # mctx mixes types and ranks, which a program that forbids it could not call.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        output: Any = mctx.muzero_policy(
            params,
            rng_key,
            root,
            recurrent_fn,
            num_simulations=num_simulations,
            invalid_actions=invalid_actions,
            max_depth=max_depth,
            dirichlet_fraction=dirichlet_fraction,
            dirichlet_alpha=dirichlet_alpha,
            pb_c_init=pb_c_init,
            pb_c_base=pb_c_base,
            temperature=temperature,
        )
        summary = output.search_tree.summary()
    weights = output.action_weights
    if temperature != 1:
        weights = jax.nn.softmax(jnp.log(weights) / temperature)
    return base.Improvement(
        action=output.action,
        action_weights=weights,
        value=base.expected_value(summary.visit_probs, summary.qvalues),
        qvalues=jnp.where(summary.visit_counts > 0, summary.qvalues, jnp.nan),
        search_tree=output.search_tree,
    )
