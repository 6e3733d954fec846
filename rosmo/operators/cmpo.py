"""The clipped improvement of Muesli (Hessel et al., 2021), CMPO."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.operators.sampled_one_step import improve_by_samples, sample_log_weights
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root, refuse_numbers

_LEAST = 1e-6  # of σ, as in Muesli: where all actions are alike none is made better than others


@base.registry.register("cmpo")
@base.without_search
def cmpo(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_samples: int | None = None,
    clip: float = 1.0,
    variance: Literal["state", "batch"] = "state",
    temperature: Number = 1.0,
) -> base.Improvement:
    """Improves the prior by advantages that are normalised and clipped: p ∝ π·exp(clip(adv/βσ, ±1)).

    So no weight changes by more than e², whatever the model says. adv = q − Σπq and σ² = Σπ·adv², of a
    one-step look-ahead. Muesli takes v(s) off q, and a moving average over the batches of (return − v)² as
    σ²; here nothing is kept between two calls, and with q's own mean a wrong v(s) does not clip all alike.
    The improved value is Σ p·q.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: samples the actions.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_samples: N, actions that are sampled from the prior, from which p is estimated as
            `sampled_one_step` does, and σ as their standard deviation; where not given, all are looked at.
        clip: the largest change of log π; 1 in Muesli.
        variance: whether each "state" has its own σ, so that every state is improved alike, or all of a
            "batch" share the mean of their variances, so that those improve in which the choice matters:
            rows then depend on each other, and an agent's batch is one of its windows.
        temperature: β; towards 0 all advantages are clipped. May be traced.

    What else `mctx.muzero_policy` takes (`num_simulations`, `qtransform`, …) is taken and ignored.
    """
    base.refuse_bad_numbers(temperature=temperature)
    refuse_numbers(above=True, clip=clip)
    if variance not in ("state", "batch"):
        raise ValueError(f"variance must be 'state' or 'batch', got {variance!r}")
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"cmpo needs num_samples of at least 1, got {num_samples}")
    key_sample, key_model, key_action = jax.random.split(rng_key, 3)
    if num_samples is None:
        actions, share = base.all_actions(root), base.masked_softmax(root.prior_logits, invalid_actions)
    else:
        shape = (num_samples, root.prior_logits.shape[0])
        actions = base.sample(key_sample, root.prior_logits, invalid_actions, shape).T
        share = jnp.full(actions.shape, 1 / num_samples, root.prior_logits.dtype)
    qvalues = base.look_ahead(params, key_model, root.embedding, recurrent_fn, actions)
    advantages = qvalues - base.expected_value(share, qvalues)[:, None]
    sigma = _deviation(share, advantages, shared=variance == "batch")
    least = float(jnp.finfo(qvalues.dtype).tiny) ** 0.5
    sigma = sigma * base.as_divisor(temperature, qvalues.dtype, least=least)
    compared = base.no_illegal(qvalues, invalid_actions) if num_samples is None else qvalues
    advantages = jnp.clip(base.at_temperature(advantages, sigma, compared), -clip, clip)
    if num_samples is not None:
        log_weights = sample_log_weights(advantages)
        return improve_by_samples(key_action, root, actions, qvalues, log_weights, invalid_actions)
    log_prior = base.log_prior(root.prior_logits, invalid_actions)
    weights = base.masked_softmax(log_prior + advantages, invalid_actions)
    known = {"qvalues": qvalues, "complete": True, "deterministic": True}
    return base.improvement_to(weights, key_action, root, qvalues, invalid_actions, **known)


def _deviation(
    share: Float[Array, "batch samples"], advantages: Float[Array, "batch samples"], *, shared: bool
) -> Float[Array, "batch 1"]:
    """Returns σ, a constant in derivatives. Squares are of what is at most 1, as those of 10³⁰ overflow."""
    share, advantages = jax.lax.stop_gradient((share, advantages))

    def root_mean_square(x: Array, weight: Array) -> Array:
        largest = jnp.maximum(jnp.max(jnp.abs(x), initial=0, axis=-1, keepdims=True), _LEAST)
        return largest * jnp.sqrt(jnp.sum(weight * jnp.square(x / largest), axis=-1, keepdims=True))

    sigma = root_mean_square(advantages, share)
    if shared:  # a row where nothing is legal has no share
        some = jnp.any(share > 0, axis=-1).astype(share.dtype)
        mean = root_mean_square(sigma[:, 0], some / jnp.maximum(jnp.sum(some), 1))
        sigma = jnp.broadcast_to(mean[None], sigma.shape)
    return jnp.maximum(sigma, _LEAST)
