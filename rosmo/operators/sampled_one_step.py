"""The sampled one-step look-ahead of ROSMO (paper, Eq. 9 and 10)."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root


@base.registry.register("sampled_one_step")
@base.without_search
def sampled_one_step(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_samples: int = 4,
    temperature: Number = 1.0,
) -> base.Improvement:
    """Estimates the one-step improvement from actions sampled from the prior: a look-ahead over N of them.

    What grows with |A| is the policy itself: its logits, its loss and the sampling. An update with BSuite's
    networks on a CPU took 2.7 times as long for 3,000 actions as for 3 (`benchmarks/many_actions.py`).

    The weights are the paper's estimator, (1/N) Σᵢ 1[aᵢ = a]·exp(advᵢ/β)/Zᵢ, and need not sum to one: a loss
    must not normalise them. Action and improved value are those of the normalised weights.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: samples the actions.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`.
        num_samples: N, the number of actions sampled, with replacement.
        temperature: β, 1 in the paper; towards 0 the weights of positive advantages grow to the largest
            float, and the action is the best of the samples. May be traced.

    What else `mctx.muzero_policy` takes (`num_simulations`, `qtransform`, …) is taken and ignored.
    """
    base.refuse_bad_numbers(temperature=temperature)
    if num_samples < 1:
        raise ValueError(f"sampled_one_step needs num_samples of at least 1, got {num_samples}")
    key_sample, key_model, key_action = jax.random.split(rng_key, 3)
    shape = (num_samples, root.prior_logits.shape[0])
    samples = base.sample(key_sample, root.prior_logits, invalid_actions, shape).T
    # Of no more actions than samples, all are looked at: fewer calls, and nobody has to ask for the others.
    complete = root.prior_logits.shape[1] <= num_samples
    looked_at = base.all_actions(root) if complete else samples
    found = base.look_ahead(params, key_model, root.embedding, recurrent_fn, looked_at)
    sample_q = jnp.take_along_axis(found, samples, axis=1) if complete else found

    value = root.value[:, None]
    log_weights = sample_log_weights(base.at_temperature(sample_q - value, temperature, sample_q, value))
    known = found if complete else None
    return improve_by_samples(key_action, root, samples, sample_q, log_weights, invalid_actions, known)


def improve_by_samples(
    rng_key: Key,
    root: Root,
    samples: Integer[Array, "batch samples"],
    sample_q: Float[Array, "batch samples"],
    log_weights: Float[Array, "batch samples"],
    invalid_actions: LegalityMask | None,
    qvalues: Float[Array, "batch actions"] | None = None,
) -> base.Improvement:
    """Estimates an improved policy from actions sampled from the prior, with their q and their weights.

    Where the q of all actions are known, `qvalues`, they are said too.
    """
    chosen = jax.random.categorical(rng_key, log_weights)
    # A single huge advantage asks for more than the largest float: stay finite, in the sum too.
    largest = jnp.finfo(log_weights.dtype).max / (2 * samples.shape[1])
    sample_weights = jnp.exp(jnp.minimum(log_weights, jnp.log(largest)))
    weights = base.by_action(sample_weights, samples, root.prior_logits.shape[1])
    unknown = jnp.full_like(root.prior_logits, jnp.nan)
    scatter_set = jax.vmap(lambda row, action, q: row.at[action].set(q))
    value = jnp.sum(jax.nn.softmax(log_weights) * sample_q, axis=-1)
    return base.Improvement(
        action=jnp.take_along_axis(samples, chosen[:, None], axis=1)[:, 0],
        action_weights=base.no_illegal(weights, invalid_actions),
        value=base.or_roots(value, root, invalid_actions),
        qvalues=scatter_set(unknown, samples, sample_q) if qvalues is None else qvalues,
        complete=qvalues is not None,
    )


def sample_log_weights(advantages: Float[Array, "batch samples"]) -> Float[Array, "batch samples"]:
    """Returns log(exp(advᵢ)/(N·Zᵢ)) with Zᵢ = (1 + Σ_{j≠i} exp(advⱼ))/N (Eq. 10).

    The sum without i is never formed as the whole sum less exp(advᵢ), which cancels to nothing once one
    advantage leads by 17: of few samples it is summed without i, and of many it is joined from the sums
    before and after i, in logarithms.
    """
    count = advantages.shape[1]
    nothing = jnp.finfo(advantages.dtype).min
    one = jnp.zeros_like(advantages[:, :1])
    if count <= 8:
        others = jnp.where(jnp.eye(count, dtype=bool)[None], nothing, advantages[:, None, :])
        first = jnp.broadcast_to(one[:, None, :], (advantages.shape[0], count, 1))
        return advantages - jax.nn.logsumexp(jnp.concatenate([first, others], axis=2), axis=2)
    before = jax.lax.cumlogsumexp(jnp.concatenate([one, advantages[:, :-1]], axis=1), axis=1)
    last = jnp.concatenate([advantages[:, 1:], jnp.full_like(one, nothing)], axis=1)
    after = jax.lax.cumlogsumexp(last, axis=1, reverse=True)
    return advantages - jnp.logaddexp(before, after)
