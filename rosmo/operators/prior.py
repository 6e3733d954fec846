"""No improvement at all: for agents that learn their policy from regularizers alone."""

import jax.numpy as jnp

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root


@base.registry.register("prior")
@base.without_search
def prior(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
) -> base.Improvement:
    """Returns the prior policy and value unchanged, without a call of the model.

    Args:
        params: not used.
        rng_key: samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: not used.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.

    What else `mctx.muzero_policy` takes (`num_simulations`, `temperature`, …) is taken and ignored.
    """
    del params, recurrent_fn
    return base.Improvement(
        action=base.sample(rng_key, root.prior_logits, invalid_actions),
        action_weights=base.masked_softmax(root.prior_logits, invalid_actions),
        value=root.value,
        qvalues=jnp.full_like(root.prior_logits, jnp.nan),
        deterministic=True,
    )
