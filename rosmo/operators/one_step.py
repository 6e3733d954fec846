"""The exact one-step look-ahead of ROSMO (paper, Eq. 6 and 7)."""

import jax

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root, refuse_counts


@base.registry.register("one_step")
@base.without_search
def one_step(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    temperature: Number = 1.0,
    at_once: int = 64,
) -> base.Improvement:
    """Improves the prior by the advantage of a one-step look-ahead over all actions: p ∝ π·exp(adv/β).

    Costs the dynamics over B·|A| states, at most `at_once` actions at a time. The improved value is Σ p·q.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: samples the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        temperature: β, 1 in the paper; at 0 the best actions have all the weight. May be traced.
        at_once: how many actions are looked at in one call of the dynamics, which bounds its memory.

    What else `mctx.muzero_policy` takes (`num_simulations`, `qtransform`, …) is taken and ignored.
    """
    base.refuse_bad_numbers(temperature=temperature)
    refuse_counts(at_once=at_once)
    key_model, key_action = jax.random.split(rng_key)
    actions = base.all_actions(root)
    qvalues = base.look_ahead(params, key_model, root.embedding, recurrent_fn, actions, at_once)
    logits = base.tilt(root.prior_logits, qvalues, invalid_actions, temperature)
    weights = base.masked_softmax(logits, invalid_actions)
    return base.Improvement(
        action=base.sample(key_action, logits, invalid_actions),
        action_weights=weights,
        value=base.or_roots(base.expected_value(weights, qvalues), root, invalid_actions),
        qvalues=qvalues,
        complete=True,
        deterministic=True,
    )
