"""An agent acting in an environment."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from rosmo.agents import Agent, Remembers
from rosmo.agents.base import Memory, acting, begun_anew
from rosmo.types import Params, is_array


class Evaluator:
    """Plays episodes in several environments at once, with the actions of all in one call."""

    def __init__(
        self,
        agent: Agent | Remembers,
        make_environment: Callable[[int], dm_env.Environment],
        *,
        episodes: int = 32,
        environments: int = 16,
        discount: float = 1.0,
    ):
        """Builds an evaluator.

        Args:
            agent: chooses the actions.
            make_environment: builds an environment from a seed.
            episodes: episodes of an evaluation.
            environments: how many are played at once.
            discount: of each reward against the one before, in the returns.
        """
        if episodes < 1 or environments < 1:
            raise ValueError(f"an evaluation needs at least one episode, got {episodes}")
        self.episodes = episodes
        self._discount = discount
        self._make = make_environment
        self._parallel = min(episodes, environments)
        static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]

        begin, choose = acting(agent)

        def act(
            arrays: Params, seed: Any, time: Any, observation: Any, first: Any, memory: Memory, greedy: bool
        ) -> Any:
            params, key = eqx.combine(arrays, static), jax.random.fold_in(jax.random.key(seed), time)
            memory = begun_anew(first, begin(params, len(first)), memory)
            return choose(params, key, observation, memory, greedy=greedy)

        self._act = jax.jit(act, static_argnums=6)
        self._begin = jax.jit(
            lambda arrays, batch: begin(eqx.combine(arrays, static), batch), static_argnums=1
        )

    def __call__(self, params: Params, seed: int, *, greedy: bool = False) -> Float[np.ndarray, "episodes"]:
        """Returns the returns of `episodes` episodes, the same for the same parameters and seed."""
        arrays = on_one_device(params)
        players = [_Player(self._make(number), quota, self._discount) for number, quota in self._quotas(seed)]
        time, memory = 0, self._begin(arrays, len(players))
        while any(player.left for player in players):
            observation = np.stack([player.observation for player in players])
            first = np.array([player.first for player in players])
            actions, memory = self._act(arrays, seed, time, observation, first, memory, greedy)
            for player, action in zip(players, np.asarray(actions), strict=True):
                player.step(action)
            time += 1
        return np.concatenate([player.returns for player in players])

    def film(self, params: Params, seed: int, *, greedy: bool = False) -> Iterator[np.ndarray]:
        """Plays one episode and yields its screens, which the environment's `render()` draws."""
        environment = self._make(self._quotas(seed)[0][0])
        render = getattr(environment, "render", None)
        if render is None:
            raise TypeError(
                f"{type(environment).__name__} cannot be recorded: give it a render() that returns "
                "the screen as an array of bytes [height, width, 3]"
            )
        arrays, time, step = on_one_device(params), 0, environment.reset()
        memory = self._begin(arrays, 1)
        yield render()
        while not step.last():
            observation, first = np.asarray(step.observation)[None], np.array([time == 0])
            action, memory = self._act(arrays, seed, time, observation, first, memory, greedy)
            step, time = environment.step(int(action[0])), time + 1
            yield render()

    def _quotas(self, seed: int) -> list[tuple[int, int]]:
        """A seed and a number of episodes for each environment.

        Each has its share from the start: taking whichever finish first would favour short episodes.
        """
        seeds = np.random.SeedSequence(seed).generate_state(self._parallel)
        shares = np.full(self._parallel, self.episodes // self._parallel)
        shares[: self.episodes % self._parallel] += 1
        return [(int(number), int(share)) for number, share in zip(seeds, shares, strict=True)]


def on_one_device(params: Params) -> Params:
    """The arrays of parameters on one device, wherever training left them: acting is small."""
    return jax.device_put(jax.device_get(eqx.filter(params, eqx.is_array)), jax.local_devices()[0])


class _Player:
    """An environment with some episodes left to play."""

    def __init__(self, environment: dm_env.Environment, episodes: int, discount: float):
        self._environment, self._discount = environment, discount
        self.left = episodes
        self.returns: list[float] = []
        self._begin()

    def step(self, action: Any) -> None:
        if not self.left:
            return
        timestep = self._environment.step(int(action))
        reward = float(timestep.reward or 0.0)
        if not math.isfinite(reward):
            raise FloatingPointError(
                f"{type(self._environment).__name__} paid a reward of {reward}, which no score can be made of"
            )
        self._return += self._weight * reward
        self._weight *= self._discount
        self.observation, self.first = timestep.observation, False
        if timestep.last():
            self.returns.append(self._return)
            self.left -= 1
            if self.left:
                self._begin()

    def _begin(self) -> None:
        self.observation, self.first = self._environment.reset().observation, True
        self._return, self._weight = 0.0, 1.0
