"""Monte-Carlo tree search as in MuZero Unplugged (paper, Eq. 2 and 3), through mctx."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root


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
    loop_fn: Callable[..., Any] | None = None,
    qtransform: Callable[..., Any] | None = None,
    temperature: Number = 1.0,
    dirichlet_fraction: Number = 0.0,
    dirichlet_alpha: Number = 0.3,
    pb_c_init: Number = 1.25,
    pb_c_base: Number = 19652.0,
) -> base.Improvement:
    """Improves the prior by a pUCT search: p ∝ n^(1/T), and the visit-weighted Q as the value.

    The value is Eq. 3's Σ n·Q/Σ n, without the network's own estimate of the root that mctx averages in.
    Takes all that `mctx.muzero_policy` takes; unlike there, the weights are at the temperature too.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: breaks ties and samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_simulations: N, the model calls of a search.
        max_depth: d, how deep the search may go, at least 1; unlimited where not given.
        loop_fn: runs the simulations; `jax.lax.fori_loop` where not given.
        qtransform: makes the Q-values of a node comparable with its prior; mctx's where not given.
        temperature: T of the visit counts; at 0 the actions that were visited most share all the weight. May
            be traced, as may be what follows.
        dirichlet_fraction: share of exploration noise in the root's prior; none for offline learning.
        dirichlet_alpha: concentration of that noise.
        pb_c_init: c₁ of the pUCT rule.
        pb_c_base: c₂ of the pUCT rule.
    """
    _refuse_bad_settings(
        num_simulations, max_depth, temperature, dirichlet_fraction, dirichlet_alpha, pb_c_init, pb_c_base
    )
    given: dict[str, Any] = {"loop_fn": loop_fn, "qtransform": qtransform}
    given |= {"num_simulations": num_simulations, "max_depth": max_depth, "invalid_actions": invalid_actions}
    given |= {"pb_c_init": pb_c_init, "pb_c_base": pb_c_base}
    given = {name: setting for name, setting in given.items() if setting is not None}
    dtype = root.prior_logits.dtype
    root = root.replace(prior_logits=base.searchable(root.prior_logits, invalid_actions))
    # mctx mixes types and ranks, which a program that forbids it could not call.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        if isinstance(dirichlet_fraction, int | float) and dirichlet_fraction == 0:
            tree: Any = _search_without_noise(params, rng_key, root, recurrent_fn, **given)
        else:
            tree = mctx.muzero_policy(
                params,
                rng_key,
                root,
                recurrent_fn,
                dirichlet_fraction=jnp.asarray(dirichlet_fraction, dtype),  # which mctx refuses as an int
                dirichlet_alpha=jnp.asarray(dirichlet_alpha, dtype),
                **given,
            ).search_tree
        summary = tree.summary()
    visits = summary.visit_probs
    logits = _at_temperature(jnp.log(visits), temperature)
    plain = isinstance(temperature, int | float) and temperature == 1
    weights = visits if plain else jax.nn.softmax(logits)
    value = base.expected_value(visits, summary.qvalues)
    return base.Improvement(
        # As mctx, with the first of the keys that it makes; but never an action that was not visited.
        action=jax.random.categorical(jax.random.split(rng_key, 3)[0], logits),
        action_weights=base.no_illegal(weights, invalid_actions),
        value=base.or_roots(value, root, invalid_actions),
        qvalues=jnp.where(summary.visit_counts > 0, summary.qvalues, jnp.nan),
        search_tree=tree,
    )


def _search_without_noise(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    num_simulations: int,
    invalid_actions: LegalityMask | None = None,
    max_depth: int | None = None,
    loop_fn: Callable[..., Any] = jax.lax.fori_loop,
    qtransform: Callable[..., Any] = mctx.qtransform_by_parent_and_siblings,
    **pb_c: Number,
) -> Any:
    """Returns the tree of `mctx.muzero_policy` without its noise, key for key.

    That draws the noise whatever its share is, which takes a fifth of an update with four simulations.
    """
    floats = jnp.finfo(root.prior_logits.dtype)
    logits = jnp.log(jnp.maximum(jax.nn.softmax(root.prior_logits), floats.tiny))
    if invalid_actions is not None:
        logits = logits - jnp.max(logits, axis=-1, keepdims=True)
        logits = jnp.where(invalid_actions, floats.min, logits)
    select = functools.partial(mctx.muzero_action_selection, qtransform=qtransform, **pb_c)
    return mctx.search(
        params=params,
        rng_key=jax.random.split(rng_key, 3)[2],
        root=root.replace(prior_logits=logits),
        recurrent_fn=recurrent_fn,
        root_action_selection_fn=functools.partial(select, depth=0),
        interior_action_selection_fn=select,
        num_simulations=num_simulations,
        max_depth=max_depth,
        invalid_actions=invalid_actions,
        loop_fn=loop_fn,
    )


def _refuse_bad_settings(
    num_simulations: int,
    max_depth: int | None,
    temperature: Number,
    dirichlet_fraction: Number,
    dirichlet_alpha: Number,
    pb_c_init: Number,
    pb_c_base: Number,
) -> None:
    """Refuses settings of a search that cannot be meant, as far as they are known."""
    if num_simulations < 1:
        raise ValueError(f"a search needs num_simulations of at least 1, got {num_simulations}")
    if isinstance(max_depth, int) and max_depth < 1:
        raise ValueError(f"a search needs a max_depth of at least 1, or None for any, got {max_depth}")
    base.refuse_bad_numbers(temperature=temperature, pb_c_init=pb_c_init)
    base.refuse_bad_numbers(most=1, dirichlet_fraction=dirichlet_fraction)
    base.refuse_bad_numbers(above=True, dirichlet_alpha=dirichlet_alpha, pb_c_base=pb_c_base)


def _at_temperature(
    logits: Float[Array, "batch actions"], temperature: Number
) -> Float[Array, "batch actions"]:
    """Returns the logits of visits at a temperature, 0 included; the largest are 0."""
    coldest = float(jnp.finfo(logits.dtype).tiny)
    logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    return logits / base.as_divisor(temperature, logits.dtype, least=coldest)
