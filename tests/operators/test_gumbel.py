"""Gumbel MuZero against mctx, and what its search never tried against hand arithmetic."""

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from rosmo import operators
from tests.operators.test_operators import KEY
from tests.tabular import random_mdp, root_of, softmax, table_step


@pytest.fixture(scope="module")
def case():
    mdp, prior = random_mdp(3)
    table = mdp.table(prior)
    return table, root_of(table, jnp.arange(len(prior)))


def by_mctx(table, root, **settings):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        output = mctx.gumbel_muzero_policy(table, KEY, root, table_step, **settings)
        return output, output.search_tree.summary()


@pytest.mark.parametrize(
    "settings",
    [
        {"num_simulations": 1},
        {"num_simulations": 5, "max_num_considered_actions": 2},
        {"num_simulations": 30, "max_depth": 2},
        {"num_simulations": 30, "gumbel_scale": 0.0},
        {
            "num_simulations": 8,
            "qtransform": functools.partial(mctx.qtransform_completed_by_mix_value, value_scale=0.3),
        },
    ],
    ids=["one", "two_considered", "shallow", "no_noise", "qtransform"],
)
@pytest.mark.parametrize("masked", [False, True])
def test_it_gives_what_mctx_gives(settings, masked, case):
    table, root = case
    invalid = np.zeros(root.prior_logits.shape, bool)
    invalid[:, 1] = masked
    settings = settings | {"invalid_actions": jnp.asarray(invalid)}
    ours = operators.gumbel(table, KEY, root, table_step, **settings)
    theirs, summary = by_mctx(table, root, **settings)
    np.testing.assert_array_equal(ours.action, theirs.action)
    np.testing.assert_array_equal(ours.action_weights, theirs.action_weights)
    visited = np.asarray(summary.visit_counts) > 0
    np.testing.assert_array_equal(np.isnan(ours.qvalues), ~visited)
    np.testing.assert_array_equal(np.asarray(ours.qvalues)[visited], np.asarray(summary.qvalues)[visited])
    assert ours.search_tree is not None


def test_the_value_is_that_of_the_target_with_completed_q(case):
    table, root = case
    ours = operators.gumbel(table, KEY, root, table_step, num_simulations=5, max_num_considered_actions=2)
    visits = np.asarray(by_mctx(table, root, num_simulations=5, max_num_considered_actions=2)[1].visit_counts)
    prior, q = softmax(root.prior_logits), np.asarray(ours.qvalues, np.float64)
    assert np.isnan(q).any()
    for row in range(len(q)):
        seen = visits[row] > 0
        mean = (prior[row, seen] * q[row, seen]).sum() / prior[row, seen].sum()
        q[row, ~seen] = (float(root.value[row]) + visits[row].sum() * mean) / (1 + visits[row].sum())
    # The target is the softmax of log π + (50 + max N)·0.1·q̂, q̂ rescaled to [0, 1].
    low, high = q.min(axis=1, keepdims=True), q.max(axis=1, keepdims=True)
    scaled = (50 + visits.max(axis=1, keepdims=True)) * 0.1 * (q - low) / (high - low)
    target = softmax(np.asarray(root.prior_logits, np.float64) + scaled)
    np.testing.assert_allclose(ours.action_weights, target, atol=1e-5)
    np.testing.assert_allclose(ours.value, (target * q).sum(axis=1), rtol=1e-5, atol=1e-6)


def test_it_runs_its_simulations_in_the_loop_it_is_given(case):
    calls = []

    def loop(*arguments):
        calls.append(arguments)
        return jax.lax.fori_loop(*arguments)

    operators.gumbel(*(case[0], KEY, case[1], table_step), num_simulations=2, loop_fn=loop)
    assert calls
