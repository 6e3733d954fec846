"""An agent acting in an environment, and the scores it gets."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dm_env
import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from scipy import stats

from rosmo.agents import Agent
from rosmo.types import Params, is_array


class Scores(NamedTuple):
    """Returns of several episodes, summed up."""

    episodes: int
    mean: float
    stderr: float
    iqm: float


def summarise(returns: Float[np.ndarray, "episodes"]) -> Scores:
    """Sums returns up by their mean, its standard error, and the mean of the middle half (IQM)."""
    stderr = returns.std(ddof=1) / np.sqrt(returns.size) if returns.size > 1 else np.nan
    iqm = stats.trim_mean(returns, proportiontocut=0.25)
    return Scores(returns.size, float(returns.mean()), float(stderr), float(iqm))


class Evaluator:
    """Plays episodes in several environments at once, with the actions of all in one call."""

    def __init__(
        self,
        agent: Agent,
        make_environment: Callable[[int], dm_env.Environment],
        *,
        episodes: int = 32,
        environments: int = 16,
    ):
        """Builds an evaluator.

        Args:
            agent: chooses the actions.
            make_environment: builds an environment from a seed.
            episodes: episodes of an evaluation.
            environments: how many are played at once.
        """
        if episodes < 1 or environments < 1:
            raise ValueError(f"an evaluation needs at least one episode, got {episodes}")
        self.episodes = episodes
        self._make = make_environment
        self._parallel = min(episodes, environments)
        static = eqx.partition(eqx.filter_eval_shape(agent.init, jax.random.key(0)), is_array)[1]

        def act(arrays: Params, seed: Any, time: Any, observation: Any, greedy: bool) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), time)
            return agent.act(eqx.combine(arrays, static), key, observation, greedy=greedy)

        self._act = jax.jit(act, static_argnums=4)

    def __call__(self, params: Params, seed: int, *, greedy: bool = False) -> Float[np.ndarray, "episodes"]:
        """Returns the returns of `episodes` episodes, the same for the same parameters and seed."""
        arrays = _on_one_device(params)
        players = [_Player(self._make(number), quota) for number, quota in self._quotas(seed)]
        time = 0
        while any(player.left for player in players):
            observation = np.stack([player.observation for player in players])
            actions = np.asarray(self._act(arrays, seed, time, observation, greedy))
            for player, action in zip(players, actions, strict=True):
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
        arrays, time, step = _on_one_device(params), 0, environment.reset()
        yield render()
        while not step.last():
            action = self._act(arrays, seed, time, np.asarray(step.observation)[None], greedy)
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


def _on_one_device(params: Params) -> Params:
    """The arrays of parameters on one device, wherever training left them: acting is small."""
    return jax.device_put(jax.device_get(eqx.filter(params, eqx.is_array)), jax.local_devices()[0])


class _Player:
    """An environment with some episodes left to play."""

    def __init__(self, environment: dm_env.Environment, episodes: int):
        self._environment = environment
        self.left = episodes
        self.returns: list[float] = []
        self._begin()

    def step(self, action: Any) -> None:
        if not self.left:
            return
        timestep = self._environment.step(int(action))
        self._return += float(timestep.reward or 0.0)
        self.observation = timestep.observation
        if timestep.last():
            self.returns.append(self._return)
            self.left -= 1
            if self.left:
                self._begin()

    def _begin(self) -> None:
        self.observation = self._environment.reset().observation
        self._return = 0.0
