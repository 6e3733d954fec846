"""`rosmo.evaluate` as a program calls it, which is a room too."""

import functools
import importlib
import inspect

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rosmo
from rosmo import envs
from rosmo.evaluate import Evaluator, summarise
from tests.evaluate.test_playing import Corridor, Counts, Echo, TwoWays


@pytest.fixture(scope="module")
def poles():
    """An agent for CartPole, which has learned nothing."""
    sizes = {"representation": (6,), "dynamics": (4,), "prediction": (4,)}
    model = functools.partial(rosmo.latent_model, observation_shape=(4,), num_actions=2, **sizes)
    agent = rosmo.agents.BC(model)
    return rosmo.TrainedAgent(agent, agent.init(jax.random.key(0)))


def pays_two():
    return rosmo.TrainedAgent(TwoWays(), jnp.int32(2), observation_shape=(2,))


def test_the_room_is_a_function_and_a_room():
    assert rosmo.evaluate is importlib.import_module("rosmo.evaluate")
    assert rosmo.evaluate.Evaluator is Evaluator
    assert callable(rosmo.evaluate)


def test_episodes_are_those_of_the_evaluator():
    played = rosmo.evaluate(pays_two(), Corridor, episodes=7, seed=4, environments=3)
    expected = Evaluator(TwoWays(), Corridor, episodes=7, environments=3)(jnp.int32(2), 4)
    np.testing.assert_array_equal(played.returns, expected)
    assert played.scores == summarise(expected)
    greedy = rosmo.evaluate(pays_two(), Corridor, episodes=3, greedy=True, environments=3)
    np.testing.assert_array_equal(greedy.returns, [2.0 * env.length for env in Corridor.made[-3:]])


def test_an_environment_that_is_made_is_played_by_itself():
    corridor = Corridor(2)
    played = rosmo.evaluate(pays_two(), corridor, episodes=4, greedy=True)
    assert played.returns.tolist() == [6.0] * 4


def test_an_agent_with_a_memory_is_played_with_it():
    counts = rosmo.TrainedAgent(Counts(), jnp.int32(1), observation_shape=(2,))
    assert rosmo.evaluate(counts, Echo(3), episodes=2).returns.tolist() == [3210.0, 3210.0]


@pytest.mark.parametrize(
    "environment",
    ["gym/CartPole-v1", lambda seed: gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1")],
    ids=["name", "function", "made"],
)
def test_gymnasiums_environments_are_played(poles, environment):
    returns, again = (rosmo.evaluate(poles, environment, episodes=5, seed=3).returns for _ in range(2))
    assert np.all((returns >= 8) & (returns <= 500))
    assert len(set(returns)) > 1
    np.testing.assert_array_equal(returns, again)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("catch", r"shape \[4\], and catch shows \[10, 5\]"),
        (lambda seed: envs.make("catch", seed=seed), r"shape \[4\], and Catch shows \[10, 5\]"),
        ("gym/Acrobot-v1", r"shape \[4\], and gym/Acrobot-v1 shows \[6\]"),
        ("cach", "Did you mean 'catch'"),
        (gymnasium.make_vec("CartPole-v1", num_envs=2), "CartPoleVectorEnv is several environments in one"),
        (lambda: gymnasium.make("CartPole-v1"), "an environment is called with a seed, as lambda seed: "),
        (3, "from_gymnasium takes a gymnasium.Env, and not int"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(poles, environment, message):
    with pytest.raises((ValueError, TypeError, LookupError), match=message):
        rosmo.evaluate(poles, environment)


def test_a_folder_is_loaded_first():
    with pytest.raises(TypeError, match=r"plays a TrainedAgent, as rosmo.load returns it, and not str"):
        inspect.unwrap(rosmo.evaluate.evaluate)("runs/rosmo-catch", "catch")


def test_other_numbers_of_actions_and_no_episodes_are_refused(poles):
    class Wide(Corridor):
        def reset(self):
            return super().reset()._replace(observation=np.zeros(4, np.float32))

        def observation_spec(self):
            return super().observation_spec().replace(shape=(4,))

    with pytest.raises(ValueError, match="chooses among 2 actions, and Wide has 3"):
        rosmo.evaluate(poles, Wide)
    with pytest.raises(ValueError, match="episodes must be a whole number of at least 1"):
        rosmo.evaluate(poles, "gym/CartPole-v1", episodes=0)
