"""Data sets: every episode of an online DQN's training (paper, appendix "BSuite Dataset"), or of a policy."""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dm_env
import numpy as np
from jaxtyping import Float

from rosmo import dqn, envs, policies
from rosmo.dqn import DQNSettings, GreedyPolicy
from rosmo.types import Trajectory

_IMAGES = DQNSettings(
    hidden=(128,), channels=(16,), learning_rate=5e-4, batch=32, exploration=0.2, epsilon=0.02
)

# Tuned for the paper's average returns as much as for a good last policy: a data set is of use because its
# behaviour is mixed. Environments that are not here get the defaults; add yours, or pass `settings`.
SETTINGS: dict[str, DQNSettings] = {
    "catch": DQNSettings(episodes=2000, n_step=1, steps_per_update=2.0, exploration=0.2),
    "cartpole": DQNSettings(
        episodes=1000,
        n_step=10,
        reward_scale=0.1,
        learning_rate=5e-4,
        steps_per_update=16.0,
        replay=1_000_000,  # all: where the last episodes alone are kept, it forgets how poles fall
        exploration=1.0,
    ),
    "mountain_car": DQNSettings(
        episodes=500,
        n_step=10,
        observation_scale=(1.0, 10.0, 1.0),  # the speed stays below 0.07
        reward_scale=0.1,
        learning_rate=2e-3,
        replay=20_000,  # long returns of early, aimless driving would spoil the last policy
    ),
    "minatar/asterix": dataclasses.replace(_IMAGES, episodes=800),
    "minatar/breakout": dataclasses.replace(_IMAGES, episodes=2500, steps_per_update=2.0),
    "minatar/freeway": dataclasses.replace(_IMAGES, episodes=50),
    "minatar/seaquest": dataclasses.replace(_IMAGES, episodes=1200),
    "minatar/space_invaders": dataclasses.replace(_IMAGES, episodes=800),
}

# A whole screen enters the first layer: little is kept of it, and little is learned.
_ATARI = DQNSettings(episodes=200, hidden=(64,), observation_scale=1 / 255, replay=5_000, epsilon=0.1)

_UPDATES_PER_CALL = 4  # calls cost more than updates do; an episode of catch is due four


@dataclass(frozen=True)
class Collected:
    """A training on record.

    Attributes:
        episodes: all of them in order, each with L + 1 steps for L actions, as NumPy arrays.
        returns: their returns.
        policy: the greedy policy that the training ended with.
        settings: what it was made with, ready for JSON.
    """

    episodes: list[Trajectory]
    returns: Float[np.ndarray, "episodes"]
    policy: GreedyPolicy
    settings: dict[str, Any]


def collect(
    environment: str,
    *,
    noise: float = 0.0,
    seed: int = 0,
    episodes: int | None = None,
    settings: DQNSettings | None = None,
    on_episode: Callable[[int, int, float], None] | None = None,
    keep: Callable[[Trajectory], Trajectory] = lambda episode: episode,
) -> Collected:
    """Trains a DQN in an environment and records every episode; the same arguments give the same data.

    Args:
        environment: a name from `rosmo.envs.names()`; its actions must be discrete.
        noise: how often the environment replaces the agent's action by a uniform one; the record has the
            action that the agent meant.
        seed: seeds the environment, the network, the exploration and the replay.
        episodes: length of the training; the settings' by default.
        settings: of the DQN; those in `SETTINGS` by default.
        on_episode: called after each episode with the number done, the total and the episode's return.
        keep: makes what is recorded of an episode that the agent has learned from.
    """
    settings = settings or SETTINGS.get(environment)
    settings = settings or (_ATARI if envs.is_atari(environment) else DQNSettings())
    if episodes is not None:
        settings = dataclasses.replace(settings, episodes=episodes)
    env = envs.make(environment, seed=seed, noise=noise)
    agent = _Agent(env, settings, seed)
    recorded: list[Trajectory] = []
    returns: list[float] = []
    for done in range(1, settings.episodes + 1):
        episode = _play(env, agent.explore)
        agent.learn(episode)
        recorded.append(keep(episode))
        returns.append(_return(episode))
        if on_episode:
            on_episode(done, settings.episodes, returns[-1])
    about = {"environment": environment, "noise": noise, "seed": seed, **dataclasses.asdict(settings)}
    return Collected(recorded, np.array(returns), agent.policy, about)


