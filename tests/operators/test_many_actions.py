"""What operators do otherwise where there are many actions, or few of them, comes to the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import operators
from rosmo.networks.mlp import MLPDynamics
from rosmo.operators.base import sample
from rosmo.operators.sampled_one_step import sample_log_weights
from rosmo.types import RecurrentFnOutput, Root

KEY = jax.random.key(0)


def bandit(rewards, rng_key, action, embedding):
    """Rewards by row and action, and no value behind them."""
    del rng_key
    reward = rewards[embedding, action]
    zero = jnp.zeros_like(reward)
    logits = jnp.zeros((len(action), rewards.shape[1]))
    output = RecurrentFnOutput(reward=reward, discount=zero, prior_logits=logits, value=zero)  # pyright: ignore
    return output, embedding


def roots(rows: int, actions: int):
    rewards, logits = jax.random.normal(KEY, (2, rows, actions))
    return rewards, Root(prior_logits=logits, value=jnp.zeros(rows), embedding=jnp.arange(rows))  # pyright: ignore


@pytest.mark.parametrize("at_once", [1, 3, 7, 20])
def test_a_look_ahead_in_parts_is_that_of_all_at_once(at_once):
    rewards, root = roots(4, 7)
    whole = operators.one_step(rewards, KEY, root, bandit)
    parts = operators.one_step(rewards, KEY, root, bandit, at_once=at_once)
    np.testing.assert_array_equal(whole.qvalues, rewards)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_no_action_at_once_is_refused():
    rewards, root = roots(4, 7)
    with pytest.raises(ValueError, match="at_once must be a whole number of at least 1"):
        operators.one_step(rewards, KEY, root, bandit, at_once=0)


def test_many_actions_are_sampled_as_often_as_they_are_probable():
    actions, rows = 300, 2
    logits = 2 * jax.random.normal(KEY, (rows, actions))
    invalid = jax.random.bernoulli(KEY, 0.5, (rows, actions)).at[:, 64:128].set(True)  # a group without any
    sampled = np.asarray(sample(KEY, logits, invalid, (40_000, rows)))
    for row in range(rows):
        probable = np.where(invalid[row], 0, np.exp(np.asarray(logits[row], np.float64)))
        probable /= probable.sum()
        counts = np.bincount(sampled[:, row], minlength=actions)
        assert counts[np.asarray(invalid[row])].sum() == 0
        often = probable > 1e-3
        deviations = (counts - 40_000 * probable)[often] / np.sqrt(40_000 * probable[often])
        assert np.abs(deviations).max() < 4.5
        assert np.sqrt(np.mean(deviations**2)) == pytest.approx(1, abs=0.3)


def test_where_none_of_many_actions_is_legal_an_action_is_named_all_the_same():
    sampled = sample(KEY, jnp.zeros((1, 257)), jnp.ones((1, 257), bool), (5_000, 1))
    assert int(sampled.min()) >= 0
    assert int(sampled.max()) < 257


def test_as_many_samples_as_actions_know_every_q():
    rewards, root = roots(5, 4)
    improvement = operators.sampled_one_step(rewards, KEY, root, bandit, num_samples=4)
    fewer = operators.sampled_one_step(rewards, KEY, root, bandit, num_samples=3)
    np.testing.assert_array_equal(improvement.qvalues, rewards)
    assert improvement.complete
    assert not fewer.complete
    assert np.isnan(fewer.qvalues).any()


@pytest.mark.parametrize("count", [1, 4, 8, 9, 30])
@pytest.mark.parametrize("scale", [1, 20, 1e4])
def test_weights_of_few_and_of_many_samples_are_the_formula(count, scale):
    advantages = np.asarray(scale * jax.random.normal(KEY, (6, count)), np.float64)
    expected = np.empty_like(advantages)
    for i in range(count):
        others = np.concatenate([np.zeros((6, 1)), np.delete(advantages, i, axis=1)], axis=1)
        expected[:, i] = advantages[:, i] - np.logaddexp.reduce(others, axis=1)
    found = sample_log_weights(jnp.asarray(advantages, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("actions", [8, 9])
def test_a_row_of_the_action_is_found_by_either_way(actions):
    dynamics = MLPDynamics(KEY, 5, actions, (7,), 6, 4)
    state = jax.random.normal(KEY, (5,))
    for action in (0, actions - 1):
        hidden = jax.nn.relu(dynamics.from_state(state) + dynamics.from_action[action])
        next_state, _ = dynamics(state, jnp.asarray(action))
        np.testing.assert_allclose(next_state, dynamics.rest(hidden), rtol=1e-5, atol=1e-6)
