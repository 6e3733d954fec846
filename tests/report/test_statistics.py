"""Aggregates, against rliable called directly and against SciPy."""

import builtins

import numpy as np
import pytest
from scipy import stats

from rosmo.report import statistics

RNG = np.random.default_rng(3)
SCORES = {name: RNG.normal(mean, 0.2, (5, 3)) for name, mean in (("worse", 0.5), ("better", 0.8))}


@pytest.mark.parametrize("name", SCORES)
def test_iqm_and_intervals_are_rliables(name):
    from rliable import library, metrics

    np.random.seed(0)
    points, intervals = library.get_interval_estimates(
        {name: SCORES[name]}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=200
    )
    found = statistics.iqm(SCORES, repetitions=200)[name]
    assert found.value == points[name][0]
    assert found.interval == tuple(intervals[name][:, 0])
    assert found.value == pytest.approx(stats.trim_mean(SCORES[name].ravel(), 0.25))
    assert found.interval[0] < found.value < found.interval[1]


def test_profiles_are_rliables():
    from rliable import library

    thresholds = np.linspace(0, 1, 11)
    np.random.seed(0)
    points, intervals = library.create_performance_profile({"a": SCORES["worse"]}, thresholds, reps=100)
    found = statistics.profiles({"a": SCORES["worse"]}, thresholds, repetitions=100)["a"]
    np.testing.assert_allclose(found.share, points["a"])
    np.testing.assert_allclose([found.low, found.high], intervals["a"])


def test_the_probability_of_improvement_is_rliables_also_with_ties_and_other_seeds():
    from rliable import metrics

    x, y = (np.round(SCORES[name], 1) for name in SCORES)
    for a, b in ((x, y), (x, x), (x[:4], y[1:3])):
        assert statistics.probability_of_improvement(a, b) == pytest.approx(
            metrics.probability_of_improvement(a, b)
        )
    found = statistics.improvement({"pair": (y, x)}, repetitions=200)["pair"]
    assert found.interval[0] <= found.value <= found.interval[1]
    assert found.value > 0.5


def test_a_single_seed_has_no_interval():
    one = {"a": SCORES["worse"][:1]}
    assert statistics.iqm(one)["a"].interval is None
    assert statistics.profiles(one, np.array([0.0, 0.5]))["a"].low is None
    assert statistics.improvement({"pair": (one["a"], SCORES["better"])})["pair"].interval is None


def test_the_callers_random_numbers_go_on_as_before():
    np.random.seed(7)
    expected = np.random.rand()
    np.random.seed(7)
    statistics.iqm(SCORES, repetitions=10)
    assert np.random.rand() == expected


def test_without_rliable_the_extra_is_named(monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("rliable"):
            raise ImportError("No module named 'rliable'")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "rosmo\[report\]"'):
        statistics.iqm(SCORES)
