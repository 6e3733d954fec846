"""Noise between the agent and its environment."""

from typing import Any

import dm_env
import numpy as np

from rosmo.envs.specs import number_of_actions

_STREAM = 1


class ActionNoise(dm_env.Environment):
    """Replaces the agent's action by a uniform one with probability `noise`.

    The agent does not see which action was carried out: what it records is the action it meant.
    """

    def __init__(self, environment: dm_env.Environment, noise: float, seed: int):
        if not 0 <= noise <= 1:
            raise ValueError(f"noise is a probability and must lie in [0, 1], got {noise}")
        self._environment = environment
        self._noise = noise
        self._num_actions = number_of_actions(environment)
        # A stream of its own: a caller's generator with the same seed must not draw in step with it.
        self._rng = np.random.default_rng([seed, _STREAM])

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        replaced = self._rng.random() < self._noise
        return self._environment.step(int(self._rng.integers(self._num_actions)) if replaced else action)

    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        return self._environment.action_spec()

    def reward_spec(self) -> Any:
        return self._environment.reward_spec()

    def discount_spec(self) -> Any:
        return self._environment.discount_spec()

    def close(self) -> None:
        self._environment.close()
