"""Tree search with the policy update of MPO: the paper's MZU-Q."""

import jax

from rosmo.operators import base
from rosmo.operators.mcts import mcts
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root


@base.registry.register("mcts_q")
def mcts_q(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    tau: Number = 0.1,
    num_simulations: int = 20,
    max_depth: int | None = None,
    **search_settings,
) -> base.Improvement:
    """Improves the prior by the search's Q-values instead of its visits: p ∝ π·exp(Q/τ).

    The paper does not say what an action has that the search never tried; here it has the root's value, an
    advantage of 0. The improved value is that of `mcts`.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: breaks ties and samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        tau: τ, the temperature of the Q-values, above 0. May be traced.
        num_simulations: N, the model calls of a search.
        max_depth: d, how deep the search may go; unlimited where not given.
        **search_settings: the further settings of `mcts`; its `temperature` is ignored, as nothing here is
            read from visits.
    """
    base.refuse_bad_numbers(above=True, tau=tau)
    key_search, key_action = jax.random.split(rng_key)
    search = mcts(
        params,
        key_search,
        root,
        recurrent_fn,
        invalid_actions=invalid_actions,
        num_simulations=num_simulations,
        max_depth=max_depth,
        **search_settings,
    )
    qvalues = base.completed(search.qvalues, root)
    logits = base.tilt(root.prior_logits, qvalues, invalid_actions, tau)
    return base.Improvement(
        action=base.sample(key_action, logits, invalid_actions),
        action_weights=base.masked_softmax(logits, invalid_actions),
        value=search.value,
        qvalues=search.qvalues,
        search_tree=search.search_tree,
    )
