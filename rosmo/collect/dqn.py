"""A double DQN on n-step returns: settings, replay, updates, and the greedy policy on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Shaped

from rosmo.collect.host import HostNetwork, Network, new_network, on_host
from rosmo.types import Trajectory


@dataclass(frozen=True)
class DQNSettings:
    """How a DQN explores and learns.

    Attributes:
        unit: what the length of its training is counted in.
        episodes: length of the training.
        hidden: sizes of the hidden layers.
        channels: of the 3×3 convolutions before them, for images that are learned from as they are; without
            any, an observation is flattened.
        discount: γ.
        n_step: rewards before the bootstrap.
        observation_scale: multiplies the flattened observations, one factor or one for each number.
        reward_scale: multiplies the rewards that it learns from.
        learning_rate: of Adam at the start; it falls to 0 over the training.
        batch: transitions in an update.
        steps_per_update: environment steps between two updates.
        target_rate: share of the online weights that enters the target's in an update.
        replay: transitions kept.
        exploration: share of the episodes over which ε falls to `epsilon`.
        epsilon: share of uniform actions after that.
    """

    unit: ClassVar[str] = "episodes"
    episodes: int = 1000
    hidden: tuple[int, ...] = (64, 64)
    channels: tuple[int, ...] = ()
    discount: float = 0.99
    n_step: int = 5
    observation_scale: float | tuple[float, ...] = 1.0
    reward_scale: float = 1.0
    learning_rate: float = 1e-3
    batch: int = 128
    steps_per_update: float = 4.0
    target_rate: float = 0.01
    replay: int = 100_000
    exploration: float = 0.1
    epsilon: float = 0.05

    def __post_init__(self) -> None:
        """Refuses what could not train."""
        for name in ("episodes", "n_step", "batch", "replay", "steps_per_update"):
            if getattr(self, name) <= 0:
                raise ValueError(f"the DQN's {name} must be above 0, got {getattr(self, name)}")
        for name in ("discount", "target_rate", "exploration", "epsilon"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"the DQN's {name} must lie in [0, 1], got {getattr(self, name)}")
        if self.channels and self.observation_scale != 1:
            raise ValueError("the DQN's observation_scale is for vectors: images are read as they are")


class Transitions(NamedTuple):
    """n-step transitions with any leading axes."""

    observation: Shaped[Any, "..."]
    action: Int[Any, "*batch"]
    reward: Float[Any, "*batch"]
    discount: Float[Any, "*batch"]
    next_observation: Shaped[Any, "..."]


def n_step_transitions(episode: Trajectory, settings: DQNSettings) -> Transitions:
    """Sums n rewards from every step of an episode, and bootstraps where the sum stops.

    Past a termination the discount is 0; at a truncation the sum stops early, at the last real observation.
    """
    count = len(episode.action) - 1
    observation = episode.observation
    if not settings.channels:
        observation = observation.reshape(count + 1, -1).astype(np.float32)
        observation *= np.asarray(settings.observation_scale, np.float32)
    reward = np.zeros(count, np.float32)
    factor = np.ones(count, np.float32)
    for k in range(min(settings.n_step, count)):
        reward[: count - k] += factor[: count - k] * episode.reward[k:count]
        factor[: count - k] *= np.float32(settings.discount) * episode.discount[k:count]
    reward *= np.float32(settings.reward_scale)
    bootstrap = np.minimum(np.arange(count) + settings.n_step, count)
    return Transitions(observation[:-1], episode.action[:-1], reward, factor, observation[bootstrap])


class Replay:
    """The latest transitions, on the host."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.size = 0
        self._next = 0
        self._rows: Transitions | None = None

    def add(self, rows: Transitions) -> None:
        """Adds transitions in the place of the oldest."""
        if self._rows is None:
            self._rows = Transitions(*(np.zeros((self.capacity, *x.shape[1:]), x.dtype) for x in rows))
        count = len(rows.action)
        index = (self._next + np.arange(count)) % self.capacity
        for store, new in zip(self._rows, rows, strict=True):
            store[index] = new
        self._next = (self._next + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Transitions:
        """Draws uniformly, with replacement."""
        assert self._rows is not None
        index = rng.integers(self.size, size=shape)
        return Transitions(*(x[index] for x in self._rows))


class DQNState(NamedTuple):
    """What learning carries along."""

    online: Network
    target: Network
    moments: optax.OptState


_adam = optax.scale_by_adam(eps=1e-5)


def q_network(
    seed: int, observation_shape: Sequence[int], num_actions: int, settings: DQNSettings
) -> Network:
    """Returns a fresh Q-network."""
    sizes = {"channels": settings.channels, "hidden": settings.hidden}
    return new_network(seed, observation_shape, num_actions, **sizes)


def init(online: Network) -> DQNState:
    """Starts a learner of a Q-network."""
    return DQNState(online, jax.tree.map(jnp.copy, online), _adam.init(eqx.filter(online, eqx.is_array)))


def _loss(online: Network, target: Network, batch: Transitions) -> Float[Array, ""]:
    """Huber loss of double Q-learning."""
    rows = jnp.arange(len(batch.action))
    best = jnp.argmax(jax.vmap(online)(batch.next_observation), axis=-1)
    bootstrap = jax.vmap(target)(batch.next_observation)[rows, best]
    goal = jax.lax.stop_gradient(batch.reward + batch.discount * bootstrap)
    return jnp.mean(optax.huber_loss(jax.vmap(online)(batch.observation)[rows, batch.action], goal))


@partial(jax.jit, donate_argnums=0)
def update(
    state: DQNState, batches: Transitions, learning_rate: Float[Array, ""], target_rate: Float[Array, ""]
) -> DQNState:
    """Takes one gradient step for each of the batches `[updates, batch]`."""

    def step(state: DQNState, batch: Transitions) -> tuple[DQNState, None]:
        gradient = jax.grad(_loss)(state.online, state.target, batch)
        with jax.numpy_dtype_promotion("standard"):  # optax's bias correction mixes integers and floats
            direction, moments = _adam.update(gradient, state.moments)
        online = jax.tree.map(lambda x, d: x - learning_rate * d, state.online, direction)
        target = jax.tree.map(lambda new, old: old + target_rate * (new - old), online, state.target)
        return DQNState(online, target, moments), None

    return jax.lax.scan(step, state, batches)[0]


@dataclass(frozen=True)
class GreedyPolicy:
    """The greedy policy of a Q-network on the host, for one observation at a time."""

    network: HostNetwork

    def values(self, observation: Shaped[np.ndarray, "..."]) -> Float[np.ndarray, "actions"]:
        """Returns the value of every action at one observation."""
        return self.network(observation[None])[0]

    def __call__(self, observation: Shaped[np.ndarray, "..."]) -> int:
        return int(self.values(observation).argmax())


def greedy_policy(network: Network, settings: DQNSettings) -> GreedyPolicy:
    """Copies a Q-network to the host, for observations as the environment gives them."""
    return GreedyPolicy(on_host(network, settings.observation_scale))
