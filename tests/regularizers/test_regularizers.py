import dataclasses

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import regularizers
from rosmo.regularizers import Positions

SUITE = {"behavior", "behavior_exp"}  # a new regularizer must be added here
every_regularizer = pytest.mark.parametrize("regularizer", [regularizers.get(n) for n in sorted(SUITE)])


@pytest.fixture
def positions():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return Positions(
        policy_logits=normal(5, 3, 4),
        value=normal(5, 3),
        prior_logits=normal(5, 3, 4),
        prior_value=normal(5, 3),
        action=jnp.asarray(rng.integers(0, 4, (5, 3))),
        advantage=normal(5, 3).at[0, 0].set(0.0),
        mask=jnp.ones((5, 3), bool),
    )


def test_every_registered_regularizer_is_in_the_suite():
    assert set(regularizers.names()) == SUITE


def test_behavior_clones_what_is_better_than_average(positions):
    loss = np.asarray(regularizers.behavior(positions))
    log_prob = np.asarray(distrax.Categorical(positions.policy_logits).log_prob(positions.action))
    advantage = np.asarray(positions.advantage)
    np.testing.assert_allclose(loss[advantage > 0], -log_prob[advantage > 0], rtol=1e-5)
    assert (loss[advantage <= 0] == 0).all()  # H(0) = 0


def test_behavior_exp_weighs_by_the_clipped_exponential(positions):
    loss = regularizers.behavior_exp(positions, beta=0.5, max_weight=2.0)
    log_prob = distrax.Categorical(positions.policy_logits).log_prob(positions.action)
    weight = np.minimum(np.exp(np.asarray(positions.advantage) / 0.5), 2.0)
    np.testing.assert_allclose(loss, -np.asarray(log_prob) * weight, rtol=1e-5)


@every_regularizer
def test_stays_finite_for_any_advantage(regularizer, positions):
    for advantage in (-1e4, 0.0, 1e4):
        extreme = dataclasses.replace(positions, advantage=jnp.full((5, 3), advantage))

        def total(logits, positions=extreme):
            return jnp.sum(regularizer(dataclasses.replace(positions, policy_logits=logits)))

        gradient = jax.grad(total)
        assert np.isfinite(gradient(positions.policy_logits)).all()


@every_regularizer
def test_one_loss_per_position_jit_equals_eager_and_rows_are_independent(regularizer, positions):
    loss = regularizer(positions)
    assert loss.shape == (5, 3)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(jax.jit(regularizer)(positions), loss, rtol=1e-6)
    changed = dataclasses.replace(positions, advantage=positions.advantage.at[0].add(3.0))
    np.testing.assert_array_equal(regularizer(changed)[1:], loss[1:])


def test_bad_settings_are_refused(positions):
    with pytest.raises(ValueError, match="beta must be a finite number above 0"):
        regularizers.behavior_exp(positions, beta=0.0)
