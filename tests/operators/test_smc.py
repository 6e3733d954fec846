"""Sequential Monte Carlo against what it is in the limit of many particles, by dynamic programming."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import operators
from tests.operators.test_operators import KEY, improve
from tests.tabular import one_decision, random_mdp, root_of, softmax


def exact(table, prior_logits, depth: int, temperature: float):
    """The weights of the first actions and the mean return, over all paths of the prior, in float64."""
    reward, value = np.asarray(table.reward, np.float64), np.asarray(table.value, np.float64)
    discount, after = np.asarray(table.discount, np.float64), np.asarray(table.next_state)
    prior = softmax(prior_logits)

    def paths(state: int, left: int):
        """Every path from a state: its probability, its return and its first action."""
        if left == 0:
            return [(1.0, value[state], None)]
        return [
            (prior[state, a] * p, reward[state, a] + discount[state, a] * g, a)
            for a in range(prior.shape[1])
            for p, g, _ in paths(after[state, a], left - 1)
        ]

    weights, means = np.zeros(prior.shape), np.zeros(len(prior))
    for state in range(len(prior)):
        found = paths(state, depth)
        tilted = np.array([p * np.exp(g / temperature) for p, g, _ in found])
        tilted /= tilted.sum()
        np.add.at(weights[state], [a for *_, a in found], tilted)
        means[state] = tilted @ [g for _, g, _ in found]
    return weights, means


def ending_mdp(seed: int):
    """A random MDP where some actions end the episode."""
    mdp, prior = random_mdp(seed, states=6, actions=3)
    table = mdp.table(prior)
    ends = np.random.default_rng(seed).random(table.discount.shape) < 0.3
    discount = np.where(ends, 0.0, mdp.gamma)
    value, policy = np.zeros(len(prior)), softmax(prior)
    for _ in range(300):
        value = np.sum(policy * (mdp.reward + discount * value[mdp.next_state]), axis=1)
    return table._replace(
        discount=jnp.asarray(discount, jnp.float32), value=jnp.asarray(value, jnp.float32)
    ), prior


@pytest.mark.parametrize("resample_below", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("depth", "temperature"), [(1, 1.0), (3, 1.0), (3, 2.0)])
def test_many_particles_give_the_exact_weights(depth, temperature, resample_below):
    table, prior = ending_mdp(depth)
    operator = functools.partial(
        operators.smc,
        num_particles=20_000,
        depth=depth,
        temperature=temperature,
        resample_below=resample_below,
    )
    found = improve(operator, table, root_of(table, jnp.arange(len(prior))))
    weights, means = exact(table, prior, depth, temperature)
    np.testing.assert_allclose(found.action_weights, weights, atol=0.025)
    np.testing.assert_allclose(found.value, means, atol=0.08)


@pytest.mark.parametrize("resample_below", [0.0, 1.0])
def test_the_error_vanishes_as_the_particles_grow(resample_below):
    """Its mean over many keys is the bias, which falls as 1/N."""
    table, prior = ending_mdp(0)
    weights, _ = exact(table, prior, 3, 1.0)
    root = root_of(table, jnp.arange(len(prior)))
    errors = []
    for particles in (4, 64):
        operator = functools.partial(
            operators.smc, num_particles=particles, depth=3, resample_below=resample_below
        )
        run = jax.jit(jax.vmap(lambda key, op=operator: improve(op, table, root, key=key).action_weights))
        errors.append(np.abs(run(jax.random.split(KEY, 2_000)).mean(axis=0) - weights).max())
    assert errors[0] > 0.02  # a few particles are biased
    assert errors[1] < errors[0] / 4


def test_one_step_deep_it_is_the_look_ahead():
    mdp, prior = random_mdp(4)
    table = mdp.table(prior)
    root = root_of(table, jnp.arange(len(prior)))
    operator = functools.partial(operators.smc, num_particles=20_000, depth=1)
    found, look_ahead = improve(operator, table, root), improve(operators.one_step, table, root)
    np.testing.assert_allclose(found.action_weights, look_ahead.action_weights, atol=0.02)
    np.testing.assert_allclose(found.qvalues, look_ahead.qvalues, atol=2e-3)


def test_an_ended_episode_earns_nothing_more():
    """Both actions pay 1 and end; what the model says of states behind the end must not be read."""
    table, root = one_decision(
        np.zeros((1, 2), np.float32), np.zeros(1, np.float32), np.ones((1, 2), np.float32)
    )
    table = table._replace(
        value=jnp.array([0.0, 100.0]),
        reward=jnp.array([[1.0, 1.0], [50.0, -50.0]]),
        discount=jnp.zeros((2, 2)),
    )
    found = improve(functools.partial(operators.smc, depth=5), table, root)
    np.testing.assert_array_equal(found.value, 1.0)
    np.testing.assert_array_equal(np.asarray(found.qvalues)[~np.isnan(found.qvalues)], 1.0)


def test_at_temperature_0_the_best_particle_has_it_all():
    mdp, prior = random_mdp(2)
    table = mdp.table(prior)
    operator = functools.partial(operators.smc, num_particles=256, depth=1, temperature=0)
    found = improve(operator, table, root_of(table, jnp.arange(len(prior))))
    look_ahead = improve(operators.one_step, table, root_of(table, jnp.arange(len(prior))))
    best = np.argmax(look_ahead.qvalues, axis=1)
    np.testing.assert_array_equal(found.action, best)
    np.testing.assert_allclose(found.action_weights, np.eye(4)[best], atol=1e-6)


@pytest.mark.parametrize("settings", [{"num_particles": 0}, {"depth": 0}, {"resample_below": 1.5}])
def test_settings_that_cannot_be_are_refused(settings):
    mdp, prior = random_mdp(2)
    table = mdp.table(prior)
    with pytest.raises(ValueError, match=next(iter(settings))):
        improve(functools.partial(operators.smc, **settings), table, root_of(table, jnp.arange(2)))
