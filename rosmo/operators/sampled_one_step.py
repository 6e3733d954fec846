"""The sampled one-step look-ahead of ROSMO (paper, Eq. 9 and 10)."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root


@base.registry.register("sampled_one_step")
def sampled_one_step(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_samples: int = 4,
) -> base.Improvement:
    """Estimates the one-step improvement from actions drawn from the prior, at a cost that ignores |A|.

    The weights are the paper's estimator, (1/N) Σᵢ 1[aᵢ = a]·exp(advᵢ)/Zᵢ, and need not sum to one: a loss
    must not normalise them. Action and improved value are those of the normalised weights.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: draws the samples and the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_samples: N, the number of actions drawn, with replacement.
    """
    if num_samples < 1:
        raise ValueError(f"sampled_one_step needs num_samples of at least 1, got {num_samples}")
    key_sample, key_model, key_action = jax.random.split(rng_key, 3)
    prior_logits = base.mask_logits(root.prior_logits, invalid_actions)
    samples = jax.random.categorical(key_sample, prior_logits, shape=(num_samples, len(prior_logits))).T
    sample_q = base.look_ahead(params, key_model, root.embedding, recurrent_fn, samples)

    log_weights = sample_log_weights(sample_q - root.value[:, None])
    chosen = jax.random.categorical(key_action, log_weights)
    # A single huge advantage asks for more than the largest float: stay finite, in the sum too.
    largest = jnp.finfo(log_weights.dtype).max / (2 * num_samples)
    sample_weights = jnp.exp(jnp.minimum(log_weights, jnp.log(largest)))
    empty = jnp.zeros_like(root.prior_logits)
    # A sum with the drawn actions one-hot would be [B, N, A]; scattering row by row is not.
    scatter_add = jax.vmap(lambda row, action, weight: row.at[action].add(weight))
    scatter_set = jax.vmap(lambda row, action, q: row.at[action].set(q))
    return base.Improvement(
        action=jnp.take_along_axis(samples, chosen[:, None], axis=1)[:, 0],
        action_weights=scatter_add(empty, samples, sample_weights),
        value=jnp.sum(jax.nn.softmax(log_weights) * sample_q, axis=-1),
        qvalues=scatter_set(jnp.full_like(empty, jnp.nan), samples, sample_q),
    )


def sample_log_weights(advantages: Float[Array, "batch samples"]) -> Float[Array, "batch samples"]:
    """Returns log(exp(advᵢ)/(N·Zᵢ)) with Zᵢ = (1 + Σ_{j≠i} exp(advⱼ))/N (Eq. 10).

    The sum without i is joined from the sums before and after i, in logarithms: forming the whole sum and
    subtracting exp(advᵢ) again cancels to nothing once one advantage leads by 17.
    """
    one = jnp.zeros_like(advantages[:, :1])
    nothing = jnp.full_like(one, jnp.finfo(advantages.dtype).min)
    before = jax.lax.cumlogsumexp(jnp.concatenate([one, advantages[:, :-1]], axis=1), axis=1)
    after = jax.lax.cumlogsumexp(jnp.concatenate([advantages[:, 1:], nothing], axis=1), axis=1, reverse=True)
    return advantages - jnp.logaddexp(before, after)
