"""What an improvement operator is, and the pieces that operators share.

An operator is a pure function in mctx's language,
`operator(params, rng_key, root, recurrent_fn, *, invalid_actions=None, **settings) -> Improvement`,
batched `[B]` throughout, so that it can take the place of `mctx.muzero_policy` in any program: it takes all
keywords of that.

Of any root, however degenerate, an operator keeps to this. Illegal actions have a weight of exactly 0 and are
never chosen while there is a legal one. A prior that says nothing of any legal action (all −∞) is uniform
over them. Where nothing is legal, all weights are 0, the value is the root's own, and the action means
nothing. Nothing but an unknown q is `nan`, as long as the model's own numbers are none.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
from jax import Array
from jaxtyping import Float, Integer

from rosmo.registry import Registry
from rosmo.types import Key, LegalityMask, Number, Params, RecurrentFn, Root, refuse_numbers

_LEAD = 30.0  # a share of 1e-13 for the best legal action, which is far from what a float cannot hold
_GROUP = 64  # actions that are sampled from together where there are many

registry = Registry("operator", requires=("params", "rng_key", "root", "recurrent_fn", "invalid_actions"))


class Improvement(eqx.Module):
    """An improved policy and value of the roots.

    `action_weights` is the policy target. `qvalues` is `nan` where the operator has no estimate; an operator
    that has one for every action sets `complete`, which spares others a look-ahead of their own. One whose
    key samples nothing but the action sets `deterministic`: its targets may be kept. A search is not: its key
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


def without_search(operator: Callable[..., Improvement]) -> Callable[..., Improvement]:
    """Has an operator that does not search pass over what `mctx.muzero_policy` takes and it does not."""
    ignored = inspect.signature(mctx.muzero_policy).parameters.keys() - inspect.signature(operator).parameters

    @functools.wraps(operator)
    def call(*args: Any, **settings: Any) -> Improvement:
        return operator(*args, **{name: settings[name] for name in settings if name not in ignored})

    return call


def look_ahead(
    params: Params,
    rng_key: Key,
    embedding: Any,
    recurrent_fn: RecurrentFn,
    actions: Integer[Array, "batch samples"],
    at_once: int | None = None,
) -> Float[Array, "batch samples"]:
    """Returns q(s, a) = r + γ v(s′) of several actions per state (Eq. 7) in one call of the dynamics.

    The call is mapped over the actions with the states held fixed: what a model computes from the state alone
    is computed once. Of more actions than are to be taken `at_once`, one such part follows the other.
    """

    def q_value(key: Key, action: Integer[Array, "batch"]) -> Float[Array, "batch"]:
        output, _ = recurrent_fn(params, key, action, embedding)
        return output.reward + output.discount * output.value

    count = actions.shape[1]
    keys = jax.random.split(rng_key, count)
    if at_once is None or count <= at_once:
        return jax.vmap(q_value, in_axes=(0, 1), out_axes=1)(keys, actions)
    return jax.lax.map(lambda x: q_value(*x), (keys, actions.T), batch_size=at_once).T


def mask_logits(
    logits: Float[Array, "*batch actions"], invalid_actions: Array | None
) -> Float[Array, "*batch actions"]:
    """Sends invalid actions to the lowest finite logit: no row turns to `nan`, in value or in gradient."""
    if invalid_actions is None:
        return logits
    return jnp.where(invalid_actions.astype(bool), jnp.finfo(logits.dtype).min, logits)


def log_prior(
    prior_logits: Float[Array, "batch actions"], invalid_actions: LegalityMask | None
) -> Float[Array, "batch actions"]:
    """Returns the log-probabilities of the prior among the legal actions, all of them finite."""
    logits = jax.nn.log_softmax(mask_logits(bounded(prior_logits), invalid_actions))
    return mask_logits(logits, invalid_actions)


