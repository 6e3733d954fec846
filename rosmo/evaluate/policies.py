"""What the policies of trained agents are on the steps of a data set: action probabilities."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Shaped

from rosmo.agents import Agent, Remembers
from rosmo.evaluate.playing import on_one_device
from rosmo.types import Key, Params, Trajectory, is_array

_CHUNK = 1_024  # steps that are asked about together
_DRAWS = 64  # of actions, where an agent does not say its probabilities


@runtime_checkable
class SaysProbabilities(Protocol):
    """An agent that says how likely each action is to be taken by it."""

    def probabilities(
        self,
        params: Params,
        key: Key,
        observation: Shaped[Array, "batch ..."],
        *,
        invalid_actions: Bool[Array, "batch actions"] | None = None,
    ) -> Float[Array, "batch actions"]:
        """Returns the probabilities of its sampled actions."""
        ...


def action_probabilities(
    agent: Agent | Remembers,
    params: Params,
    steps: Trajectory,
    *,
    num_actions: int,
    greedy: bool = False,
    seed: int = 0,
) -> Float[np.ndarray, "steps actions"]:
    """Returns the probability of each action in the observation of each step `[N]`, closing steps too.

    Greedy actions have a probability of one. An agent that does not say its probabilities is asked for 64
    actions in each observation, whose shares they then are.

    Args:
        agent: whose policy it is.
        params: of the agent.
        steps: whose observations are asked about.
        num_actions: that there are.
        greedy: whether the agent takes its greedy actions.
        seed: of what is random in the policy, such as a search.
    """
    if isinstance(agent, Remembers):
        raise TypeError(
            f"{type(agent).__name__} acts on what it remembers of an episode, and single steps do not tell "
            "its policy: only agents without a memory can be asked"
        )
    arrays = on_one_device(params)
    static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]

    @jax.jit
    def ask(arrays: Params, key: Key, shown: Array, invalid: Array | None) -> Array:
        masks = {} if invalid is None else {"invalid_actions": invalid}
        params = eqx.combine(arrays, static)
        if not greedy and isinstance(agent, SaysProbabilities):
            return agent.probabilities(params, key, shown, **masks)

        def one_hot(key: Key) -> Array:
            return jax.nn.one_hot(agent.act(params, key, shown, greedy=greedy, **masks), num_actions)

        return one_hot(key) if greedy else jnp.mean(jax.vmap(one_hot)(jax.random.split(key, _DRAWS)), axis=0)

    def ask_rows(rows: np.ndarray, part: int) -> Array:
        invalid = None if steps.invalid_actions is None else jnp.asarray(steps.invalid_actions[rows])
        key = jax.random.fold_in(jax.random.key(seed), part)
        return ask(arrays, key, jnp.asarray(np.asarray(steps.observation)[rows]), invalid)

    return _in_parts(ask_rows, len(steps.action))


def ask_all(
    function: Callable[[Params, Array], Array], params: Params, observation: Shaped[np.ndarray, "steps ..."]
) -> Shaped[np.ndarray, "steps ..."]:
    """Asks a function of parameters and observations `[B, ...]`, such as `agent.values`, about many."""
    arrays, static = on_one_device(params), eqx.partition(params, is_array)[1]
    ask = jax.jit(lambda arrays, shown: function(eqx.combine(arrays, static), shown))
    return _in_parts(lambda rows, _: ask(arrays, jnp.asarray(observation[rows])), len(observation))


def _in_parts(ask: Callable[[np.ndarray, int], Array], count: int) -> np.ndarray:
    """Asks about some rows at a time, always as many, so that it compiles once."""
    chunk = min(_CHUNK, count)
    rows = (np.minimum(np.arange(first, first + chunk), count - 1) for first in range(0, count, chunk))
    return np.concatenate([np.asarray(ask(some, part)) for part, some in enumerate(rows)])[:count]
