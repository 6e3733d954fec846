from typing import ClassVar

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from rosmo.evaluate import Evaluator, summarise


class Corridor(dm_env.Environment):
    """Pays the action at every step, for as many steps as its seed says."""

    made: ClassVar[list] = []

    def __init__(self, seed: int):
        self.length = 1 + seed % 5
        Corridor.made.append(self)

    def reset(self):
        self.time = 0
        return dm_env.restart(self._observation())

    def step(self, action):
        assert self.time < self.length, "stepped after its end"
        self.time += 1
        if self.time == self.length:
            return dm_env.termination(reward=float(action), observation=self._observation())
        return dm_env.transition(reward=float(action), observation=self._observation())

    def _observation(self):
        return np.array([self.time, self.length], np.float32)

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(3)


class TwoWays:
    """Acts by its parameter when greedy, and samples otherwise."""

    window = 1

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def loss(self, params, target_params, batch, key):
        raise NotImplementedError

    def act(self, params, key, observation, *, greedy=False):
        if greedy:
            return jnp.full(len(observation), params)

        return jax.random.randint(key, (len(observation),), 0, 3)


@pytest.mark.parametrize(("episodes", "environments"), [(1, 16), (7, 3), (16, 16), (5, 1)])
def test_every_environment_plays_its_share_to_the_end(episodes, environments):
    Corridor.made = []
    evaluator = Evaluator(TwoWays(), Corridor, episodes=episodes, environments=environments)
    returns = evaluator(jnp.int32(2), 4, greedy=True)
    lengths = [env.length for env in Corridor.made]
    shares = [len(part) for part in np.array_split(np.arange(episodes), len(lengths))]
    expected = [2.0 * length for length, share in zip(lengths, shares, strict=True) for _ in range(share)]
    np.testing.assert_array_equal(returns, expected)


def test_chance_hangs_on_the_seed_alone():
    evaluator = Evaluator(TwoWays(), Corridor, episodes=12, environments=4)
    first, again, other = (evaluator(jnp.int32(0), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_scores_are_what_arithmetic_says():
    returns = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 107.0])
    scores = summarise(returns)
    assert scores.episodes == 8
    assert scores.mean == 16.0
    np.testing.assert_allclose(scores.stderr, np.sqrt(((returns - 16) ** 2).sum() / 7 / 8))
    assert scores.iqm == 3.5  # the mean of 2, 3, 4 and 5


def test_no_episode_is_refused():
    with pytest.raises(ValueError, match="at least one episode"):
        Evaluator(TwoWays(), Corridor, episodes=0)


def test_discounted_returns_are_sums_of_a_geometric_series():
    Corridor.made = []
    evaluator = Evaluator(TwoWays(), Corridor, episodes=4, environments=4, discount=0.5)
    returns = evaluator(jnp.int32(2), 4, greedy=True)
    np.testing.assert_allclose(returns, [2 * (2 - 0.5 ** (env.length - 1)) for env in Corridor.made])


def test_a_reward_that_is_no_number_is_refused():
    class Broken(Corridor):
        def step(self, action):
            return super().step(action)._replace(reward=float("nan"))

    with pytest.raises(FloatingPointError, match="Broken paid a reward of nan"):
        Evaluator(TwoWays(), Broken, episodes=1)(jnp.int32(2), 4, greedy=True)


class Counts:
    """Remembers how many observations of its episode it has seen, and says so by its action."""

    window = 1

    def init(self, key):
        return jnp.ones((), jnp.int32)

    def loss(self, params, target_params, batch, key):
        raise NotImplementedError

    def initial_memory(self, params, batch):
        return jnp.zeros(batch, jnp.int32)

    def act(self, params, key, observation, memory, *, greedy=False):
        return memory, memory + params


class Echo(Corridor):
    """Pays ten to the power of the time, times the action: a return spells the actions of an episode."""

    def step(self, action):
        timestep = super().step(action)
        return timestep._replace(reward=timestep.reward * 10.0 ** (self.time - 1))


class Shown(Corridor):
    """Its screens show the last action."""

    def reset(self):
        self.shown = 9
        return super().reset()

    def step(self, action):
        self.shown = action
        return super().step(action)

    def render(self):
        return np.full((1, 1, 3), self.shown, np.uint8)


def test_a_memory_lasts_for_an_episode_and_no_longer():
    Corridor.made = []
    returns = Evaluator(Counts(), Echo, episodes=9, environments=3)(jnp.int32(1), 5)
    spelled = [sum(time * 10.0**time for time in range(env.length)) for env in Corridor.made]
    np.testing.assert_array_equal(returns, np.repeat(spelled, 3))
    assert len(set(spelled)) > 1, "the episodes should end at different times"


def test_a_film_is_of_an_agent_that_remembers():
    Corridor.made = []
    screens = [int(screen.max()) for screen in Evaluator(Counts(), Shown).film(jnp.int32(1), 5)]
    assert screens == [9, *range(Corridor.made[-1].length)]
