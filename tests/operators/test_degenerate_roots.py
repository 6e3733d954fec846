"""The contract of `operators/base.py` for roots of every kind, also those that no training should meet."""

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from rosmo import operators
from tests.operators.test_operators import KEY, SEARCHES, SETTINGS, every_operator
from tests.tabular import softmax

ROOTS, BATCH = 1_000_000, 100_000
EXTREMES = np.array([-np.inf, -1e30, -30, -1, 0, 1, 30, 1e30, np.inf], np.float32)


def one_move(q, rng_key, action, row):
    """Every action pays its q and ends the episode: embeddings are the numbers of the rows."""
    del rng_key
    output = mctx.RecurrentFnOutput(
        reward=q[row, action],
        discount=jnp.zeros(len(row)),
        prior_logits=jnp.zeros((len(row), q.shape[1])),
        value=jnp.ones(len(row)),
    )
    return output, row


@functools.partial(jax.jit, static_argnums=0)
def improve(operator, prior, value, q, invalid, key=KEY):
    root = mctx.RootFnOutput(
        prior_logits=jnp.asarray(prior), value=jnp.asarray(value), embedding=jnp.arange(len(prior))
    )
    return operator(q, key, root, one_move, invalid_actions=invalid)


def random_roots(rng, count, actions):
    """Logits, values, q and masks, of which some are ordinary and some are anything."""
    prior = rng.normal(size=(count, actions)).astype(np.float32)
    wild = rng.random((count, 1)) < 0.5
    prior = np.where(wild & (rng.random(prior.shape) < 0.6), rng.choice(EXTREMES, prior.shape), prior)
    prior[rng.random(count) < 0.1] = -np.inf
    scale = rng.choice(np.array([0, 1, 1e4, 1e30], np.float32), (count, 1))
    q = scale * rng.uniform(-1, 1, prior.shape).astype(np.float32)
    invalid = rng.random(prior.shape) < rng.choice([0, 0.3, 0.9, 1], (count, 1))
    value = rng.normal(size=count).astype(np.float32) * scale[:, 0]
    return prior, value, q, invalid


def refuse_broken(name, improvement, prior, value, q, invalid):
    """Holds an improvement against the contract, and the exact operators against float64."""
    weights, action = np.asarray(improvement.action_weights), np.asarray(improvement.action)
    some = ~invalid.all(axis=1)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert (weights[invalid] == 0).all()
    assert not np.take_along_axis(invalid, action[:, None], 1)[some].any()
    assert np.isfinite(improvement.value).all()
    np.testing.assert_array_equal(np.asarray(improvement.value)[~some], value[~some])
    if name != "sampled_one_step":
        np.testing.assert_allclose(weights[some].sum(axis=1, dtype=np.float64), 1, atol=1e-5)
    if name in ("prior", "one_step"):
        largest = float(np.finfo(np.float32).max) / 8
        logits = np.where(invalid, -np.inf, np.clip(prior.astype(np.float64), -largest, largest))[some]
        logits -= logits.max(axis=1, keepdims=True)
        known = (np.abs(logits) <= 60).sum(axis=1) == (~invalid[some]).sum(axis=1)  # to a float, beside its q
        known &= np.abs(q[some]).max(axis=1) <= 1e4
        tilted = logits[known] + q[some][known].astype(np.float64)
        rows, expected = (known, tilted) if name == "one_step" else (slice(None), logits)
        np.testing.assert_allclose(weights[some][rows], softmax(expected), atol=1e-4)


@every_operator
@pytest.mark.parametrize("actions", [1, 5])
def test_the_contract_holds_for_any_root(operator, actions):
    rng = np.random.default_rng(actions)
    roots = random_roots(rng, 2_000, actions)
    refuse_broken(operator.func.__name__, improve(operator, *roots), *roots)


@every_operator
def test_the_contract_holds_at_a_temperature_of_0(operator):
    roots = random_roots(np.random.default_rng(3), 2_000, 4)
    name = operator.func.__name__
    coldest = improve(functools.partial(operator, temperature=0.0), *roots)
    refuse_broken(name if name == "sampled_one_step" else "any", coldest, *roots)


@pytest.mark.slow
@every_operator
def test_the_contract_holds_for_a_million_roots(operator):
    rng, name = np.random.default_rng(0), operator.func.__name__
    if "num_simulations" in operator.keywords:  # few, or the roots would take minutes per 100,000
        operator = functools.partial(operator.func, **operator.keywords | {"num_simulations": 4})
    for number in range(ROOTS // BATCH):
        roots = random_roots(rng, BATCH, actions=5)
        refuse_broken(name, improve(operator, *roots, jax.random.key(number)), *roots)


@every_operator
@pytest.mark.parametrize("masked", [False, True])
def test_a_prior_that_says_nothing_is_uniform_over_the_legal_actions(operator, masked):
    """With equal q nothing tells the legal actions apart, so none may be left out of 4,000 samples."""
    prior = np.repeat(np.array([-np.inf, -1e30, -1e38], np.float32), 4_000)[:, None] * np.ones(4, np.float32)
    prior[:, 1] = np.where(masked, 1e30, prior[:, 1])
    invalid = np.arange(4) == np.where(masked, 1, 4)
    zero = np.zeros(prior.shape, np.float32)
    mask = np.broadcast_to(invalid, prior.shape) if masked else None
    improvement = improve(operator, prior, zero[:, 0], zero, mask)
    for rows in np.split(np.arange(len(prior)), 3):
        mean = np.asarray(improvement.action_weights, np.float64)[rows].mean(axis=0)
        shares = np.bincount(np.asarray(improvement.action)[rows], minlength=4) / len(rows)
        expected = ~invalid / np.sum(~invalid)
        np.testing.assert_allclose(mean / mean.sum(), expected, atol=0.03)
        np.testing.assert_allclose(shares, expected, atol=0.03)
        assert (shares[invalid] == 0).all()


@every_operator
def test_where_nothing_is_legal_there_is_no_weight_and_the_roots_own_value(operator):
    rng = np.random.default_rng(0)
    prior, q = rng.normal(size=(2, 6, 3)).astype(np.float32)
    value = rng.normal(size=6).astype(np.float32)
    improvement = improve(operator, prior, value, q, np.ones((6, 3), bool))
    np.testing.assert_array_equal(improvement.action_weights, 0)
    np.testing.assert_array_equal(improvement.value, value)


@every_operator
def test_gradients_of_degenerate_roots_are_finite(operator):
    if operator.func.__name__ in SEARCHES:
        pytest.skip("a search has derivatives in forward mode alone")
    prior, value, q, invalid = random_roots(np.random.default_rng(0), 500, 4)
    prior, q = np.clip(prior, -1e30, None), np.clip(q, -1e4, 1e4)

    def objective(prior, value, q):
        improvement = improve(operator, prior, value, q, invalid)
        return jnp.sum(jnp.minimum(improvement.action_weights, 1)) + jnp.sum(improvement.value) / 1e4

    gradients = jax.grad(objective, argnums=(0, 1, 2))(*map(jnp.asarray, (prior, value / 1e30, q)))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_every_operator_is_held_to_it():
    assert set(SETTINGS) == set(operators.names())
