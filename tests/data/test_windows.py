import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.data import HostSampler, check, window_sampler
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


def sampler_of(steps):
    return window_sampler(steps, window=4, num_actions=ACTIONS)


def with_field(steps, field, array):
    """Puts an array in past the types that the tests' own checks would refuse."""
    return eqx.tree_at(lambda s: getattr(s, field), steps, array, is_leaf=lambda x: x is None)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ((0, 20), (39,), r"step 20 begins an episode \(is_first\), and step 19 does not end the one before"),
        ((0,), (19, 39), r"step 19 ends an episode \(is_last\), and step 20 is not the first of another"),
        ((), (19, 39), r"starts inside an episode: mark its first step \(0\) as is_first"),
        ((20,), (19, 39), r"starts inside an episode: mark its first step \(0\) as is_first"),
        ((0, 20), (19,), r"stops inside an episode: mark its last step \(39\) as is_last"),
        ((0, 21), (19, 39), "step 19 ends an episode"),
        ((0, 19), (19, 39), "step 19 begins an episode"),
    ],
)
def test_episodes_lie_one_after_the_other_from_their_first_step_to_their_last(first, last, message):
    steps = random_steps(np.random.default_rng(0), [20, 20], np.array([False, False]))
    sampler_of(steps)
    is_first, is_last = np.isin(np.arange(40), first), np.isin(np.arange(40), last)
    wrong = dataclasses.replace(steps, is_first=is_first, is_last=is_last)
    for make in (window_sampler, HostSampler):
        with pytest.raises(ValueError, match=message):
            make(wrong, window=4, num_actions=ACTIONS)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("action", lambda x: x + 0.4, "actions must be integers, got float64"),
        ("action", lambda x: x.astype(object), "actions must be integers, got object"),
        ("action", lambda x: x.astype(complex), "actions must be integers, got complex128"),
        ("action", lambda x: x.astype(str), "actions must be integers, got <U"),
        ("action", lambda x: x > 0, "actions must be integers, got bool"),
        ("action", lambda x: x.astype("m8[s]"), "actions must be integers, got timedelta64"),
        ("reward", lambda x: x + 1j, "rewards must be real numbers, got complex"),
        ("reward", lambda x: x.astype(object), "rewards must be real numbers, got object"),
        ("discount", lambda x: x.astype(str), "discounts must be real numbers, got <U"),
        ("is_first", lambda x: x.astype(int), "is_first must be an array of bool, got int64"),
        ("observation", lambda x: x.astype(complex), "one array of booleans, .* got complex128"),
        ("observation", lambda x: x.astype(object), "one array of booleans, .* got object"),
        ("observation", lambda x: x.astype(np.longdouble), "one array of booleans, .* got float128"),
        ("reward", lambda x: np.ma.masked_array(x, np.arange(19) == 3), "reward has masked entries, whose"),
        (
            "invalid_actions",
            lambda x: np.zeros((19, ACTIONS), np.int8),
            "invalid_actions must be an array of",
        ),
    ],
)
def test_a_type_that_would_change_values_is_refused(steps, field, change, message):
    with pytest.raises(TypeError, match=message):
        sampler_of(with_field(steps, field, change(getattr(steps, field))))


@pytest.mark.parametrize(
    ("field", "value", "dtype", "message"),
    [
        ("action", 2**32, np.int64, "step 6 has an action that does not fit into 32 bits"),
        ("action", 2**63, np.uint64, "step 6 has an action that does not fit into 32 bits"),
        ("action", -(2**31) - 1, np.int64, "step 6 has an action that does not fit into 32 bits"),
        ("reward", 1e300, np.float64, "step 6 has a reward that does not fit into float32"),
        ("discount", -1e300, np.float64, "step 6 has a discount that does not fit into float32"),
        ("observation", 3e38, np.float32, r"step 6 has an observation beyond ±1e\+15.*: scale them all"),
        ("observation", -1e300, np.float64, r"step 6 has an observation beyond ±1e\+15"),
        ("observation", 2e15, jnp.bfloat16, r"step 6 has an observation beyond ±1e\+15"),
        ("observation", np.nan, jnp.bfloat16, "step 6 has an observation that is not finite"),
        ("observation", np.inf, np.float16, "step 6 has an observation that is not finite"),
        ("observation", 2**31, np.int64, "step 6 has an observation that does not fit into int32"),
        ("observation", 2**32, np.uint64, "step 6 has an observation that does not fit into uint32"),
    ],
)
def test_a_value_that_would_change_is_named(steps, field, value, dtype, message, monkeypatch):
    array = np.array(getattr(steps, field)).astype(np.int64 if dtype is np.uint64 else dtype)
    array = np.abs(array).astype(dtype)
    array[6] = value
    for block in (check._BLOCK, 8):
        monkeypatch.setattr(check, "_BLOCK", block)
        with pytest.raises(ValueError, match=message):
            sampler_of(with_field(steps, field, array))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint32, np.int64, ">f8", np.float16, jnp.bfloat16])
def test_types_that_keep_their_values_are_taken(steps, dtype):
    wide = with_field(steps, "observation", np.abs(8 * steps.observation).astype(dtype))
    wide = with_field(wide, "action", steps.action.astype(np.int64))
    wide = with_field(wide, "reward", steps.reward.astype(np.float64))
    found = sampler_of(wide).steps
    assert (found.action.dtype, found.reward.dtype) == (jnp.int32, jnp.float32)
    np.testing.assert_array_equal(found.reward, steps.reward)
    expected = wide.observation.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found.observation).astype(np.float32), expected)


def test_rewards_on_closing_steps_are_warned_of_once(steps):
    """The convention of d4rl keeps an episode's last transition there, and it would be lost."""
    reward = steps.reward.copy()
    sampler_of(with_field(steps, "reward", np.where(steps.is_last, np.nan, reward)))
    reward[[6, 18]] = 1
    lossy = with_field(steps, "reward", reward)
    message = (
        r"a reward other than 0 on 2 of its 4 closing steps \(is_last\), first on step 6, .*d4rl, append"
    )
    with pytest.warns(UserWarning, match=message):
        sampler_of(lossy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            sampler_of(lossy)
            HostSampler(lossy, window=4, num_actions=ACTIONS)
    assert len(caught) == 1


def test_some_action_must_be_legal(steps):
    masks = np.zeros((len(steps.action), ACTIONS), bool)
    masks[4] = True  # a closing step
    sampler_of(dataclasses.replace(steps, invalid_actions=masks))
    masks[7] = True
    with pytest.raises(ValueError, match="step 7 has invalid_actions that forbid every action"):
        sampler_of(dataclasses.replace(steps, invalid_actions=masks))


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
