"""The exact one-step look-ahead of ROSMO (paper, Eq. 6 and 7)."""

import jax

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root


@base.registry.register("one_step")
def one_step(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
) -> base.Improvement:
    """Improves the prior by the advantage of a one-step look-ahead over all actions: p ∝ π·exp(adv).

    Costs one call of the dynamics over B·|A| states. The improved value is Σ p·q.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: draws the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
    """
    key_model, key_action = jax.random.split(rng_key)
    qvalues = base.look_ahead(params, key_model, root.embedding, recurrent_fn, base.all_actions(root))
    logits = base.tilt(root.prior_logits, qvalues, invalid_actions)
    weights = base.masked_softmax(logits, invalid_actions)
    return base.Improvement(
        action=jax.random.categorical(key_action, logits),
        action_weights=weights,
        value=base.expected_value(weights, qvalues),
        qvalues=qvalues,
        complete=True,
        deterministic=True,
    )
