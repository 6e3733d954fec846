"""What an improvement operator is, and the pieces that operators share.

An operator is a pure function in mctx's language,
`operator(params, rng_key, root, recurrent_fn, *, invalid_actions=None, **settings) -> Improvement`,
batched `[B]` throughout, so that it can take the place of `mctx.muzero_policy` in any program.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer

from rosmo.registry import Registry
from rosmo.types import Key, LegalityMask, Params, RecurrentFn, Root

registry = Registry("operator", requires=("params", "rng_key", "root", "recurrent_fn", "invalid_actions"))


class Improvement(eqx.Module):
    """An improved policy and value of the roots.

    `action_weights` is the policy target. `qvalues` is `nan` where the operator has no estimate; an operator
    that has one for every action sets `complete`, which spares others a look-ahead of their own. One whose
    key draws nothing but the action sets `deterministic`: its targets may be kept. A search is not: its key
    breaks ties too, and may draw noise.
    """

    action: Integer[Array, "batch"]
    action_weights: Float[Array, "batch actions"]
    value: Float[Array, "batch"]
    qvalues: Float[Array, "batch actions"]
    search_tree: Any = None
    complete: bool = eqx.field(static=True, default=False)
    deterministic: bool = eqx.field(static=True, default=False)


@runtime_checkable
class Operator(Protocol):
    """The call that every operator answers, its settings bound."""

    def __call__(
        self,
        params: Params,
        rng_key: Key,
        root: Root,
        recurrent_fn: RecurrentFn,
        *,
        invalid_actions: LegalityMask | None = None,
    ) -> Improvement:
        """Improves the policy and the value at `root`."""
        ...


def look_ahead(
    params: Params,
    rng_key: Key,
    embedding: Any,
    recurrent_fn: RecurrentFn,
    actions: Integer[Array, "batch samples"],
) -> Float[Array, "batch samples"]:
    """Returns q(s, a) = r + γ v(s′) of several actions per state (Eq. 7) in one call of the dynamics.

    The call is mapped over the actions with the states held fixed: what a model computes from the state alone
    is computed once.
    """

    def q_value(key: Key, action: Integer[Array, "batch"]) -> Float[Array, "batch"]:
        output, _ = recurrent_fn(params, key, action, embedding)
        return output.reward + output.discount * output.value

    keys = jax.random.split(rng_key, actions.shape[1])
    return jax.vmap(q_value, in_axes=(0, 1), out_axes=1)(keys, actions)


def mask_logits(
    logits: Float[Array, "*batch actions"], invalid_actions: Array | None
) -> Float[Array, "*batch actions"]:
    """Sends invalid actions to the lowest finite logit: no row turns to `nan`, in value or in gradient."""
    if invalid_actions is None:
        return logits
    return jnp.where(invalid_actions.astype(bool), jnp.finfo(logits.dtype).min, logits)


def tilt(
    prior_logits: Float[Array, "batch actions"],
    qvalues: Float[Array, "batch actions"],
    invalid_actions: LegalityMask | None,
) -> Float[Array, "batch actions"]:
    """Returns the logits of π·exp(q)/Z.

    The largest q is subtracted before log π is added: a sum with |q| ~ 10⁴ would round log π away. The root's
    value is a shift that cancels in Z and never enters.
    """
    top = jnp.max(mask_logits(qvalues, invalid_actions), axis=-1, keepdims=True)
    log_prior = jax.nn.log_softmax(mask_logits(prior_logits, invalid_actions))
    return mask_logits(log_prior + (qvalues - jax.lax.stop_gradient(top)), invalid_actions)


def masked_softmax(
    logits: Float[Array, "batch actions"], invalid_actions: LegalityMask | None
) -> Float[Array, "batch actions"]:
    """Softmax with exactly no weight on invalid actions, also in a row that has no valid one."""
    weights = jax.nn.softmax(mask_logits(logits, invalid_actions))
    return weights if invalid_actions is None else jnp.where(invalid_actions.astype(bool), 0, weights)


def expected_value(weights: Float[Array, "batch actions"], qvalues: Float[Array, "batch actions"]) -> Array:
    """Returns Σ w·q over the actions that have weight; an unknown q without weight does no harm."""
    return jnp.sum(weights * jnp.where(weights > 0, qvalues, 0), axis=-1)


def all_actions(root: Root) -> Integer[Array, "batch actions"]:
    """Returns every action of every root."""
    batch, num_actions = root.prior_logits.shape
    return jnp.broadcast_to(jnp.arange(num_actions)[None], (batch, num_actions))
