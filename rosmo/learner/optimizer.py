"""The paper's optimizer."""

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from rosmo.types import Params, refuse_counts, refuse_numbers

_MULTIPLE = 1_024  # of a vector's length, so that it splits over a mesh's "model" axis of any power of two


def decay_mask(params: Params) -> PyTree:
    """Marks what weight decay applies to: weight matrices and kernels, but no bias and no normalisation."""
    norms = (eqx.nn.LayerNorm, eqx.nn.GroupNorm, eqx.nn.RMSNorm, eqx.nn.BatchNorm)

    def decays(path, leaf) -> bool | PyTree:
        if isinstance(leaf, norms):
            return jax.tree.map(lambda _: False, leaf)
        name = getattr(path[-1], "name", getattr(path[-1], "key", None)) if path else None
        return leaf.ndim >= 2 and name != "bias"

    return jax.tree_util.tree_map_with_path(decays, params, is_leaf=lambda x: isinstance(x, norms))


def adamw(
    learning_rate: float = 7e-4,
    *,
    weight_decay: float = 1e-4,
    max_grad_norm: float = 5.0,
    warmup_steps: int = 1_000,
    decay_steps: int = 100_000,
    decay_rate: float = 0.1,
) -> optax.GradientTransformation:
    """AdamW on gradients clipped to a global norm, with warm-up and a staircase decay of the learning rate.

    Args:
        learning_rate: the rate that the warm-up ends at.
        weight_decay: of weight matrices and kernels alone.
        max_grad_norm: the global norm that longer gradients are scaled to.
        warmup_steps: updates over which the rate rises from 0; the paper does not say.
        decay_steps: updates between two steps of the staircase; the paper does not say.
        decay_rate: what each step multiplies the rate by.
    """
    refuse_numbers(learning_rate=learning_rate, weight_decay=weight_decay)
    refuse_numbers(above=True, max_grad_norm=max_grad_norm, decay_rate=decay_rate)
    refuse_counts(0, warmup_steps=warmup_steps)
    refuse_counts(decay_steps=decay_steps)
    schedule = optax.warmup_exponential_decay_schedule(
        0.0, learning_rate, warmup_steps, decay_steps, decay_rate, staircase=True
    )
    # Clipping and moments see the parameters as one vector: a few large operations, not many small ones.
    flat = _flattened(optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.scale_by_adam()))
    return optax.chain(
        flat,
        optax.add_decayed_weights(weight_decay, mask=decay_mask),
        optax.scale_by_learning_rate(schedule),
    )


def _flattened(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Lets `inner` see everything as one vector, filled up with zeros so that it splits over devices."""

    def flat(tree: PyTree) -> Array:
        vector, _ = ravel_pytree(tree)
        return jnp.pad(vector, (0, -vector.size % _MULTIPLE))

    def update(updates: PyTree, state: optax.OptState, params: Params | None = None):
        vector, unravel = ravel_pytree(updates)
        params = None if params is None else flat(params)
        padded, state = inner.update(flat(updates), state, params)
        return unravel(cast(Array, padded)[: vector.size]), state

    return optax.GradientTransformation(lambda params: inner.init(flat(params)), update)
