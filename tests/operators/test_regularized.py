"""The regularized policy against a convex solver, its limits and finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from rosmo import operators
from tests.operators.test_operators import KEY, improve
from tests.tabular import one_decision, random_mdp, root_of, softmax, table_step


def case_of(seed: int, rows: int = 6, actions: int = 5, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    prior = rng.normal(size=(rows, actions)).astype(np.float32)
    return prior, (scale * rng.normal(size=(rows, actions))).astype(np.float32)


def strength(simulations: int, actions: int, c: float = 1.25) -> float:
    return c * np.sqrt(simulations) / (actions + simulations)


def by_convex_solver(prior: np.ndarray, q: np.ndarray, weight: float) -> np.ndarray:
    """Maximises Σ p·q + λ Σ π log p over the simplex: what KL(π‖p) adds up to."""

    def loss(p):
        return -(p @ q + weight * prior @ np.log(p))

    found = optimize.minimize(
        loss,
        np.full(len(q), 1 / len(q)),
        jac=lambda p: -(q + weight * prior / p),
        bounds=[(1e-9, 1)] * len(q),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1_000},
    )
    return found.x


@pytest.mark.parametrize(("simulations", "scale"), [(1, 1.0), (20, 1.0), (400, 1.0), (20, 0.01), (20, 30.0)])
def test_it_is_what_a_convex_solver_finds(simulations, scale):
    prior, q = case_of(simulations, scale=scale)
    operator = functools.partial(operators.regularized, num_simulations=simulations)
    weights = improve(operator, *one_decision(prior, q[:, 0], q)).action_weights
    for row in range(len(q)):
        p, probabilities = np.asarray(weights[row], np.float64), softmax(prior[row].astype(np.float64))
        weight = strength(simulations, q.shape[1])
        expected = by_convex_solver(probabilities, q[row].astype(np.float64), weight)
        np.testing.assert_allclose(p, expected, atol=1e-3)  # as good as the solver is
        # No solver is needed for this: λπ/p + q is the same α for all actions, and within its bounds.
        alpha = weight * probabilities / p + q[row]
        np.testing.assert_allclose(alpha, alpha.mean(), rtol=1e-5)
        low = (q[row] + weight * probabilities).max()
        assert low - 1e-4 * scale <= alpha.mean() <= q[row].max() + weight + 1e-4 * scale


def test_illegal_actions_are_as_if_they_were_not_there():
    prior, q = case_of(0)
    invalid = np.zeros(q.shape, bool)
    invalid[:, 2] = True
    kept = [0, 1, 3, 4]
    masked = improve(operators.regularized, *one_decision(prior, q[:, 0], q), jnp.asarray(invalid))
    fewer = improve(operators.regularized, *one_decision(prior[:, kept], q[:, 0], q[:, kept]))
    np.testing.assert_allclose(np.asarray(masked.action_weights)[:, kept], fewer.action_weights, atol=1e-6)


def test_its_limits_are_the_prior_and_the_best_action():
    prior, q = case_of(1)
    case = one_decision(prior, q[:, 0], q)
    best = np.eye(q.shape[1])[q.argmax(axis=1)]
    for greedy in ({"num_simulations": 10**12}, {"temperature": 0}, {"c": 1e-6}):
        operator = functools.partial(operators.regularized, **greedy)
        np.testing.assert_allclose(improve(operator, *case).action_weights, best, atol=2e-4)
    for none in ({"temperature": 1e6}, {"c": 1e6}):
        operator = functools.partial(operators.regularized, **none)
        np.testing.assert_allclose(improve(operator, *case).action_weights, softmax(prior), atol=1e-4)


def test_a_good_action_that_the_prior_hardly_has_is_found():
    """p of the best is π/t: with λ = 1 and the other at a distance of 10, Σ = 1 at t = π/(1 − 1/(10 + t))."""
    prior, q = np.array([[-30.0, 0.0]], np.float32), np.array([[10.0, 0.0]], np.float32)
    weight = strength(20, 2)
    operator = functools.partial(operators.regularized, temperature=1 / weight)
    found = improve(operator, *one_decision(prior, np.zeros(1, np.float32), q)).action_weights
    np.testing.assert_allclose(found, [[0.9, 0.1]], atol=1e-5)


def test_a_search_may_be_where_the_q_values_come_from():
    mdp, prior = random_mdp(2)
    table = mdp.table(prior)
    root = root_of(table, jnp.arange(len(prior)))
    operator = functools.partial(operators.regularized, source=operators.mcts, num_simulations=3)
    found = operator(table, KEY, root, table_step, max_depth=2)
    search = operators.mcts(table, jax.random.split(KEY)[0], root, table_step, num_simulations=3, max_depth=2)
    np.testing.assert_array_equal(found.qvalues, search.qvalues)
    assert np.isnan(found.qvalues).any()
    assert not found.complete
    assert not found.deterministic
    q = np.where(np.isnan(search.qvalues), np.asarray(root.value)[:, None], search.qvalues)
    by_hand = functools.partial(operators.regularized, num_simulations=3)
    expected = improve(by_hand, *one_decision(prior.astype(np.float32), root.value, q))
    np.testing.assert_allclose(found.action_weights, expected.action_weights, atol=1e-6)


def test_its_derivatives_are_those_of_finite_differences():
    prior, q = case_of(4, rows=1)

    @jax.jit
    def second(prior, q):
        return improve(operators.regularized, *one_decision(prior, q[:, 0], q)).action_weights[0, 1]

    gradients = jax.grad(second, argnums=(0, 1))(jnp.asarray(prior), jnp.asarray(q))
    for number, gradient in enumerate(gradients):
        for action in range(q.shape[1]):
            step = np.zeros(q.shape, np.float32)
            step[0, action] = 1e-2
            ends = [
                float(second(*(x + sign * step * (i == number) for i, x in enumerate((prior, q)))))
                for sign in (1, -1)
            ]
            np.testing.assert_allclose(gradient[0, action], (ends[0] - ends[1]) / 2e-2, atol=2e-3)
