"""What one update of an agent computes, counted in its trace."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.extend import core
from jaxtyping import Float, Integer

from rosmo.agents import Trained
from rosmo.costs.flops import count, count_flops
from rosmo.networks.base import AbstractDynamics, Networks, State
from rosmo.types import Params, Trajectory

_MARK = "imagined_step_from_state_of_"


class Compute(NamedTuple):
    """The work of one update.

    `model_calls` counts the states that the dynamics imagines a next state of, for targets and for the loss.
    An agent that reads only the reward head (as a critic) imagines none.
    """

    model_calls: int
    flops: int


def update_compute(agent: Trained, *, batch_size: int, observation_shape: Sequence[int]) -> Compute:
    """Returns the work of one update: the loss of a batch, with its targets, and the gradient.

    Nothing is computed but the trace, and nothing is counted for targets that are kept between updates: both
    numbers are of an update that computes its own.

    Args:
        agent: whose loss it is.
        batch_size: windows in a batch.
        observation_shape: shape of one observation.
    """
    params = eqx.filter_eval_shape(agent.init, jax.random.key(0))
    arrays, static = eqx.partition(params, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    batch = shapes_of_batch(batch_size, agent.window, observation_shape)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch_size))

    def loss(arrays: Params, target: Params, batch: Trajectory, keys: Array) -> Array:
        params, target = (_mark(eqx.combine(x, static)) for x in (arrays, target))
        return agent.loss(params, target, batch, keys)[0]

    # Traced once, and the gradient taken of the trace: a search is slow to trace.
    traced = jax.make_jaxpr(loss)(arrays, arrays, batch, keys)
    call = core.jaxpr_as_fun(traced)
    gradient = eqx.filter_grad(lambda trained, rest: call(*trained, *rest)[0])
    shapes = jax.tree.leaves(arrays), jax.tree.leaves((arrays, batch, keys))
    return Compute(count(_imagined_states, call, *traced.in_avals), count_flops(gradient, *shapes))


def shapes_of_batch(
    batch_size: int, window: int, observation_shape: Sequence[int], dtype: Any = jnp.float32
) -> Trajectory:
    """Returns the shapes of a batch of windows, with observations of a shape and type."""

    def shape(dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((batch_size, window, *rest), dtype)

    return eqx.filter_eval_shape(
        Trajectory,
        observation=shape(dtype, *observation_shape),
        action=shape(jnp.int32),
        reward=shape(jnp.float32),
        discount=shape(jnp.float32),
        is_first=shape(jnp.bool_),
        is_last=shape(jnp.bool_),
        is_terminal=shape(jnp.bool_),
    )


class _Marked(AbstractDynamics):
    """A dynamics whose every call can be found in a trace, with the size of the state of one call."""

    dynamics: AbstractDynamics

    def __call__(
        self, state: State, action: Integer[Array, ""]
    ) -> tuple[State, Float[Array, "*members reward_bins"]]:
        """Takes one step inside a compiled call whose name says how large a single state is."""

        def step(state: State, action: Array) -> Any:
            return self.dynamics(state, action)

        step.__name__ = f"{_MARK}{jax.tree.leaves(state)[0].size}"
        return jax.jit(step)(state, action)


def _mark(params: Params) -> Params:
    def mark(part: Any) -> Any:
        return part._replace(dynamics=_Marked(part.dynamics)) if isinstance(part, Networks) else part

    return jax.tree.map(mark, params, is_leaf=lambda part: isinstance(part, Networks))


def _imagined_states(equation: Any, read: set[core.Var]) -> int | None:
    name = equation.params.get("name", "")
    if not isinstance(name, str) or not name.startswith(_MARK):
        return None
    state = equation.outvars[0]
    return math.prod(state.aval.shape) // int(name.removeprefix(_MARK)) if state in read else 0
