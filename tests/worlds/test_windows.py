"""What belongs to which step: resets, ends, padding, and states of worlds that are known exactly."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.types import Trajectory
from rosmo.worlds import Pessimistic, align, as_trajectory, filter_window, rollout
from rosmo.worlds.base import last_acted, states_at
from rosmo.worlds.pessimistic import halt, subtract, uncertainties
from tests.worlds.tables import corridor


def window(**changes) -> Trajectory:
    """A truncated episode of 3 steps, one of 2 that terminates, and padding that repeats the last step."""
    fields = {
        "observation": jnp.eye(5)[jnp.array([[2, 3, 2, 1, 0, 0, 0]])],
        "action": jnp.array([[1, 0, 7, 0, 7, 7, 7]]),
        "reward": jnp.array([[0.1, 0.2, 9.0, 0.4, 9.0, 9.0, 9.0]]),
        "discount": jnp.array([[1.0, 1.0, 9.0, 0.0, 9.0, 9.0, 9.0]]),
        "is_first": jnp.array([[1, 0, 0, 1, 0, 0, 0]], bool),
        "is_last": jnp.array([[0, 0, 1, 0, 1, 1, 1]], bool),
        "is_terminal": jnp.array([[0, 0, 0, 0, 1, 1, 1]], bool),
    }
    return Trajectory(**(fields | changes))


def test_what_led_to_a_step_lies_beside_it():
    steps = align(window())
    np.testing.assert_array_equal(steps.observed[0], [1, 1, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(steps.reached[0], [0, 1, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(steps.first[0], [1, 0, 0, 1, 0, 1, 1])
    # The closing steps' own action, reward and discount (7 and 9) are nowhere.
    np.testing.assert_array_equal(steps.action[0], [0, 1, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(steps.reward[0], [0, 0.1, 0.2, 0, 0.4, 0, 0])
    np.testing.assert_array_equal(steps.discount[0], [0, 1, 1, 0, 0, 0, 0])


def test_a_window_from_the_middle_of_an_episode_begins_unknown():
    steps = align(window(is_first=jnp.zeros((1, 7), bool).at[0, 3].set(True)))
    assert bool(steps.first[0, 0])
    assert not bool(steps.reached[0, 0])


def test_the_last_step_with_an_action_is_where_imagination_begins():
    assert int(last_acted(window())[0]) == 3
    assert int(last_acted(jax.tree.map(lambda x: x[:, :3], window()))[0]) == 1


def test_the_filter_passes_on_what_it_is_to_and_nothing_of_padding():
    seen = []

    class Recording(type(corridor())):
        def observe(self, state, action, embedding, first, keys):
            jax.debug.callback(lambda *x: seen.append(x), action, embedding, first, ordered=True)
            return state + 1

    world = Recording(*(getattr(corridor(), f.name) for f in dataclasses.fields(corridor())))
    batch = window(observation=window().observation.at[:, 5:].set(jnp.nan))
    states = filter_window(world, batch, jax.random.split(jax.random.key(0), 1))
    np.testing.assert_array_equal(states, [[1, 2, 3, 4, 5, 6, 7]])
    assert int(states_at(states, jnp.array([4]))[0]) == 5
    actions, embeddings, firsts = (np.concatenate(x) for x in zip(*seen, strict=True))
    np.testing.assert_array_equal(actions, [0, 1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(firsts, [1, 0, 0, 1, 0, 1, 1])
    assert np.isfinite(embeddings).all()


def right(features, keys):
    return jnp.ones(len(features), jnp.int32)


def test_a_rollout_is_what_the_table_says():
    world, keys = corridor(5), jax.random.split(jax.random.key(0), 3)
    played = rollout(world, jnp.array([1, 2, 3]), right, keys, 4)
    # From 1: 2, 3 and then the end with 1; features are of the states that actions were taken in.
    np.testing.assert_array_equal(played.features[0].argmax(axis=-1)[:4], [1, 2, 3, 4])
    np.testing.assert_allclose(played.reward[:, :3], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(played.discount[:, :3], [[1, 1, 0], [1, 0, 1], [0, 1, 1]])
    np.testing.assert_array_equal(played.alive, [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]])


def test_rollouts_are_windows_of_one_episode_each():
    keys = jax.random.split(jax.random.key(0), 2)
    steps = as_trajectory(rollout(corridor(6), jnp.array([4, 1]), right, keys, 3))
    np.testing.assert_array_equal(steps.is_last, [[0, 1, 0, 1], [0, 0, 0, 1]])
    np.testing.assert_array_equal(steps.is_terminal, [[0, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(steps.is_first, [[1, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(steps.reward[0, 0], 1)
    np.testing.assert_allclose(steps.discount[0, 0], 0)
    # The last one is of the state that the last action led to.
    np.testing.assert_array_equal(steps.observation[1].argmax(axis=-1), [1, 2, 3, 4])


def test_episodes_end_as_often_as_the_world_says():
    world = corridor(5)
    world = dataclasses.replace(world, discount=jnp.full((5, 2), 0.75))
    keys = jax.random.split(jax.random.key(0), 20_000)
    played = rollout(world, jnp.full(20_000, 2), right, keys, 2)
    np.testing.assert_allclose(played.discount[:, 0].mean(), 0.75, atol=0.01)
    np.testing.assert_allclose(played.alive[:, 1].mean(), 0.75, atol=0.01)


def doubtful():
    return dataclasses.replace(corridor(5), doubt=jnp.arange(10.0).reshape(5, 2))


def test_the_doubts_of_the_data_are_of_its_actions_where_they_were_taken():
    batch = window(action=window().action.at[window().is_last].set(1))  # never taken, but a real number
    found = uncertainties(doubtful(), [batch, batch], jax.random.key(0))
    # (2, right), (3, left) and (1, left), of each batch.
    np.testing.assert_array_equal(found, [5, 6, 2, 5, 6, 2])


def test_above_the_threshold_an_episode_ends_with_the_penalty():
    view = halt(np.array([1.0, 2.0, 3.0, 4.0]), quantile=None, coefficient=0.8, penalty=3.0)
    assert float(view.threshold) == 5.0
    world = Pessimistic(doubtful(), view)
    state, keys = jnp.array([2, 3, 3]), jax.random.split(jax.random.key(0), 3)
    imagined = world.imagine(state, jnp.array([1, 0, 1]), keys)
    np.testing.assert_array_equal(imagined.uncertainty, [5, 6, 7])
    np.testing.assert_array_equal(imagined.reward, [0, -3, -3])  # 1 would have been the last one's
    np.testing.assert_array_equal(imagined.discount, [1, 0, 0])
    np.testing.assert_array_equal(imagined.state, [3, 2, 4])


def test_the_threshold_is_a_quantile_of_the_data():
    doubts = np.arange(101.0)
    assert float(halt(doubts, quantile=0.9).threshold) == 90
    assert float(halt(doubts, quantile=1.0).threshold) == 100
    assert float(halt(doubts, quantile=None, coefficient=2.0).threshold) == 50
    for wrong in ({"coefficient": 1.0}, {"quantile": None}):
        with pytest.raises(ValueError, match="give one of the two"):
            halt(doubts, **wrong)
    for wrong in ({"quantile": 1.1}, {"penalty": -1.0}, {"quantile": None, "coefficient": 0.0}):
        with pytest.raises(ValueError, match="must be a finite number"):
            halt(doubts, **wrong)


def test_a_soft_penalty_is_taken_off_rewards_alone():
    world = Pessimistic(doubtful(), subtract(np.zeros(1), penalty=0.5))
    imagined = world.imagine(jnp.array([3]), jnp.array([1]), jax.random.split(jax.random.key(0), 1))
    assert (float(imagined.reward[0]), float(imagined.discount[0])) == (1 - 3.5, 0)
