"""The distributions of world models: distrax's, which is imported where it is used, as that takes seconds."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from rosmo.types import Keys


def distrax() -> ModuleType:
    """Returns distrax, or says what to install."""
    try:
        import distrax
    except ImportError as error:
        raise ImportError('world models need distrax: pip install "rosmo[worlds]"') from error
    return distrax


def categoricals(logits: Float[Array, "*batch groups classes"]) -> Any:
    """Independent categorical variables as one-hot vectors, whose divergences and likelihoods are sums."""
    return distrax().Independent(distrax().OneHotCategorical(logits=logits, dtype=jnp.float32), 1)


def straight_through(
    logits: Float[Array, "batch groups classes"], keys: Keys
) -> Float[Array, "batch groups classes"]:
    """Draws one-hot vectors, each row by its key, whose gradient is that of their probabilities.

    (`distrax.straight_through_wrapper` mixes types, which strict promotion refuses.)
    """
    drawn = jax.vmap(lambda row, key: categoricals(row).sample(seed=key))(logits, keys)
    probs = jax.nn.softmax(logits)
    return jax.lax.stop_gradient(drawn - probs) + probs


def balanced_kl(
    posterior: Float[Array, "*batch groups classes"],
    prior: Float[Array, "*batch groups classes"],
    balance: float,
) -> Float[Array, "*batch"]:
    """Returns α KL(sg(q) ‖ p) + (1 − α) KL(q ‖ sg(p)) of logits, KL balancing (DreamerV2, Algorithm 2).

    Its value is KL(q ‖ p); the prior p moves towards the posterior q by α of its gradient, and q towards p by
    what is left.
    """
    still = jax.lax.stop_gradient
    to_prior = categoricals(still(posterior)).kl_divergence(categoricals(prior))
    to_posterior = categoricals(posterior).kl_divergence(categoricals(still(prior)))
    return balance * to_prior + (1 - balance) * to_posterior


def pixels(kind: str, output: Float[Array, "*batch"], event: int) -> Any:
    """Returns the distribution of observations, "bernoulli" of logits or "normal" of means, of variance 1."""
    if kind == "bernoulli":
        return distrax().Independent(distrax().Bernoulli(logits=output), event)
    return distrax().Independent(distrax().Normal(output, jnp.ones_like(output)), event)


def normal(mean: Float[Array, "*batch"], deviation: float) -> Any:
    """Returns normal distributions of one standard deviation."""
    return distrax().Normal(mean, jnp.full_like(mean, deviation))


def bernoulli(logits: Float[Array, "*batch"]) -> Any:
    """Returns Bernoulli distributions; the likelihood of a number between 0 and 1 is its cross entropy."""
    return distrax().Bernoulli(logits=logits)
