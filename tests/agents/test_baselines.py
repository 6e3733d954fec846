"""What BC, CRR and CQL owe the learner, how they act, and what they refuse."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, agents
from rosmo.agents import BC, CQL, CRR
from rosmo.agents.targets import find_boundary
from tests.baselines import (
    AGENTS,
    KEY,
    every_agent,
    everything_said,
    gradient_of,
    loss_of,
    params_of,
    some_forbidden,
)
from tests.tabular import softmax
from tests.windows import ACTIONS, small_model


@every_agent
def test_the_loss_is_the_mean_over_windows(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    whole = loss_of(agent, params, target, batch)
    rows = [jax.tree.map(lambda x, i=i: x[i : i + 1], batch) for i in range(len(batch.action))]
    parts = [loss_of(agent, params, target, row) for row in rows]
    means = jax.tree.map(lambda *x: np.mean(x), *parts)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(means), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    longer = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), batch)
    np.testing.assert_allclose(loss_of(agent, params, target, longer)[0], whole[0], rtol=1e-6)


@every_agent
def test_nothing_beyond_an_episodes_end_is_read_and_padding_may_be_nan(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    beyond = ~np.asarray(find_boundary(batch).observed)
    closed = beyond | np.asarray(batch.is_last)  # the closing step has no action, reward or discount
    assert beyond.sum() == 20
    changed = dataclasses.replace(
        batch,
        observation=jnp.where(beyond[..., None], jnp.nan, batch.observation),
        action=jnp.where(closed, -7, batch.action),
        reward=jnp.where(closed, jnp.nan, batch.reward),
        discount=jnp.where(closed, jnp.nan, batch.discount),
        is_first=batch.is_first ^ beyond,
        is_last=batch.is_last ^ beyond,
        is_terminal=batch.is_terminal ^ beyond,
    )
    before, after = (gradient_of(agent, params, target, windows) for windows in (batch, changed))
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a, b)


@every_agent
def test_every_real_step_is_read(name, batch):
    agent = AGENTS[name]
    params, target = params_of(agent, 1), params_of(agent, 2)
    row = jax.tree.map(lambda x: x[-1:], batch)
    assert not row.is_last.any()
    before = loss_of(agent, params, target, row)[0]
    for t in range(agent.window):
        changed = dataclasses.replace(row, observation=row.observation.at[0, t].add(1.0))
        assert loss_of(agent, params, target, changed)[0] != before
        changed = dataclasses.replace(row, reward=row.reward.at[0, t].add(1.0))
        learns_from_rewards = name != "bc" and t < agent.window - 1
        assert (loss_of(agent, params, target, changed)[0] != before) == learns_from_rewards


@every_agent
def test_targets_carry_no_gradient(name, batch):
    agent = AGENTS[name]
    params = params_of(agent)

    apart, _ = gradient_of(agent, params, params, batch)
    both = eqx.filter_jit(eqx.filter_grad(lambda pair: agent.loss(*pair, batch, KEY)[0]))((params, params))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(both[1]))
    for a, b in zip(jax.tree.leaves(both[0]), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@every_agent
def test_each_loss_trains_its_own_networks(name, batch):
    agent = AGENTS[name]
    params = params_of(agent)
    gradient = gradient_of(agent, params, params, batch)[0].networks

    def trained(tree) -> bool:
        return any(np.any(leaf) for leaf in jax.tree.leaves(tree))

    assert trained(gradient.representation)
    assert trained(gradient.dynamics) == (name != "bc")
    assert trained(gradient.prediction.policy) == (not name.startswith("cql"))
    assert not trained(gradient.prediction.value)


def test_crr_clones_without_teaching_its_critic(batch):
    """With the critic's loss left out, the weights of the cloning pass nothing back."""
    agent = CRR(small_model, positions=4, value_weight=0.0)
    params = params_of(agent)
    gradient = gradient_of(agent, params, params, batch)[0].networks
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient.dynamics))


