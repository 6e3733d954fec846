"""Sequential Monte Carlo search, as in SPO (Macfarlane et al., 2024)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer

from rosmo.operators import base
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root, refuse_counts, refuse_numbers


class _Particles(NamedTuple):
    """Where the particles of each root are, and what they have gathered on the way, `[N, B]`."""

    first: Integer[Array, "particles batch"]  # the action taken at the root
    state: Any
    logits: Float[Array, "particles batch actions"]  # of the prior in that state
    reward: Float[Array, "particles batch"]  # Σ c r, with c the product of the discounts before
    discount: Float[Array, "particles batch"]  # c of the next reward
    gain: Float[Array, "particles batch"]  # Σ c r + c v of the state
    counted: Float[Array, "particles batch"]  # the gain that resampling has paid for


@base.registry.register("smc")
@base.without_search
def smc(
    params: Params,
    rng_key: Key,
    root: Root,
    recurrent_fn: RecurrentFn,
    *,
    invalid_actions: LegalityMask | None = None,
    num_particles: int = 16,
    depth: int = 4,
    resample_below: float = 0.5,
    temperature: Number = 1.0,
) -> base.Improvement:
    """Improves the prior by particles that follow it through the model, weighed by what they find.

    A particle's weight is exp(Σ c·adv/β) with adv = r + γ v(s′) − v(s) of each step and c the product of the
    discounts before it: exp((G − v(s₀))/β) of its return G over `depth` steps. Where the weights have come
    to lie on few, particles are drawn anew by them. p is the weight behind each first action. With many
    particles that is exact for p ∝ π(a)·E[exp(G/β) | a] over the prior's paths; at a depth of 1 it is
    `one_step`. The improved value is Σ w·G, and the q of an action the mean of its particles' G. SPO does not
    discount the advantages of later steps, so that there Σ adv is no return.

    Args:
        params: passed on to `recurrent_fn`.
        rng_key: samples the particles' actions, the resampling and the action.
        root: prior logits `[B, A]`, value `[B]` and embedding `[B, ...]`.
        recurrent_fn: the model, in mctx's signature.
        invalid_actions: true (or one) where an action is not to be taken, `[B, A]`, at the root.
        num_particles: N; an operator's model calls are N·depth.
        depth: h, the steps of each particle.
        resample_below: share of the particles; where (Σw)²/Σw² falls below it, they are drawn anew. At 0
            never, at 1 after each step.
        temperature: β; at 0 the best particle has all the weight. May be traced.

    What else `mctx.muzero_policy` takes (`num_simulations`, `qtransform`, …) is taken and ignored.
    """
    refuse_counts(num_particles=num_particles, depth=depth)
    refuse_numbers(0, 1, resample_below=resample_below)
    base.refuse_bad_numbers(temperature=temperature)
    key_first, key_walk, key_action = jax.random.split(rng_key, 3)
    shape = (num_particles, root.prior_logits.shape[0])
    first = base.sample(key_first, root.prior_logits, invalid_actions, shape)
    particles = _at_root(root, first)
    for step in range(depth):
        key_step, key_resample, key_sample = jax.random.split(jax.random.fold_in(key_walk, step), 3)
        action = _follow_prior(key_sample, particles.logits) if step else first
        particles = _advance(params, key_step, recurrent_fn, particles, action)
        if step < depth - 1 and resample_below > 0:
            particles = _resampled(key_resample, particles, temperature, resample_below)
    log_weights = _log_weights(particles, temperature)
    weights, gain, samples = jax.nn.softmax(log_weights), particles.gain.T, particles.first.T
    chosen = jax.random.categorical(key_action, log_weights)
    num_actions = root.prior_logits.shape[1]
    summed = base.by_action(weights, samples, num_actions)
    mean = base.by_action(weights * gain, samples, num_actions) / jnp.where(summed > 0, summed, 1)
    return base.Improvement(
        action=jnp.take_along_axis(samples, chosen[:, None], axis=1)[:, 0],
        action_weights=base.no_illegal(summed, invalid_actions),
        value=base.or_roots(jnp.sum(weights * gain, axis=-1), root, invalid_actions),
        qvalues=jnp.where(summed > 0, mean, jnp.nan),
    )


def _at_root(root: Root, first: Integer[Array, "particles batch"]) -> _Particles:
    def repeat(x: Array) -> Array:
        return jnp.broadcast_to(x[None], (first.shape[0], *x.shape))

    value = repeat(root.value)
    nothing, one = jnp.zeros_like(value), jnp.ones_like(value)
    state, logits = jax.tree.map(repeat, root.embedding), repeat(root.prior_logits)
    return _Particles(first, state, logits, nothing, one, gain=value, counted=value)


def _advance(
    params: Params,
    rng_key: Key,
    recurrent_fn: RecurrentFn,
    particles: _Particles,
    action: Integer[Array, "particles batch"],
) -> _Particles:
    """Takes each particle one step through the model."""
    keys = jax.random.split(rng_key, action.shape[0])
    step = jax.vmap(lambda key, action, state: recurrent_fn(params, key, action, state))
    output, state = step(keys, action, particles.state)
    reward = particles.reward + particles.discount * output.reward
    discount = particles.discount * output.discount
    return particles._replace(
        state=state,
        logits=output.prior_logits,
        reward=reward,
        discount=discount,
        gain=reward + discount * output.value,
    )


def _follow_prior(
    rng_key: Key, logits: Float[Array, "particles batch actions"]
) -> Integer[Array, "particles batch"]:
    keys = jax.random.split(rng_key, logits.shape[0])
    return jax.vmap(lambda key, each: base.sample(key, each, None))(keys, logits)


def _log_weights(particles: _Particles, temperature: Number) -> Float[Array, "batch particles"]:
    gain, counted = particles.gain.T, particles.counted.T
    return base.at_temperature(gain - counted, temperature, gain, counted)


def _resampled(rng_key: Key, particles: _Particles, temperature: Number, resample_below: float) -> _Particles:
    """Draws the particles anew of roots where few have the weight: systematic resampling."""
    weights = jax.nn.softmax(_log_weights(particles, temperature))
    batch, count = weights.shape
    offsets = (
        jax.random.uniform(rng_key, (batch, 1), weights.dtype) + jnp.arange(count, dtype=weights.dtype)[None]
    )
    ends = jnp.cumsum(weights, axis=-1)
    ends = ends / ends[:, -1:] * count
    drawn = jnp.clip(jax.vmap(lambda a, v: jnp.searchsorted(a, v, side="right"))(ends, offsets), 0, count - 1)
    # By half a particle: rounding is not to decide where as many count as need to.
    few = 1 / jnp.sum(jnp.square(weights), axis=-1) + 0.5 < resample_below * count
    drawn = jnp.where(few[:, None], drawn, jnp.arange(count)[None])

    def take(x: Array) -> Array:
        return jax.vmap(lambda row, index: row[index], in_axes=(1, 0), out_axes=1)(x, drawn)

    particles = jax.tree.map(take, particles)
    return particles._replace(counted=jnp.where(few[None], particles.gain, particles.counted))
