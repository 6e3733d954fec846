"""Every operator takes the place of `mctx.muzero_policy`, with all of its keywords."""

import functools
import inspect

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from rosmo import operators
from tests.operators.test_operators import KEY
from tests.tabular import random_mdp, root_of, softmax, table_step

KEYWORDS = {
    "num_simulations": 8,
    "invalid_actions": None,
    "max_depth": 3,
    "loop_fn": jax.lax.fori_loop,
    "qtransform": mctx.qtransform_by_min_max,
    "dirichlet_fraction": 0.0,
    "dirichlet_alpha": 0.5,
    "pb_c_init": 1.0,
    "pb_c_base": 10_000.0,
    "temperature": 0,
}
QTRANSFORM = {
    "qtransform": lambda tree, index: mctx.qtransform_by_min_max(tree, index, min_value=-9.0, max_value=9.0)
}


@pytest.fixture
def case():
    mdp, prior = random_mdp(1)
    table = mdp.table(prior)
    return table, root_of(table, jnp.arange(len(prior)))


def test_the_keywords_are_all_that_mctx_has():
    parameters = list(inspect.signature(mctx.muzero_policy).parameters)
    assert parameters == ["params", "rng_key", "root", "recurrent_fn", *KEYWORDS]


@pytest.mark.parametrize("name", operators.names())
@pytest.mark.parametrize("temperature", [0, 1.0, 1e300])
def test_every_operator_takes_them_all(name, temperature, case):
    table, root = case
    invalid = jnp.asarray(np.arange(4)[None] == 2) & jnp.ones((12, 4), bool)
    settings = KEYWORDS | QTRANSFORM | {"invalid_actions": invalid, "temperature": temperature}
    arguments = {"params": table, "rng_key": KEY, "root": root, "recurrent_fn": table_step}
    improvement = operators.get(name)(**arguments, **settings)
    assert np.isfinite(improvement.action_weights).all()
    assert (np.asarray(improvement.action_weights)[:, 2] == 0).all()
    assert not (np.asarray(improvement.action) == 2).any()


@pytest.mark.parametrize("name", operators.names())
def test_a_temperature_may_be_traced(name, case):
    table, root = case

    def improve(temperature):
        found = operators.get(name)(table, KEY, root, table_step, temperature=temperature)
        return found.action, found.action_weights

    compiled = jax.jit(improve)
    for temperature in (0.0, 0.5):
        known, traced = jax.jit(functools.partial(improve, temperature))(), compiled(temperature)
        np.testing.assert_array_equal(known[0], traced[0])
        np.testing.assert_allclose(known[1], traced[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", operators.names())
def test_what_mctx_does_not_take_is_not_passed_over(name, case):
    with pytest.raises(TypeError, match="num_simulation'"):
        operators.get(name)(case[0], KEY, case[1], table_step, num_simulation=4)


@pytest.mark.parametrize("name", ["mcts", "mcts_q"])
def test_searches_honour_what_they_take(name, case):
    table, root = case
    plain = operators.get(name)(table, KEY, root, table_step, num_simulations=30)
    for setting in (QTRANSFORM, {"pb_c_init": 9.0}, {"max_depth": 1}, {"dirichlet_fraction": 0.5}):
        changed = operators.get(name)(table, KEY, root, table_step, num_simulations=30, **setting)
        assert (np.asarray(plain.action_weights) != np.asarray(changed.action_weights)).any(), setting
    calls = []

    def loop(*arguments):
        calls.append(arguments)
        return jax.lax.fori_loop(*arguments)

    operators.get(name)(table, KEY, root, table_step, num_simulations=30, loop_fn=loop)
    assert calls


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_mcts_acts_as_mctx_does_at_a_temperature(temperature, case):
    table, root = case
    settings = {"num_simulations": 30, "temperature": temperature, "dirichlet_fraction": 0.3}
    ours = operators.mcts(table, KEY, root, table_step, **settings)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = mctx.muzero_policy(table, KEY, root, table_step, **settings)
    np.testing.assert_array_equal(ours.action, theirs.action)
    if temperature == 0:
        visits = np.asarray(theirs.action_weights)
        most = visits == visits.max(axis=1, keepdims=True)
        np.testing.assert_allclose(ours.action_weights, most / most.sum(axis=1, keepdims=True), atol=1e-6)


def test_look_aheads_divide_the_advantage_by_the_temperature(case):
    table, root = case
    exact = operators.one_step(table, KEY, root, table_step)
    half = operators.one_step(table, KEY, root, table_step, temperature=0.5)
    q, prior = np.asarray(exact.qvalues, np.float64), np.asarray(root.prior_logits, np.float64)
    np.testing.assert_allclose(half.action_weights, softmax(prior + q / 0.5), atol=1e-5)
    best = operators.one_step(table, KEY, root, table_step, temperature=0)
    np.testing.assert_array_equal(np.argmax(best.action_weights, axis=1), np.argmax(q, axis=1))
    np.testing.assert_allclose(np.max(best.action_weights, axis=1), 1)
    np.testing.assert_array_equal(best.action, np.argmax(q, axis=1))


def test_at_temperature_0_the_best_of_the_samples_is_taken(case):
    table, root = case
    improvement = operators.sampled_one_step(table, KEY, root, table_step, temperature=0, num_samples=3)
    best = np.nanargmax(np.asarray(improvement.qvalues), axis=1)
    np.testing.assert_array_equal(improvement.action, best)