def tilt(
    prior_logits: Float[Array, "batch actions"],
    qvalues: Float[Array, "batch actions"],
    invalid_actions: LegalityMask | None,
    temperature: Number = 1.0,
) -> Float[Array, "batch actions"]:
    """Returns the logits of π·exp(q/β)/Z.

    The largest q is subtracted before log π is added: a sum with |q| ~ 10⁴ would round log π away. The root's
    value is a shift that cancels in Z and never enters.
    """
    qvalues = bounded(qvalues)
    top = jnp.max(mask_logits(qvalues, invalid_actions), axis=-1, keepdims=True)
    legal = no_illegal(qvalues, invalid_actions)
    advantages = at_temperature(qvalues - jax.lax.stop_gradient(top), temperature, legal)
    return mask_logits(log_prior(prior_logits, invalid_actions) + advantages, invalid_actions)


def at_temperature(
    advantages: Float[Array, "batch actions"],
    temperature: Number,
    *compared: Float[Array, "batch _"],
) -> Array:
    """Returns adv/β, finite at any β, 0 included; β may be traced.

    A compiler may compute a number anew for each of its readers, rounded otherwise: a maximum is then not
    among the numbers that it is of. So β is at least 2⁻²⁰ of the largest number that was compared: what is
    nearer to another is told apart by rounding alone, and over less β no softmax could take the difference.

    Args:
        advantages: differences of numbers.
        temperature: β.
        *compared: the numbers, where each row has at least one.
    """
    if isinstance(temperature, int | float) and temperature == 1:
        return advantages
    floats = jnp.finfo(advantages.dtype)
    largest = jnp.max(jnp.abs(bounded(jnp.concatenate(compared, axis=1))), axis=1, keepdims=True)
    least = jax.lax.stop_gradient(largest) * 2.0**-20
    temperature = as_divisor(temperature, advantages.dtype, least=float(floats.tiny) ** 0.5)
    bound = float(floats.max) / 4
    return jnp.clip(advantages, -bound, bound) / jnp.maximum(temperature, least)


def as_divisor(temperature: Number, dtype: Any, *, least: float) -> Array:
    """Returns a temperature, known or traced, as a number of a type between `least` and its inverse."""
    if isinstance(temperature, int | float):
        temperature = min(max(float(temperature), least), 1 / least)  # a cast would warn of what overflows
    return jnp.clip(jnp.asarray(temperature, dtype), least, 1 / least)


def refuse_bad_numbers(*, most: float | int = math.inf, above: bool = False, **settings: Number) -> None:
    """Refuses numbers from 0 on, or above it, that cannot be meant; one that is traced is not known."""
    known = {name: value for name, value in settings.items() if isinstance(value, int | float)}
    refuse_numbers(0, most, above=above, **known)


def masked_softmax(
    logits: Float[Array, "batch actions"], invalid_actions: LegalityMask | None
) -> Float[Array, "batch actions"]:
    """Softmax with exactly no weight on invalid actions, also in a row that has no valid one."""
    return no_illegal(jax.nn.softmax(mask_logits(bounded(logits), invalid_actions)), invalid_actions)


def searchable(
    prior_logits: Float[Array, "batch actions"], invalid_actions: LegalityMask | None
) -> Float[Array, "batch actions"]:
    """Bounds how far an illegal action leads: mctx normalises before it masks, which would leave others 0."""
    legal = mask_logits(bounded(prior_logits), invalid_actions)
    top = jnp.max(legal, axis=-1, keepdims=True)
    return jnp.minimum(bounded(prior_logits), top + _LEAD)


def completed(qvalues: Float[Array, "batch actions"], root: Root) -> Float[Array, "batch actions"]:
    """Gives actions without an estimate the root's value, an advantage of 0."""
    return jnp.where(jnp.isnan(qvalues), root.value[:, None], qvalues)


