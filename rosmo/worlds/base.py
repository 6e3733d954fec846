"""What a world is: a model that is learned before an agent, and imagined in by it.

A world filters what was observed into states, and imagines what actions would lead to. Time runs as in RLDS:
the state at step t + 1 is a function of the state at t and of `action_t`, and what is imagined on the way
there is `reward_t` and `discount_t`, which follow `action_t`.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, PyTree, Shaped

from rosmo.registry import Registry
from rosmo.types import Keys, Trajectory

registry = Registry("world", requires=("key", "observation_shape", "num_actions"))

State = PyTree  # of arrays [B, ...]


class Imagined(NamedTuple):
    """One step of imagination: the state that an action leads to, and what follows the action."""

    state: State
    reward: Float[Array, "batch"]
    discount: Float[Array, "batch"]  # the probability that the episode goes on, without the agent's γ
    uncertainty: Float[Array, "batch"]  # how far the members of an ensemble are apart; 0 without one


@runtime_checkable
class World(Protocol):
    """A pytree of arrays that answers what agents ask of a world; every method takes batches.

    `members` is how many models its ensemble has, 1 without one.
    """

    num_actions: Any
    members: Any

    def begin(self, batch: int) -> State:
        """Returns the states of episodes before their first observations."""
        ...

    def embed(self, observation: Shaped[Array, "batch ..."]) -> Float[Array, "batch embedding"]:
        """Returns what `observe` needs of observations; many at once cost less."""
        ...

    def observe(
        self,
        state: State,
        action: Integer[Array, "batch"],
        embedding: Float[Array, "batch embedding"],
        first: Bool[Array, "batch"],
        keys: Keys,
    ) -> State:
        """Returns the states once an observation is seen, which followed `action` taken in `state`.

        Where `first` is set, the observation begins an episode, and neither counts.
        """
        ...

    def imagine(
        self,
        state: State,
        action: Integer[Array, "batch"],
        keys: Keys,
        member: Integer[Array, "batch"] | None = None,
    ) -> Imagined:
        """Imagines a step with a member of the ensemble, each with one drawn by its key where not given."""
        ...

    def features(self, state: State) -> Float[Array, "batch features"]:
        """Returns states as vectors, for networks that stand on the world."""
        ...

    def reconstruct(self, state: State) -> Float[Array, "batch ..."]:
        """Returns the mean of the observations that states stand for."""
        ...


class Steps(NamedTuple):
    """What the steps of windows `[B, T]` are to a world.

    `observed` steps have an observation of an episode, and not of padding; a `first` one is seen without any
    before it, at the start of the window or of an episode; a `reached` one was led to by the action of the
    step before, which its `action`, `reward` and `discount` are then of.
    """

    observed: Bool[Array, "batch time"]
    first: Bool[Array, "batch time"]
    reached: Bool[Array, "batch time"]
    action: Integer[Array, "batch time"]
    reward: Float[Array, "batch time"]
    discount: Float[Array, "batch time"]


def align(batch: Trajectory) -> Steps:
    """Lays what led to each step beside it, over any number of episodes in a window."""
    start = jnp.zeros_like(batch.is_first).at[:, 0].set(True)
    after_end = _before(batch.is_last)
    first = start | batch.is_first
    reached = ~first & ~after_end
    # Padding repeats a last step: it is neither reached nor first, until an episode begins again.
    observed = first | reached
    action, reward, discount = (
        jnp.where(reached, _before(x), 0) for x in (batch.action, batch.reward, batch.discount)
    )
    return Steps(observed, first | ~observed, reached, action, reward, discount)


def _before(x: Shaped[Array, "batch time"]) -> Shaped[Array, "batch time"]:
    return jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], axis=1)


def filter_window(world: World, batch: Trajectory, keys: Keys) -> State:
    """Returns the states `[B, T, ...]` of windows, each as it is known once its observation is seen.

    Episodes that begin inside of a window begin anew; those under way at its start are known from there on.
    States of padding mean nothing.
    """
    steps, (count, length) = align(batch), batch.action.shape
    shown = batch.observation
    shown = jnp.where(steps.observed.reshape(*steps.observed.shape, *(1,) * (shown.ndim - 2)), shown, 0)
    embedding = world.embed(shown.reshape(-1, *shown.shape[2:])).reshape(count, length, -1)
    draws = jax.vmap(lambda key: jax.random.split(key, length))(keys)

    def step(state: State, seen: tuple) -> tuple[State, State]:
        state = world.observe(state, *seen)
        return state, state

    seen = (steps.action, embedding, steps.first, draws)
    seen = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), seen)
    _, states = jax.lax.scan(step, world.begin(count), seen)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)


def last_acted(batch: Trajectory) -> Integer[Array, "batch"]:
    """Returns for each window its last step with an action, which is seen with the most steps before it."""
    acted = align(batch).observed & ~batch.is_last
    index = jnp.where(acted, jnp.arange(acted.shape[1])[None], 0)
    return jnp.max(index, axis=1)


def states_at(states: State, index: Integer[Array, "batch"]) -> State:
    """Returns of states `[B, T, ...]` one for each window."""
    return jax.tree.map(lambda x: jax.vmap(lambda row, i: row[i])(x, index), states)