@every_agent
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_finite_with_a_single_legal_action(name, dtype, batch):
    agent = dataclasses.replace(AGENTS[name], model=functools.partial(small_model, dtype=dtype))
    params, target = params_of(agent, 1), params_of(agent, 2)
    gradient, metrics = gradient_of(agent, params, target, some_forbidden(batch, 1.1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all(np.isfinite(value) for value in metrics.values())
    # Where there is no choice, there is nothing to clone and nothing to hold down.
    for term in ("loss/policy", "loss/conservative"):
        np.testing.assert_allclose(metrics.get(term, 0.0), 0, atol=1e-6)


# Acting and bad settings.


@every_agent
@pytest.mark.parametrize("greedy", [False, True])
def test_act_chooses_legal_actions(name, greedy):
    agent = AGENTS[name]
    params = params_of(agent)
    observation = jax.random.normal(KEY, (20, 4))
    action = agent.act(params, KEY, observation, greedy=greedy)
    assert (action.shape, action.dtype) == ((20,), jnp.int32)
    invalid = jnp.arange(ACTIONS)[None] == jnp.ones((20, 1), jnp.int32)
    assert not np.any(agent.act(params, KEY, observation, greedy=greedy, invalid_actions=invalid) == 1)


def test_policies_are_sampled_and_q_values_are_not():
    observation = jnp.tile(jax.random.normal(KEY, (1, 4)), (2000, 1))
    for name in ("bc", "crr"):
        agent = AGENTS[name]
        params = params_of(agent)
        policy = softmax(everything_said(params, observation[:1])[0][0])
        counts = np.bincount(agent.act(params, KEY, observation), minlength=ACTIONS)
        np.testing.assert_allclose(counts / 2000, policy, atol=0.05)
        assert (agent.act(params, KEY, observation, greedy=True) == np.argmax(policy)).all()
    agent = AGENTS["cql"]
    params = params_of(agent)
    best = np.argmax(params.value_codec.decode(everything_said(params, observation[:1])[1]))
    for greedy in (False, True):
        assert (agent.act(params, KEY, observation, greedy=greedy) == best).all()


def test_defaults_are_the_published_ones():
    crr, cql = agents.get("crr")(small_model), agents.get("cql")(small_model)
    assert (crr.weighting, crr.beta, crr.max_weight, crr.td_steps) == ("exp", 1.0, 20.0, 1)
    assert (crr.policy_weight, crr.value_weight) == (1.0, 1.0)
    assert (cql.alpha, cql.td_steps) == (1.0, 1)
    assert agents.get("bc")(small_model).window == 6
    assert crr.window == cql.window == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BC(small_model, positions=0), "positions must be a whole number of at least 1"),
        (lambda: CRR(small_model, positions=0), "positions must be a whole number of at least 1"),
        (lambda: CQL(small_model, td_steps=0), "td_steps must be a whole number of at least 1"),
        (lambda: CRR(small_model, beta=0.0), "beta must be a finite number above 0"),
        (lambda: CRR(small_model, value_weight=-1.0), "value_weight must be a finite number of at least 0"),
        (lambda: CRR(small_model, max_weight=-1.0), "max_weight must be a finite number above 0"),
        (lambda: CQL(small_model, alpha=-1.0), "alpha must be a finite number of at least 0"),
        (lambda: CRR(small_model, weighting="max"), "weighting"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_windows_too_short_and_a_reward_head_too_narrow_are_refused(batch):
    narrow = functools.partial(small_model, reward_codec=Codec(3))
    for make in (BC, CRR, CQL):
        agent = make(small_model, positions=7)
        with pytest.raises(ValueError, match=r"at least \d steps.*got actions of shape \[\d+, 6\]"):
            agent.loss(agent.init(KEY), agent.init(KEY), batch, KEY)
        if make is BC:
            make(narrow).init(KEY)
        else:
            with pytest.raises(ValueError, match="one codec for both"):
                make(narrow).init(KEY)
