"""The training of an online agent as a data set (paper, appendix "BSuite Dataset")."""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dm_env
import numpy as np
from jaxtyping import Float

from rosmo import envs
from rosmo.collect import dqn, ppo
from rosmo.collect.dqn import DQNSettings, GreedyPolicy
from rosmo.collect.ppo import PPOTraining
from rosmo.collect.recording import play, return_of
from rosmo.collect.recordings import Recording, recorded
from rosmo.types import Trajectory

Settings = DQNSettings | PPOTraining

# Tuned for the paper's average returns as much as for a good last policy: a data set is of use because its
# behaviour is mixed. Environments that are not here get the defaults; add yours, or pass `settings`.
SETTINGS: dict[str, Settings] = {
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
    "gym/CartPole-v1": DQNSettings(
        episodes=300, n_step=10, reward_scale=0.1, steps_per_update=2.0, exploration=0.4
    ),
    "minatar/asterix": PPOTraining(),
    "minatar/breakout": PPOTraining(),
    "minatar/freeway": PPOTraining(),
    "minatar/seaquest": PPOTraining(),
    "minatar/space_invaders": PPOTraining(),
}

# A whole screen enters the first layer: little is kept of it, and little is learned.
_ATARI = DQNSettings(episodes=200, hidden=(64,), observation_scale=1 / 255, replay=5_000, epsilon=0.1)

_UPDATES_PER_CALL = 4  # calls cost more than updates do; an episode of catch is due four


@dataclass(frozen=True)
class Collected:
    """A training on record.

    Attributes:
        episodes: those that are kept, in order, each with L + 1 steps for L actions, as NumPy arrays.
        returns: the returns of the whole training, also of episodes that are not kept.
        policy: the greedy policy that the training ended with.
        settings: what it was made with, ready for JSON.
        recording: seeds and actions that play the episodes again, where each has a seed of its own.
    """

    episodes: list[Trajectory]
    returns: Float[np.ndarray, "episodes"]
    policy: GreedyPolicy
    settings: dict[str, Any]
    recording: Recording | None = None


def settings_of(environment: str, episodes: int | None = None) -> Settings:
    """Returns what an environment's data is collected with, by a training of so many episodes if given."""
    settings = SETTINGS.get(environment) or (_ATARI if envs.is_atari(environment) else DQNSettings())
    if episodes is None:
        return settings
    if isinstance(settings, PPOTraining):
        raise ValueError(
            f"the training that collects {environment} is {settings.transitions:,} transitions long, in any "
            "number of episodes: leave --episodes out, or name a written policy to record by --policy"
        )
    return dataclasses.replace(settings, episodes=episodes)


def collect(
    environment: str,
    *,
    noise: float = 0.0,
    seed: int = 0,
    episodes: int | None = None,
    settings: Settings | None = None,
    on_episode: Callable[[int, int, float], None] = lambda done, total, episode_return: None,
    keep: Callable[[Trajectory], Trajectory] = lambda episode: episode,
) -> Collected:
    """Trains an online agent in an environment and records it; the same arguments give the same data.

    Args:
        environment: a name from `rosmo.envs.names()`; its actions must be discrete.
        noise: how often the environment replaces the agent's action by a uniform one; the record has the
            action that the agent meant.
        seed: seeds the environment, the network, the exploration and the replay.
        episodes: length of a DQN's training; the settings' by default.
        settings: a DQN's, of which all episodes are kept, or PPO's; those in `SETTINGS` by default.
        on_episode: called after each episode with how far the training is, in the settings' unit, its length
            and the episode's return.
        keep: makes what is recorded of an episode that the agent has learned from.
    """
    settings = settings or settings_of(environment, episodes)
    if episodes is not None and isinstance(settings, DQNSettings):
        settings = dataclasses.replace(settings, episodes=episodes)
    about = {"environment": environment, "noise": noise, "seed": seed, **dataclasses.asdict(settings)}
    if isinstance(settings, PPOTraining):
        return _by_ppo(environment, noise, seed, settings, on_episode, about)
    env = envs.make(environment, seed=seed, noise=noise)
    agent = _Agent(env, settings, seed)
    episodes_played: list[Trajectory] = []
    returns: list[float] = []
    for done in range(1, settings.episodes + 1):
        episode = play(env, agent.explore)
        agent.learn(episode)
        episodes_played.append(keep(episode))
        returns.append(return_of(episode))
        on_episode(done, settings.episodes, returns[-1])
    return Collected(episodes_played, np.array(returns), agent.policy, about)


def _by_ppo(
    environment: str,
    noise: float,
    seed: int,
    settings: PPOTraining,
    on_episode: Callable[[int, int, float], None],
    about: dict[str, Any],
) -> Collected:
    def on_batch(transitions: int, ended: list[ppo.Played]) -> None:
        for one in ended:
            on_episode(transitions, settings.transitions, one.total)

    played, network = ppo.train(environment, settings, seed=seed, noise=noise, on_batch=on_batch)
    recording, episodes = recorded(environment, ppo.evenly(played, settings.kept), noise)
    recording = dataclasses.replace(recording, about=json.dumps(about))
    returns = np.array([one.total for one in played])
    return Collected(episodes, returns, GreedyPolicy(network.without_last()), about, recording)


def greedy_score(
    collected: Collected, environment: str, *, episodes: int = 10, noise: float = 0.0, seed: int = 10_000
) -> float:
    """Returns the mean return of the last greedy policy in fresh episodes, by default without noise."""
    env = envs.make(environment, seed=seed, noise=noise)
    return float(np.mean([return_of(play(env, collected.policy)) for _ in range(episodes)]))


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
        self.policy = dqn.greedy_policy(self._state.target, settings)

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
        self.policy = dqn.greedy_policy(self._state.target, settings)
