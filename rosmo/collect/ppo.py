"""PPO on many environments at once, for what a DQN does not learn: settings, playing and updates.

Every episode has an environment and a seed of its own. So a training is remembered as seeds and actions, and
what is kept of it is played again.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import dm_env
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float, Integer, Shaped

from rosmo import envs
from rosmo.agents.ppo import PPOSettings, gae, ppo_loss
from rosmo.collect.host import HostNetwork, Network, new_network, on_host
from rosmo.collect.recordings import Played
from rosmo.networks.conv import ConvTorso
from rosmo.types import Key, refuse_counts

_SETTINGS = PPOSettings(
    environments=128,
    steps=64,
    minibatches=16,
    learning_rate=2.5e-3,
    clip=0.2,
    clip_value=False,
)


@dataclasses.dataclass(frozen=True)
class PPOTraining:
    """How long PPO trains, on what network, and how much is kept of it.

    Args:
        unit: what the length of its training is counted in.
        transitions: length of the training.
        kept: at most so many transitions are kept, by episodes taken evenly over the training.
        channels: of the 3×3 convolutions, for images that are learned from as they are; without any, an
            observation is flattened.
        hidden: sizes of the layers after them.
        ppo: how it learns.
    """

    unit: ClassVar[str] = "transitions"
    transitions: int = 1_500_000
    kept: int = 200_000
    channels: tuple[int, ...] = (16,)
    hidden: tuple[int, ...] = (128,)
    ppo: PPOSettings = _SETTINGS

    def __post_init__(self):
        refuse_counts(transitions=self.transitions, kept=self.kept)

    @property
    def batches(self) -> int:
        """Batches of the whole training, one at least."""
        return max(1, self.transitions // (self.ppo.environments * self.ppo.steps))


class Batch(NamedTuple):
    """What all environments played between two updates, `[time, environments]`."""

    observation: Shaped[Any, "time environments ..."]
    action: Integer[Any, "time environments"]
    log_prob: Float[Any, "time environments"]
    value: Float[Any, "time environments"]
    reward: Float[Any, "time environments"]
    discount: Float[Any, "time environments"]
    next_value: Float[Any, "time environments"]
    is_end: Bool[Any, "time environments"]


def train(
    environment: str,
    settings: PPOTraining,
    *,
    seed: int = 0,
    noise: float = 0.0,
    on_batch: Callable[[int, list[Played]], None] = lambda transitions, played: None,
) -> tuple[list[Played], HostNetwork]:
    """Trains PPO, and returns every episode that it ended, in that order, and the last network.

    Args:
        environment: a name from `rosmo.envs.names()`.
        settings: how.
        seed: of the network, the environments and the actions.
        noise: how often an environment replaces an action by a uniform one.
        on_batch: called after each batch with the transitions so far and the episodes that ended in it.
    """
    rng = np.random.default_rng(seed)
    tables = Tables(environment, settings.ppo.environments, rng, noise)
    network = _network(seed, tables.observation_shape, tables.num_actions, settings)
    optimizer = settings.ppo.optimizer(settings.batches)
    moments = optimizer.init(eqx.filter(network, eqx.is_array))
    host, played = on_host(network), []
    size = settings.ppo.environments * settings.ppo.steps
    for index in range(settings.batches):
        batch, ended = tables.play(host, settings.ppo.steps)
        key = jax.random.fold_in(jax.random.key(seed), index)
        network, moments = _update(network, moments, batch, key, settings.ppo, optimizer)
        host = on_host(network)
        played += ended
        on_batch((index + 1) * size, ended)
    return played, host


def evenly(played: Sequence[Played], kept: int) -> list[Played]:
    """Takes episodes of at most `kept` transitions in all, evenly over the order in which they ended.

    Whether one is taken hangs on those before it and not on its own length, so that long ones are as likely.
    """
    share = kept / max(1, sum(len(one.actions) for one in played))
    passed = taken = 0
    chosen = []
    for one in played:
        if (taken < share * passed or share >= 1) and taken + len(one.actions) <= kept:
            chosen.append(one)
            taken += len(one.actions)
        passed += len(one.actions)
    return chosen


class Tables:
    """Environments that are played at once, each episode in one of its own."""

    def __init__(self, environment: str, count: int, rng: np.random.Generator, noise: float):
        self._make = partial(envs.make, environment, noise=noise)
        self._rng = rng
        self._tables = [self._open() for _ in range(count)]
        self.num_actions = envs.number_of_actions(self._tables[0].environment)
        self.observation_shape = envs.observation_shape(self._tables[0].environment)

    def play(self, network: HostNetwork, steps: int) -> tuple[Batch, list[Played]]:
        """Plays on for some steps, and returns them and the episodes that ended."""
        rows, ended, cut = [], [], []
        for time in range(steps):
            observation = np.stack([table.observation for table in self._tables])
            action, log_prob, value = self._act(network, observation)
            outcomes = [table.step(int(a)) for table, a in zip(self._tables, action, strict=True)]
            rows.append((observation, action, log_prob, value, *map(np.array, zip(*outcomes, strict=True))))
            for index in np.flatnonzero([table.over for table in self._tables]):
                cut.append((time, index, self._tables[index].observation))
                ended.append(self._tables[index].played())
                self._tables[index] = self._open()
        observation, action, log_prob, value, reward, discount, is_end = map(
            np.stack, zip(*rows, strict=True)
        )
        following = network(np.stack([table.observation for table in self._tables]))[:, -1]
        next_value = np.concatenate([value[1:], following[None]])
        if cut:  # what an episode that was cut off would have been worth
            when, where, last = zip(*cut, strict=True)
            next_value[list(when), list(where)] = network(np.stack(last))[:, -1]
        return Batch(observation, action, log_prob, value, reward, discount, next_value, is_end), ended

    def _act(
        self, network: HostNetwork, observation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        out = network(observation)
        logits, value = out[:, :-1], out[:, -1]
        logits = logits - logits.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        action = (log_probs + self._rng.gumbel(size=logits.shape)).argmax(axis=-1)
        return action.astype(np.int32), log_probs[np.arange(len(action)), action], value

    def _open(self) -> "_Table":
        seed = int(self._rng.integers(2**31))
        return _Table(seed, self._make(seed=seed))


class _Table:
    def __init__(self, seed: int, environment: dm_env.Environment):
        self.environment = environment
        self.observation = environment.reset().observation
        self.over = False
        self._seed, self._actions, self._total = seed, [], 0.0

    def step(self, action: int) -> tuple[np.float32, np.float32, bool]:
        step = self.environment.step(action)
        self._actions.append(action)
        self._total += step.reward
        self.observation, self.over = step.observation, step.last()
        return np.float32(step.reward), np.float32(step.discount), self.over

    def played(self) -> Played:
        return Played(self._seed, np.array(self._actions, np.uint8), self._total)


def _network(seed: int, shape: Sequence[int], num_actions: int, settings: PPOTraining) -> Network:
    """Logits and a value, which begin near 0: a first policy that prefers nothing."""
    sizes = {"channels": settings.channels, "hidden": settings.hidden}
    network = new_network(seed, shape, num_actions + 1, **sizes)
    return eqx.tree_at(_last_weight, network, 0.1 * _last_weight(network))


def _last_weight(network: Network) -> Any:
    return (network.mlp if isinstance(network, ConvTorso) else network).layers[-1].weight


@partial(jax.jit, static_argnames=("settings", "optimizer"), donate_argnums=(0, 1))
def _update(
    network: Network,
    moments: optax.OptState,
    batch: Batch,
    key: Key,
    settings: PPOSettings,
    optimizer: optax.GradientTransformation,
) -> tuple[Network, optax.OptState]:
    """Takes the epochs of updates that a batch is due."""
    discount = settings.discount * batch.discount
    ends = {"lambda_": settings.lambda_, "is_end": batch.is_end}
    advantage = gae(batch.reward, discount, batch.value, batch.next_value, **ends)
    steps = (batch.observation, batch.action, batch.log_prob, batch.value, advantage, advantage + batch.value)
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

    def loss(network: Network, rows: Integer[Array, "rows"]) -> Float[Array, ""]:
        observation, action, log_prob, old_value, advantage, target = jax.tree.map(lambda x: x[rows], steps)
        out = jax.vmap(network)(observation)
        weights = {name: getattr(settings, name) for name in ("clip", "entropy", "value_weight", "normalise")}
        held = {"old_value": old_value} if settings.clip_value else {}
        return ppo_loss(out[:, :-1], out[:, -1], action, log_prob, advantage, target, **weights, **held)[0]

    def step(state, rows):
        network, moments = state
        gradient = jax.grad(loss)(network, rows)
        with jax.numpy_dtype_promotion("standard"):  # optax's bias correction mixes integers and floats
            changes, moments = optimizer.update(gradient, moments)
        return (eqx.apply_updates(network, changes), moments), None

    size = batch.action.size
    orders = [jax.random.permutation(k, size) for k in jax.random.split(key, settings.epochs)]
    rows = jnp.concatenate(orders).reshape(settings.epochs * settings.minibatches, -1)
    return jax.lax.scan(step, (network, moments), rows)[0]
