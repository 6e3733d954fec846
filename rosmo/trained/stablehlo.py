"""The acting function of a trained agent as StableHLO, which runs with jax alone."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from rosmo.agents import Remembers, TrainedAgent
from rosmo.agents.trained import key_of
from rosmo.runs.damage import first_line

PLATFORMS = ("cpu", "cuda", "tpu")


def acting_function(trained: TrainedAgent, dtype: str, platforms: Sequence[str] = PLATFORMS) -> bytes:
    """Returns what `jax.export.deserialize` makes a function of, with the parameters inside.

    It is `call(observation, seed, greedy) -> action [B]` of observations `[B, ...]`, for any B.

    Args:
        trained: the agent.
        dtype: of the observations.
        platforms: that it is to run on.
    """
    agent = trained.agent
    if isinstance(agent, Remembers):
        raise TypeError(
            f"{type(agent).__name__} carries a memory through an episode, and what is exported here has "
            "none: export it without --format, and load it by rosmo.load"
        )
    arrays, static = eqx.partition(trained.params, eqx.is_array)
    arrays = jax.tree.map(np.asarray, arrays)  # constants of the program

    def act(observation: Any, seed: Any, greedy: Any) -> Any:
        params, key = eqx.combine(arrays, static), key_of(seed, 0)

        def choose(by_weight: bool) -> Any:
            return agent.act(params, key, observation, greedy=by_weight).astype(jnp.int32)

        return jax.lax.cond(greedy, lambda: choose(True), lambda: choose(False))

    (batch,) = export.symbolic_shape("B")
    shapes = (
        jax.ShapeDtypeStruct((batch, *trained.observation_shape), dtype),
        jax.ShapeDtypeStruct((), np.int32),
        jax.ShapeDtypeStruct((), np.bool_),
    )
    try:
        exported = export.export(jax.jit(act), platforms=platforms)(*shapes)
    except (TypeError, ValueError, NotImplementedError, jax.errors.JAXTypeError) as error:
        raise ValueError(
            f"{type(agent).__name__} cannot be exported for batches of any size ({first_line(error)}): where "
            "a part of yours asks len(x) or computes with it, have it take x.shape[0] as it is"
        ) from error
    return bytes(exported.serialize())
