"""Importance sampling and doubly robust against hand arithmetic, and enumeration of a tiny problem."""

import itertools

import numpy as np
import pytest

from rosmo.evaluate import off_policy
from rosmo.types import Trajectory

GAMMA = 0.9
# Two episodes: one of two steps that terminates, one of a single step that is cut off.
STEPS = Trajectory(
    observation=np.zeros((5, 1), np.float32),
    action=np.array([0, 1, 0, 1, 0], np.int32),
    reward=np.array([1.0, 2.0, 0.0, 4.0, 0.0], np.float32),
    discount=np.array([1.0, 0.0, 0.0, 1.0, 0.0], np.float32),
    is_first=np.array([1, 0, 0, 1, 0], bool),
    is_last=np.array([0, 0, 1, 0, 1], bool),
    is_terminal=np.array([0, 0, 1, 0, 0], bool),
)
POLICY = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.7, 0.3], [0.5, 0.5]])
BEHAVIOR = np.full((5, 2), 0.5)
Q = np.array([[10.0, 20.0], [30.0, 40.0], [50.0, 50.0], [60.0, 70.0], [80.0, 90.0]])


def episodes():
    return off_policy.episodes_of(STEPS, POLICY, BEHAVIOR, discount=GAMMA)


def columns():
    values = off_policy.beside(STEPS, (POLICY * Q).sum(axis=1), closing=True)
    taken = off_policy.beside(STEPS, Q[np.arange(5), STEPS.action])
    return taken, values


def test_steps_lie_side_by_side():
    found = episodes()
    np.testing.assert_allclose(found.ratio, [[1.6, 1.2], [0.6, 0.0]])
    np.testing.assert_allclose(found.reward, [[1.0, 2.0], [4.0, 0.0]])
    np.testing.assert_allclose(found.weight, [[1.0, GAMMA], [1.0, 0.0]])
    np.testing.assert_allclose(found.closing, [0.0, GAMMA])
    taken, values = columns()
    np.testing.assert_allclose(taken, [[10.0, 40.0], [70.0, 0.0]])
    np.testing.assert_allclose(values, [[12.0, 36.0, 50.0], [63.0, 85.0, 0.0]])
    np.testing.assert_allclose(off_policy.discounted_returns(found), [1 + GAMMA * 2, 4.0])


def test_weighted_importance_sampling_by_hand():
    # ρ after the first step is 1.6 and 0.6, after the second 1.92 and, over, still 0.6.
    expected = (1.6 * 1 + 0.6 * 4) / 2.2 + GAMMA * 1.92 * 2 / 2.52
    assert off_policy.weighted_importance_sampling(episodes()) == pytest.approx(expected)
    shares = np.array([1.92, 0.6]) / 2.52
    assert off_policy.effective_episodes(episodes()) == pytest.approx(1 / np.sum(shares**2))


def test_doubly_robust_by_hand():
    plain = 0.5 * (12 + 1.6 * (1 - 10) + GAMMA * (1.6 * 36 + 1.92 * (2 - 40)))
    plain += 0.5 * (63 + 0.6 * (4 - 70) + GAMMA * 0.6 * 85)  # goes on at the value of its last observation
    found = off_policy.doubly_robust(episodes(), *columns(), weighted=False)
    assert found == pytest.approx(plain)
    one, two = np.array([1.6, 0.6]) / 2.2, 1.92 / 2.52
    weighted = 0.5 * (12 + 63) + one @ [1 - 10, 4 - 70]
    weighted += GAMMA * (one[0] * 36 + two * (2 - 40) + one[1] * 85)
    assert off_policy.doubly_robust(episodes(), *columns()) == pytest.approx(weighted)


def test_a_policy_that_is_the_datas_own_gets_the_datas_mean_return():
    own = off_policy.episodes_of(STEPS, BEHAVIOR, BEHAVIOR, discount=GAMMA)
    mean = np.mean(off_policy.discounted_returns(own))
    assert off_policy.weighted_importance_sampling(own) == pytest.approx(mean)
    assert off_policy.effective_episodes(own) == pytest.approx(2)
    nothing = (np.zeros((2, 2)), np.zeros((2, 3)))
    assert off_policy.doubly_robust(own, *nothing) == pytest.approx(mean)


def two_step_data(policy: np.ndarray, behavior: np.ndarray):
    """Every path of two decisions as often as the behaviour takes it, out of 10,000, with random rewards."""
    rewards = np.random.default_rng(0).normal(size=(2, 2, 2))
    paths, truth = [], 0.0
    for a, b in itertools.product(range(2), repeat=2):
        share = behavior[0, a] * behavior[1 + a, b]
        earned = rewards[0, a, 0] + GAMMA * rewards[1, a, b]
        truth += policy[0, a] * policy[1 + a, b] * earned
        paths += [(a, b, rewards[0, a, 0], rewards[1, a, b])] * round(10_000 * share)
    return paths, truth


@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_of_a_policy_far_from_the_data_are_exact_where_every_path_is_in_it(weighted):
    policy = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    behavior = np.array([[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]])
    paths, truth = two_step_data(policy, behavior)
    a, b, first, second = np.array(paths).T
    ours, theirs = ((p[0, a.astype(int)], p[1 + a.astype(int), b.astype(int)]) for p in (policy, behavior))
    found = off_policy.Episodes(
        reward=np.stack([first, second], axis=1),
        ratio=np.stack([ours[0] / theirs[0], ours[1] / theirs[1]], axis=1),
        weight=np.tile([1.0, GAMMA], (len(a), 1)),
        real=np.ones((len(a), 2), bool),
        closing=np.zeros(len(a)),
    )
    assert off_policy.weighted_importance_sampling(found) == pytest.approx(truth)
    # Doubly robust is right for any Q, as the ratios are: a Q of the state that V is the mean of.
    wrong_q, wrong_v = (
        np.full((len(a), 2), 3.0),
        np.column_stack([np.full((len(a), 2), 3.0), np.zeros(len(a))]),
    )
    assert off_policy.doubly_robust(found, wrong_q, wrong_v, weighted=weighted) == pytest.approx(truth)


def test_long_episodes_neither_overflow_nor_vanish():
    count, length = 3, 5_000
    ratio = np.full((count, length), 1e6)
    ratio[1:] = 1e-6
    found = off_policy.Episodes(
        reward=np.ones((count, length)),
        ratio=ratio,
        weight=0.99 ** np.tile(np.arange(length), (count, 1)),
        real=np.ones((count, length), bool),
        closing=np.zeros(count),
    )
    assert off_policy.weighted_importance_sampling(found) == pytest.approx(100)
    assert off_policy.effective_episodes(found) == pytest.approx(1)


def test_where_no_episode_is_possible_all_count_alike():
    found = off_policy.episodes_of(STEPS, np.eye(2)[1 - STEPS.action], BEHAVIOR, discount=GAMMA)
    assert np.isfinite(off_policy.weighted_importance_sampling(found))
    assert np.isfinite(off_policy.doubly_robust(found, *columns()))


def test_an_interval_holds_the_estimate_and_narrows_with_more_episodes():
    values = np.random.default_rng(0).normal(size=1_000)
    few = off_policy.interval(lambda rows: float(np.mean(values[:50][rows])), 50)
    many = off_policy.interval(lambda rows: float(np.mean(values[rows])), 1_000)
    for found, sample in ((few, values[:50]), (many, values)):
        assert found.low < found.mean < found.high
        half = 1.645 * sample.std() / np.sqrt(len(sample))
        np.testing.assert_allclose([found.mean - found.low, found.high - found.mean], half, rtol=0.4)
