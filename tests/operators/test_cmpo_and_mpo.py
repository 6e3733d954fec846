"""CMPO and MPO against float64, and MPO's temperature against scipy's minimiser of its dual."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from rosmo import operators
from tests.operators.test_operators import improve
from tests.tabular import one_decision, random_mdp, root_of, softmax


def case_of(seed: int, rows: int = 8, actions: int = 5, scale: float = 1.0, offset: float = 0.0):
    rng = np.random.default_rng(seed)
    prior = rng.normal(size=(rows, actions)).astype(np.float32)
    return prior, (offset + scale * rng.normal(size=(rows, actions))).astype(np.float32)


def clipped(prior, q, variance="state", clip=1.0, temperature=1.0):
    """CMPO in float64."""
    prior = softmax(prior.astype(np.float64))
    advantage = q.astype(np.float64) - (prior * q).sum(axis=1, keepdims=True)
    squares = (prior * advantage**2).sum(axis=1, keepdims=True)
    sigma = np.sqrt(squares.mean() if variance == "batch" else squares)
    weights = prior * np.exp(np.clip(advantage / (sigma * temperature), -clip, clip))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("settings", [{}, {"variance": "batch"}, {"clip": 0.3}, {"temperature": 4.0}])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.01, 3.0), (1e4, 0.0)])
def test_cmpo_is_what_float64_says(settings, scale, offset):
    prior, q = case_of(0, scale=scale, offset=offset)
    operator = functools.partial(operators.cmpo, **settings)
    found = improve(operator, *one_decision(prior, q[:, 0], q))
    expected = clipped(prior, q, **settings)
    np.testing.assert_allclose(found.action_weights, expected, atol=1e-4 if offset else 1e-6)
    np.testing.assert_allclose(found.value, (expected * q).sum(axis=1), rtol=1e-4, atol=1e-4 * scale)


def test_cmpo_changes_no_weight_by_more_than_e_squared_and_nothing_where_all_are_alike():
    prior, q = case_of(1, scale=1e4)
    ratio = np.asarray(improve(operators.cmpo, *one_decision(prior, q[:, 0], q)).action_weights)
    ratio = ratio / softmax(prior)
    assert (ratio <= np.e**2).all()
    assert (ratio >= np.e**-2).all()
    alike = improve(operators.cmpo, *one_decision(prior, q[:, 0], np.full_like(q, 7.0)))
    np.testing.assert_allclose(alike.action_weights, softmax(prior), atol=1e-6)


def test_sampled_cmpo_converges_to_the_exact_one():
    prior, q = case_of(2, rows=4)
    errors = []
    for samples in (100, 100_000):
        operator = functools.partial(operators.cmpo, num_samples=samples)
        found = improve(operator, *one_decision(prior, q[:, 0], q))
        errors.append(np.abs(found.action_weights - clipped(prior, q)).max())
    assert errors[1] < 0.01
    assert errors[1] < errors[0]


def test_a_batch_shares_its_variance_over_the_rows_that_have_a_choice():
    prior, q = case_of(3)
    invalid = np.zeros(q.shape, bool)
    invalid[2:] = True
    operator = functools.partial(operators.cmpo, variance="batch")
    found = improve(operator, *one_decision(prior, q[:, 0], q), jnp.asarray(invalid))
    np.testing.assert_allclose(found.action_weights[:2], clipped(prior[:2], q[:2], "batch"), atol=1e-6)


def dual_minimum(prior: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """The η that minimises ηε + η·mean log Σ π·exp(q/η) over states, by scipy."""

    def dual(log_eta: float) -> float:
        eta = np.exp(log_eta)
        top = q.max(axis=1, keepdims=True)
        partition = np.log((prior * np.exp((q - top) / eta)).sum(axis=1)) + top[:, 0] / eta
        return eta * epsilon + eta * partition.mean()

    return np.exp(
        optimize.minimize_scalar(dual, bounds=(-12, 12), method="bounded", options={"xatol": 1e-9}).x
    )


def divergence(weights: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return (weights * np.log(weights / prior)).sum(axis=1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.4])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_mpo_is_at_the_minimum_of_its_dual(epsilon, scale):
    prior, q = case_of(5, scale=scale)
    case = one_decision(prior, q[:, 0], q)
    probabilities, exact = softmax(prior.astype(np.float64)), q.astype(np.float64)
    ours = np.asarray(improve(functools.partial(operators.mpo, epsilon=epsilon), *case).action_weights)
    for row in range(len(q)):
        one = slice(row, row + 1)
        eta = dual_minimum(probabilities[one], exact[one], epsilon)
        np.testing.assert_allclose(ours[one], softmax(prior[one] + exact[one] / eta), atol=1e-4)
    np.testing.assert_allclose(divergence(ours.astype(np.float64), probabilities), epsilon, rtol=1e-2)
    shared = functools.partial(operators.mpo, epsilon=epsilon, per="batch")
    eta = dual_minimum(probabilities, exact, epsilon)
    weights = np.asarray(improve(shared, *case).action_weights, np.float64)
    np.testing.assert_allclose(weights, softmax(prior + exact / eta), atol=1e-4)
    np.testing.assert_allclose(divergence(weights, probabilities).mean(), epsilon, rtol=1e-2)


def test_mpo_is_greedy_where_no_policy_is_as_far_as_epsilon():
    prior, q = case_of(6)
    found = improve(functools.partial(operators.mpo, epsilon=50.0), *one_decision(prior, q[:, 0], q))
    np.testing.assert_allclose(found.action_weights, np.eye(5)[q.argmax(axis=1)], atol=1e-6)
    alike = improve(operators.mpo, *one_decision(prior, q[:, 0], np.full_like(q, -3.0)))
    np.testing.assert_allclose(alike.action_weights, softmax(prior), atol=1e-6)


def test_mpo_takes_the_q_values_of_a_search():
    mdp, prior = random_mdp(5)
    table = mdp.table(prior)
    operator = functools.partial(operators.mpo, source=operators.mcts, epsilon=0.2, num_simulations=3)
    root = root_of(table, jnp.arange(len(prior)))
    found = improve(operator, table, root)
    q = np.asarray(found.qvalues, np.float64)
    assert np.isnan(q).any()
    q = np.where(np.isnan(q), np.asarray(root.value, np.float64)[:, None], q)
    eta = np.array([dual_minimum(softmax(prior[i : i + 1]), q[i : i + 1], 0.2) for i in range(len(q))])
    np.testing.assert_allclose(found.action_weights, softmax(prior + q / eta[:, None]), atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "settings", "message"),
    [
        (operators.mpo, {"epsilon": 0.0}, "epsilon"),
        (operators.mpo, {"per": "row"}, "per"),
        (operators.cmpo, {"clip": -1.0}, "clip"),
        (operators.cmpo, {"variance": "row"}, "variance"),
    ],
)
def test_settings_that_cannot_be_are_refused(operator, settings, message):
    prior, q = case_of(0)
    with pytest.raises((ValueError, TypeError), match=message):
        improve(functools.partial(operator, **settings), *one_decision(prior, q[:, 0], q))
