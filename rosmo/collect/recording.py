"""Episodes as they are played: of anything that chooses actions, and of written policies by name."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import numpy as np

from rosmo import envs
from rosmo.collect import policies
from rosmo.types import Trajectory


def record(
    environment: str, policy: str, *, episodes: int, noise: float = 0.0, seed: int = 0
) -> Iterator[Trajectory]:
    """Plays a written policy and yields its episodes; the same arguments give the same data.

    Args:
        environment: a name from `rosmo.envs.names()`; its actions must be discrete.
        policy: a name from `rosmo.collect.policies.names()`.
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
        yield play(env, _checked(built, policy, actions))


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


def play(env: dm_env.Environment, policy: Callable[[np.ndarray], int]) -> Trajectory:
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


def return_of(episode: Trajectory) -> float:
    """Returns the sum of the rewards of an episode."""
    return float(episode.reward.sum(dtype=np.float64))
