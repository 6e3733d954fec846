import dataclasses

import jax
import numpy as np
import pytest

from rosmo.data import window_sampler
from tests.windows import ACTIONS, random_steps

KEY = jax.random.key(0)


@pytest.fixture
def steps():
    return random_steps(np.random.default_rng(0), [5, 2, 9, 3], np.array([True, False, True, True]))


def test_windows_are_slices_of_the_data(steps):
    sampler = window_sampler(steps, window=4, num_actions=ACTIONS)
    windows = jax.device_get(jax.vmap(sampler.sample)(jax.random.split(KEY, 200)))
    assert windows.observation.shape == (200, 4, 4)
    for i in range(200):
        start = np.flatnonzero((steps.observation == windows.observation[i, 0]).all(axis=1))
        index = np.minimum(start[0] + np.arange(4), len(steps.action) - 1)
        for field in ("observation", "action", "reward", "discount", "is_first", "is_last", "is_terminal"):
            np.testing.assert_array_equal(getattr(windows, field)[i], getattr(steps, field)[index])


def test_every_step_with_an_action_is_as_likely_as_any_other(steps):
    sampler = window_sampler(steps, window=6, num_actions=ACTIONS)  # longer than two of the episodes
    draws = 30_000
    windows = jax.vmap(sampler.sample)(jax.random.split(KEY, draws))
    rewards, counts = np.unique(windows.reward[:, 0], return_counts=True)
    real = steps.reward[~steps.is_last]
    np.testing.assert_array_equal(rewards, np.sort(real))
    expected = draws / len(real)
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(expected))


def test_a_window_past_the_end_of_the_data_stays_on_the_last_step(steps):
    sampler = window_sampler(steps, window=30, num_actions=ACTIONS)
    window = sampler.sample(KEY)
    assert window.is_last[-1]
    np.testing.assert_array_equal(window.observation[-1], steps.observation[-1])


@pytest.mark.parametrize(
    ("field", "where", "value", "message"),
    [
        ("reward", 1, np.nan, "step 1 has a reward that is not finite"),
        ("reward", 1, np.inf, "a reward that is not finite"),
        ("observation", 6, np.nan, "step 6 has an observation that is not finite"),
        ("action", 3, ACTIONS, "step 3 has an action outside 0…2"),
        ("action", 3, -1, "an action outside 0…2"),
        ("discount", 0, 1.5, "a discount outside"),
        ("discount", 0, np.nan, "a discount outside"),
        ("is_terminal", 0, True, "step 0 has is_terminal without is_last"),
        ("is_last", -1, False, r"stops inside an episode: mark its last step \(18\)"),
        ("is_last", slice(None), True, "no step with an action"),
    ],
)
def test_bad_data_is_named(steps, field, where, value, message):
    array = getattr(steps, field).copy()
    array[where] = value
    with pytest.raises(ValueError, match=message):
        window_sampler(dataclasses.replace(steps, **{field: array}), window=4, num_actions=ACTIONS)


def test_actions_must_be_legal_and_flags_boolean(steps):
    legal = np.zeros((len(steps.action), ACTIONS), bool)
    window_sampler(dataclasses.replace(steps, invalid_actions=legal), window=4, num_actions=ACTIONS)
    forbidden = legal.copy()
    forbidden[2, steps.action[2]] = True
    masked = dataclasses.replace(steps, invalid_actions=forbidden)
    with pytest.raises(ValueError, match="step 2 has an action that its invalid_actions forbid"):
        window_sampler(masked, window=4, num_actions=ACTIONS)
    narrow = dataclasses.replace(steps, invalid_actions=legal[:, :-1])
    with pytest.raises(ValueError, match="invalid_actions must have the shape"):
        window_sampler(narrow, window=4, num_actions=ACTIONS)


def test_the_closing_steps_action_and_reward_are_not_data(steps):
    action, reward = steps.action.copy(), steps.reward.copy()
    action[steps.is_last], reward[steps.is_last] = -1, np.nan
    window_sampler(dataclasses.replace(steps, action=action, reward=reward), window=4, num_actions=ACTIONS)


def test_bad_shapes_are_named(steps):
    with pytest.raises(ValueError, match="differ in length"):
        window_sampler(
            dataclasses.replace(steps, observation=steps.observation[:-1]), window=4, num_actions=ACTIONS
        )
    batched = jax.tree.map(lambda x: x[None], steps)
    with pytest.raises(ValueError, match="one leading axis"):
        window_sampler(batched, window=4, num_actions=ACTIONS)
    with pytest.raises(ValueError, match="window must be at least 1"):
        window_sampler(steps, window=0, num_actions=ACTIONS)
