"""COMBO in a world that is known exactly: its mix, its penalties, and its rollouts."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType

from rosmo import Learner
from rosmo.agents import CQL
from rosmo.worlds import COMBO
from tests.worlds.tables import TabularWorld
from tests.worlds.test_agents import CORRIDOR, HEAD, KEY, STATES, make, moved, source_of, trained, windows_of


def test_one_device_and_two_train_combo_alike():
    agent = make("combo")
    found = []
    for count in (1, 2):
        devices = jax.devices()[:count]
        mesh = jax.make_mesh((count,), ("data",), devices=devices, axis_types=(AxisType.Auto,))
        learner = Learner(agent, optax.sgd(0.1), batch_size=8, target_update_interval=2, mesh=mesh)
        found.append(
            jax.device_get(learner.update_many(learner.init(KEY), source_of(agent), 1)[0].params.head)
        )
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def combo(**settings):
    agent = make("combo", **settings)
    return agent, moved(agent.init(KEY), KEY)


def test_combo_with_nothing_imagined_is_the_librarys_cql():
    agent, params = combo(penalty="cql", ratio=1.0, alpha=0.7)
    batch, keys = windows_of(agent, 16), jax.random.split(KEY, 16)
    real, _ = eqx.filter_jit(agent.mix)(params, params, batch, keys)
    cql = CQL(HEAD, alpha=0.7, positions=3)
    expected, _ = eqx.filter_jit(cql.loss)(params.head, params.head, real, keys)
    loss, _ = eqx.filter_jit(agent.loss)(params, params, batch, keys)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_the_two_penalties_by_hand():
    found = {}
    for penalty in ("combo", "cql"):
        agent, params = combo(penalty=penalty, ratio=0.25, alpha=2.0)
        batch, keys = windows_of(agent, 16), jax.random.split(KEY, 16)
        found[penalty] = eqx.filter_jit(agent.loss)(params, params, batch, keys)[1]
    real, dreamt = eqx.filter_jit(agent.mix)(params, params, batch, keys)
    seen = CQL(HEAD, positions=3).terms(params.head, params.head, real)
    imagined = CQL(HEAD, positions=4).terms(params.head, params.head, dreamt)

    def per_window(x, mask):
        x, mask = np.asarray(x, np.float64), np.asarray(mask)
        return np.mean([row[m].mean() if m.any() else 0 for row, m in zip(x, mask, strict=True)])

    down, up = per_window(imagined.soft_maximum, imagined.mask), per_window(seen.q_taken, seen.mask)
    np.testing.assert_allclose(found["combo"]["loss/conservative"], 2 * (down - up), rtol=1e-4)
    excess = [np.where(t.mask, t.soft_maximum - t.q_taken, 0).mean() for t in (seen, imagined)]
    by_hand = 2 * (0.25 * excess[0] + 0.75 * excess[1])
    np.testing.assert_allclose(found["cql"]["loss/conservative"], by_hand, rtol=1e-4)
    np.testing.assert_allclose(found["cql"]["loss/value"], found["combo"]["loss/value"], rtol=1e-6)


def test_the_mix_is_of_features_with_the_rewards_that_followed():
    agent, params = combo(exploration=0.0)
    batch, keys = windows_of(agent, 64), jax.random.split(KEY, 64)
    for steps in eqx.filter_jit(agent.mix)(params, params, batch, keys):
        acted = ~np.asarray(steps.is_last)
        acted &= np.cumsum(np.asarray(steps.is_last), axis=1) == 0
        state, action = np.asarray(steps.observation).argmax(axis=-1)[acted], np.asarray(steps.action)[acted]
        assert acted[:, 0].all()
        np.testing.assert_allclose(np.asarray(steps.reward)[acted], CORRIDOR.reward[state, action])
        np.testing.assert_allclose(np.asarray(steps.discount)[acted], CORRIDOR.discount[state, action])
    best = np.asarray(CQL(HEAD).act(params.head, KEY, jnp.eye(STATES)))
    np.testing.assert_array_equal(action, best[state])  # of the rollouts, which come last


def test_the_data_is_cut_after_its_context_and_imagined_from_its_last_action():
    agent, params = combo()
    batch, keys = windows_of(agent, 64), jax.random.split(KEY, 64)
    real, dreamt = eqx.filter_jit(agent.mix)(params, params, batch, keys)
    last = np.asarray(batch.is_last)
    begun = np.where(last, -1, np.arange(agent.window)).max(axis=1)
    np.testing.assert_array_equal(dreamt.observation[:, 0], batch.observation[np.arange(64), begun])
    start = np.where(last[:, 2], 0, 2)  # a window that is over by then is read from its start
    assert set(start) == {0, 2}
    for row, first in enumerate(start):
        here = slice(first, first + agent.window - 2)
        np.testing.assert_array_equal(real.is_last[row], last[row, here])
        seen = np.cumsum(last[row, here]) <= last[row, here]
        np.testing.assert_array_equal(real.observation[row][seen], batch.observation[row, here][seen])


def test_every_rollout_is_of_one_member():
    members = []

    class Recording(TabularWorld):
        def imagine(self, state, action, keys, member=None):
            jax.debug.callback(lambda x: members.append(np.asarray(x)), member, ordered=True)
            return super().imagine(state, action, keys, member)

    world = Recording(*(getattr(CORRIDOR, f.name) for f in dataclasses.fields(CORRIDOR)))
    agent = make("combo", world)
    params = agent.init(KEY)
    eqx.filter_jit(agent.mix)(params, params, windows_of(agent, 32), jax.random.split(KEY, 32))
    jax.effects_barrier()
    assert len(members) == agent.horizon
    assert all((later == members[0]).all() for later in members)
    assert set(members[0]) == {0, 1}


@pytest.mark.parametrize(("penalty", "alpha"), [("cql", 0.1), ("combo", None)])
def test_combo_learns_the_corridor(penalty, alpha):
    agent = COMBO(lambda key: CORRIDOR, head=HEAD, context=2, penalty=penalty, alpha=alpha)
    params = trained(agent, updates=800, renew=25)
    memory = agent.initial_memory(params, STATES - 2)
    action, _ = agent.act(params, KEY, jnp.eye(STATES)[1:-1], memory)
    assert (action == 1).all()
