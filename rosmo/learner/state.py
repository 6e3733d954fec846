"""What training changes, and how it is laid out over a mesh."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jaxtyping import Array, Int

from rosmo.agents import Trained
from rosmo.types import Key, Params, is_array


class TrainState(eqx.Module):
    """Everything that training changes, and the key that never does."""

    params: Params
    target_params: Params
    opt_state: optax.OptState
    step: Int[Array, ""]
    key: Key


def fresh_state(agent: Trained, optimizer: optax.GradientTransformation, key: Key) -> TrainState:
    """Returns the state that training begins with."""
    key_params, key_state = jax.random.split(key)
    params = agent.init(key_params)
    return TrainState(
        params=params,
        # A copy: donation must not hand the same buffer over twice.
        target_params=jax.tree.map(lambda x: jnp.copy(x) if is_array(x) else x, params),
        opt_state=optimizer.init(eqx.filter(params, eqx.is_inexact_array)),
        step=jnp.zeros((), jnp.int32),
        key=key_state,
    )


def laid_out(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """Returns the shape of an array, with a sharding."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def not_finite(arrays: TrainState) -> dict[str, Array]:
    """Returns for each trained part of a state whether any of its numbers is not finite."""

    def any_bad(tree: Any) -> Array:
        leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
        return jnp.any(jnp.stack([~jnp.all(jnp.isfinite(x)) for x in leaves] or [jnp.zeros((), bool)]))

    parts = {"parameters": arrays.params, "target parameters": arrays.target_params}
    return {name: any_bad(tree) for name, tree in (parts | {"optimizer": arrays.opt_state}).items()}