def record(
    environment: str, policy: str, *, episodes: int, noise: float = 0.0, seed: int = 0
) -> Iterator[Trajectory]:
    """Plays a written policy and yields its episodes; the same arguments give the same data.

    Args:
        environment: a name from `rosmo.envs.names()`; its actions must be discrete.
        policy: a name from `rosmo.policies.names()`.
        episodes: how many to play.
        noise: how often the environment replaces the policy's action by a uniform one.
        seed: seeds the environment and the policy.
    """
    env = envs.make(environment, seed=seed, noise=noise)
    rng = np.random.default_rng(seed)
    actions = envs.number_of_actions(env)
    for _ in range(episodes):
        built = policies.get(policy)(num_actions=actions, rng=rng)
        if not callable(built):
            raise TypeError(f"the policy {policy!r} must build a function of an observation, got {built!r}")
        yield _play(env, _checked(built, policy, actions))


def _checked(act: Callable[..., Any], name: str, num_actions: int) -> policies.Policy:
    """Refuses what is no action, where an environment might take it for another."""

    def checked(observation: np.ndarray) -> int:
        try:
            action = act(observation)
        except Exception as error:
            raise RuntimeError(f"the policy {name!r} failed ({type(error).__name__}: {error})") from error
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < num_actions:
            raise ValueError(
                f"the policy {name!r} chose {action!r}: actions are whole numbers from 0 to {num_actions - 1}"
            )
        return index

    return checked


def greedy_score(
    collected: Collected, environment: str, *, episodes: int = 10, noise: float = 0.0, seed: int = 10_000
) -> float:
    """Returns the mean return of the last greedy policy in fresh episodes, by default without noise."""
    env = envs.make(environment, seed=seed, noise=noise)
    return float(np.mean([_return(_play(env, collected.policy)) for _ in range(episodes)]))


class _Agent:
    """A DQN that acts through a whole episode and then learns, so that its weights reach the host once."""

    def __init__(self, env: dm_env.Environment, settings: DQNSettings, seed: int):
        self._num_actions = envs.number_of_actions(env)
        self._settings = settings
        shape = envs.observation_shape(env)
        size = math.prod(shape)
        factors = np.size(settings.observation_scale)
        if factors not in (1, size):
            raise ValueError(
                f"the DQN's observation_scale has {factors} factors for observations of {size} numbers"
            )
        self._state = dqn.init(dqn.q_network(seed, shape, self._num_actions, settings))
        self._replay = dqn.Replay(settings.replay)
        self._rng = np.random.default_rng(seed)
        self._episode = 0
        self._owed = 0.0
        self.policy = dqn.on_host(self._state.target, settings)

    def explore(self, observation: np.ndarray) -> int:
        """Acts ε-greedily. The target's weights, an average, make for a steadier policy than the latest."""
        settings = self._settings
        decay = self._episode / max(1.0, settings.exploration * settings.episodes)
        if self._rng.random() < max(settings.epsilon, 1 - (1 - settings.epsilon) * decay):
            return int(self._rng.integers(self._num_actions))
        return self.policy(observation)

    def learn(self, episode: Trajectory) -> None:
        """Takes the updates that the steps of an episode are due."""
        settings = self._settings
        self._replay.add(dqn.n_step_transitions(episode, settings))
        self._owed += (len(episode.action) - 1) / settings.steps_per_update
        rate = np.float32(settings.learning_rate * (1 - self._episode / settings.episodes))
        while self._owed >= _UPDATES_PER_CALL:
            batches = self._replay.sample(self._rng, (_UPDATES_PER_CALL, settings.batch))
            self._state = dqn.update(self._state, batches, rate, np.float32(settings.target_rate))
            self._owed -= _UPDATES_PER_CALL
        self._episode += 1
        self.policy = dqn.on_host(self._state.target, settings)


def _play(env: dm_env.Environment, policy: Callable[[np.ndarray], int]) -> Trajectory:
    """Plays one episode and returns it in the RLDS convention."""
    step = env.reset()
    observations, actions, rewards, discounts = [step.observation], [], [], []
    while not step.last():
        actions.append(policy(step.observation))
        step = env.step(actions[-1])
        observations.append(step.observation)
        rewards.append(step.reward)
        discounts.append(step.discount)
    observation = np.stack(observations)
    is_first, is_last = np.zeros((2, len(observations)), bool)
    is_first[0] = is_last[-1] = True
    return Trajectory(
        observation=observation.astype(np.float32) if observation.dtype == np.float64 else observation,
        action=np.array([*actions, 0], np.int32),
        reward=np.array([*rewards, 0], np.float32),
        discount=np.array([*discounts, 0], np.float32),
        is_first=is_first,
        is_last=is_last,
        is_terminal=is_last & (step.discount == 0),
    )


def _return(episode: Trajectory) -> float:
    return float(episode.reward.sum(dtype=np.float64))
