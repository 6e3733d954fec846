"""What agents share that act in a world: its place in their parameters, and the memory of an episode."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo.agents.base import Trained
from rosmo.networks.frozen import Frozen
from rosmo.types import Key, Trajectory
from rosmo.worlds.base import State, World

WorldBuilder = Callable[[Key], World]


@runtime_checkable
class StandsOnWorld(Trained, Protocol):
    """What is trained in a world that was trained before it."""

    def in_world(self, world: World, windows: Iterable[Trajectory]) -> Trained:
        """Returns the same agent, whose fresh parameters hold this world; `windows` are of its data."""
        ...


class OnWorld(eqx.Module):
    """Parameters: a head that is trained on the features of a world, and the world that is not."""

    head: Any
    world: Frozen


class EpisodeMemory(NamedTuple):
    """What an agent knows of an episode: the state of the world, and the action that it then took."""

    state: State
    action: Integer[Array, "batch"]
    begun: Bool[Array, "batch"]


def initial_memory(params: OnWorld, batch: int) -> EpisodeMemory:
    """Returns the memories of episodes before their first observations."""
    state = params.world.thaw().begin(batch)
    return EpisodeMemory(state, jnp.zeros(batch, jnp.int32), jnp.zeros(batch, bool))


def see(
    world: World, key: Key, observation: Shaped[Array, "batch ..."], memory: EpisodeMemory
) -> tuple[State, Float[Array, "batch features"]]:
    """Returns the states that observations lead to, and their features."""
    keys = jax.random.split(key, len(observation))
    state = world.observe(memory.state, memory.action, world.embed(observation), ~memory.begun, keys)
    return state, world.features(state)


def number_of_features(world: World) -> int:
    """Returns how many features a state of a world has."""
    return eqx.filter_eval_shape(lambda world: world.features(world.begin(1)), world).shape[-1]