def sample(
    rng_key: Key,
    logits: Float[Array, "batch actions"],
    invalid_actions: LegalityMask | None,
    shape: tuple[Any, ...] | None = None,  # whole numbers, or what stands for them
) -> Integer[Array, "..."]:
    """Samples actions, as many to a row as the shape says, of which none is illegal where one is legal."""
    # Noise that is added to logits of ±1e30 would be rounded away: normalised, the larger ones are about 0.
    logits = log_prior(logits, invalid_actions)
    if shape is None or logits.shape[1] <= 4 * _GROUP:
        return jax.random.categorical(rng_key, logits, shape=shape)
    return _sample_by_groups(rng_key, logits, shape)


def _sample_by_groups(
    rng_key: Key, logits: Float[Array, "batch actions"], shape: tuple[int, ...]
) -> Integer[Array, "..."]:
    """Samples a group of actions and then one of the group, so that few random numbers are drawn for many."""
    count = logits.shape[1]
    padding = ((0, 0), (0, -count % _GROUP))
    groups = jnp.pad(logits, padding, constant_values=jnp.finfo(logits.dtype).min)
    groups = groups.reshape(logits.shape[0], -1, _GROUP)
    key_group, key_member = jax.random.split(rng_key)
    group = jax.random.categorical(key_group, jax.nn.logsumexp(groups, axis=-1), shape=shape)
    members = groups[jnp.arange(logits.shape[0]), group]
    action = group * _GROUP + jax.random.categorical(key_member, members)
    return jnp.minimum(action, count - 1)  # of a row without a legal action, padding may have been chosen


def improvement_to(
    weights: Float[Array, "batch actions"],
    rng_key: Key,
    root: Root,
    returns: Float[Array, "batch actions"],
    invalid_actions: LegalityMask | None,
    **known: Any,
) -> Improvement:
    """Returns the improvement to a policy, an action sampled from it and its mean return."""
    return Improvement(
        action=sample(rng_key, jnp.log(weights), invalid_actions),
        action_weights=weights,
        value=or_roots(expected_value(weights, returns), root, invalid_actions),
        **known,
    )


def by_action(
    amounts: Float[Array, "batch samples"], samples: Integer[Array, "batch samples"], num_actions: int
) -> Float[Array, "batch actions"]:
    """Adds up what belongs to the samples of each action.

    A sum with the samples one-hot would be [B, N, A]; scattering row by row is not.
    """
    empty = jnp.zeros((amounts.shape[0], num_actions), amounts.dtype)
    return jax.vmap(lambda row, action, amount: row.at[action].add(amount))(empty, samples, amounts)


def no_illegal(
    weights: Float[Array, "batch actions"], invalid_actions: LegalityMask | None
) -> Float[Array, "batch actions"]:
    """Takes the weights of illegal actions away."""
    return weights if invalid_actions is None else jnp.where(invalid_actions.astype(bool), 0, weights)


def or_roots(
    value: Float[Array, "batch"], root: Root, invalid_actions: LegalityMask | None
) -> Float[Array, "batch"]:
    """Returns an improved value, and the root's own where nothing is legal, as it cannot be improved."""
    if invalid_actions is None:
        return value
    return jnp.where(jnp.all(invalid_actions.astype(bool), axis=-1), root.value, value)


def bounded(logits: Float[Array, "*batch actions"]) -> Float[Array, "*batch actions"]:
    """Bounds logits, so that differences of any two are finite, and no legal one is as low as a mask."""
    largest = float(jnp.finfo(logits.dtype).max) / 8
    return jnp.clip(logits, -largest, largest)


def expected_value(weights: Float[Array, "batch actions"], qvalues: Float[Array, "batch actions"]) -> Array:
    """Returns Σ w·q over the actions that have weight; an unknown q without weight does no harm."""
    return jnp.sum(weights * jnp.where(weights > 0, qvalues, 0), axis=-1)


def all_actions(root: Root) -> Integer[Array, "batch actions"]:
    """Returns every action of every root."""
    batch, num_actions = root.prior_logits.shape
    return jnp.broadcast_to(jnp.arange(num_actions)[None], (batch, num_actions))
