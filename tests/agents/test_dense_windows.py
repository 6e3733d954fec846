"""A window of several roots has the mean of the losses of the windows of one root that it holds."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Learner, agents
from rosmo.agents.roots import keys_of_roots
from rosmo.data import window_sampler
from tests.learner.test_learner import assert_close, make_source, mesh_of, quick_adamw
from tests.windows import ACTIONS, ON_WORLD, random_steps, small_model, talkative

KEY = jax.random.key(0)
PRESETS = tuple(name for name in agents.names() if name not in (*ON_WORLD, "bc", "cql", "crr"))
EXACT = {
    "rosmo": ("rosmo", {}),
    "behavior": ("behavior", {}),
    "operator": ("rosmo", {"bootstrap": "operator"}),
}
# Ends at every offset of a window, of either kind, and several in one; the data set's end clips the last.
LENGTHS = (14, 14, 13, 13, 2, 2, 3, 3, 2, 5, 4, 14, 2)
TERMINAL = np.array([True, False] * 6 + [False])


def make(name: str, roots: int, **settings):
    return agents.get(name)(small_model, unroll_steps=3, td_steps=2, roots=roots, **settings)


def params_of(agent, seed: int):
    return talkative(agent.init(jax.random.key(seed)), jax.random.key(seed + 100))


@functools.cache
def steps_of(masked: bool):
    rng = np.random.default_rng(0)
    steps = random_steps(rng, LENGTHS, TERMINAL)
    if masked:
        invalid = rng.random((len(steps.action), ACTIONS)) < 0.4
        invalid[np.arange(len(invalid)), steps.action] = False
        steps = dataclasses.replace(steps, invalid_actions=invalid)
    return steps


def every_window(agent, masked: bool = False):
    """The windows that begin at each step with an action, and those steps."""
    source = window_sampler(steps_of(masked), window=agent.window, num_actions=ACTIONS)
    return jax.vmap(source.window_at)(source.starts), np.asarray(source.starts)


def mean_over_roots(agent, masked: bool = False):
    """Loss and metrics by windows of one root, as a function of two networks and the windows' keys.

    Each window of several roots is the mean of those that begin at its first steps, if a window does.
    """
    one = dataclasses.replace(agent, roots=1)
    windows, starts = every_window(one, masked)
    order = {int(start): i for i, start in enumerate(starts)}
    rows = [[order.get(int(start) + root) for root in range(agent.roots)] for start in starts]
    held = [(b, r, row) for b, roots in enumerate(rows) for r, row in enumerate(roots) if row is not None]
    window, root, row = np.array(held).T
    weight = jnp.asarray(1 / np.bincount(window)[window] / len(starts), jnp.float32)
    assert 0 < len(held) < len(starts) * agent.roots

    def mean(params, target, keys):
        def alone(batch, key):
            return one.loss(params, target, jax.tree.map(lambda x: x[None], batch), key[None])

        # A window's first root has the window's key.
        own, folded = keys[window], jax.vmap(jax.random.fold_in)(keys[window], root)
        own, folded = jax.random.key_data(own), jax.random.key_data(folded)
        mine = jax.random.wrap_key_data(jnp.where((root == 0)[:, None], own, folded))
        batch = jax.tree.map(lambda x: x[row], windows)
        loss, metrics = jax.vmap(alone)(batch, mine)
        return jnp.sum(weight * loss), {name: jnp.sum(weight * x) for name, x in metrics.items()}

    return mean


def test_the_data_has_every_ending_at_every_offset():
    batch, _ = every_window(make("rosmo", 4))
    assert batch.action.shape[1] == 9
    first = np.argmax(np.asarray(batch.is_last), axis=1)
    rows = np.arange(len(first))
    ends = {
        (int(e), bool(t)) for e, t in zip(first, np.asarray(batch.is_terminal)[rows, first], strict=True) if e
    }
    assert ends == {(offset, terminal) for offset in range(1, 9) for terminal in (True, False)}
    assert not np.asarray(batch.is_last).all(axis=1).any()
    assert (np.asarray(batch.is_last).sum(axis=1) == 0).any()
    assert (np.asarray(batch.is_last).sum(axis=1) > 2).any()


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("roots", [2, 4])
@pytest.mark.parametrize("name", EXACT)
def test_loss_and_gradient_are_the_mean_over_windows_of_one_root(name, roots, masked):
    preset, settings = EXACT[name]
    agent = make(preset, roots, **settings)
    params, target = params_of(agent, 1), params_of(agent, 2)
    batch, _ = every_window(agent, masked)
    keys = jax.random.split(KEY, len(batch.action))
    gradient = lambda loss: eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))  # noqa: E731
    dense = lambda p, t, k: agent.loss(p, t, batch, k)  # noqa: E731
    (found, metrics), grads = gradient(dense)(params, target, keys)
    (expected, means), mean_grads = gradient(mean_over_roots(agent, masked))(params, target, keys)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert metrics.keys() == means.keys()
    for metric, value in metrics.items():
        np.testing.assert_allclose(value, means[metric], rtol=2e-6, atol=1e-6, err_msg=metric)
    assert_close(grads, mean_grads, atol=1e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(grads)) > 1e-2


@pytest.mark.parametrize("name", PRESETS)
def test_a_batch_is_the_mean_of_its_windows(name):
    agent = make(name, 3)
    params, target = params_of(agent, 1), params_of(agent, 2)
    batch, _ = every_window(agent)
    batch = jax.tree.map(lambda x: x[::5], batch)
    keys = jax.random.split(KEY, len(batch.action))
    loss = eqx.filter_jit(agent.loss)
    whole, metrics = loss(params, target, batch, keys)
    alone = [
        loss(params, target, jax.tree.map(lambda x, i=i: x[i : i + 1], batch), keys[i : i + 1])[0]
        for i in range(len(keys))
    ]
    np.testing.assert_allclose(whole, np.mean(alone), rtol=1e-5)
    parts = sum(value for key, value in metrics.items() if key.startswith("loss/"))
    np.testing.assert_allclose(whole, parts, rtol=1e-5)
    assert all(np.isfinite(value) for value in metrics.values())


def test_each_step_is_judged_once():
    agent = make("rosmo", 4)
    batch, _ = every_window(agent)
    judged = agent.step_targets(params_of(agent, 2), jax.tree.map(lambda x: x[0], batch), KEY)
    assert agent.window == 4 + 3 + 2
    assert judged.values.shape == (9,)
    assert judged.policy.shape == (7, ACTIONS)


def test_padding_that_is_marked_may_be_nan():
    """What pads the windows of an episode behind its end changes neither loss nor gradient by a bit."""
    agent = make("rosmo", 4)
    params, target = params_of(agent, 1), params_of(agent, 2)
    batch, _ = every_window(agent)
    ended = np.cumsum(np.asarray(batch.is_last), axis=1) > 0
    beyond = jnp.asarray(ended & ~np.roll(~ended, 1, axis=1))
    assert beyond[:, 1:4].any()
    padded = dataclasses.replace(batch, is_last=batch.is_last | beyond)
    poisoned = dataclasses.replace(
        padded,
        observation=jnp.where(beyond[..., None], jnp.nan, padded.observation),
        reward=jnp.where(beyond, jnp.nan, padded.reward),
    )
    gradient = eqx.filter_jit(eqx.filter_value_and_grad(agent.loss, has_aux=True))
    clean, poisoned, unpadded = (gradient(params, target, x, KEY) for x in (padded, poisoned, batch))
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(poisoned), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(b).all()
    assert clean[0][0] != unpadded[0][0]  # the next episode's roots are trained where there is one


@pytest.mark.parametrize("bootstrap", ["network", "operator"])
def test_kept_targets_are_those_of_the_windows(bootstrap):
    agent = make("rosmo", 4, bootstrap=bootstrap)
    params, target = params_of(agent, 1), params_of(agent, 2)
    steps = jax.tree.map(jnp.asarray, steps_of(True))
    batch, starts = every_window(agent, True)
    keys = jax.random.split(KEY, len(starts))
    judged = jax.jit(agent.judge)(target, steps, KEY)
    kept = jax.vmap(agent.gather, (None, 0))(judged, jnp.asarray(starts))
    fresh = eqx.filter_jit(agent.loss)(params, target, batch, keys)
    from_kept = eqx.filter_jit(agent.loss_from_targets)(params, batch, kept, keys)
    for a, b in zip(jax.tree.leaves(fresh), jax.tree.leaves(from_kept), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def train(agent, updates: int, *, devices: int = 1, cache: bool = False):
    learner = Learner(
        agent,
        quick_adamw(),
        batch_size=16,
        target_update_interval=2,
        cache_targets=cache,
        mesh=mesh_of(devices),
    )
    start = params_of(agent, 1)
    copy = jax.tree.map(jnp.copy, start)
    state = eqx.tree_at(lambda s: (s.params, s.target_params), learner.init(KEY), (start, copy))
    return jax.device_get(learner.update_many(state, make_source(agent), updates))


@pytest.mark.parametrize("name", ["rosmo", "mzu"])
def test_one_device_and_eight_train_alike(name):
    agent = make(name, 4)
    (one, metrics), (eight, _) = (train(agent, 5, devices=devices) for devices in (1, 8))
    assert_close(one, eight, atol=1e-5)
    assert all(np.isfinite(x).all() for x in metrics.values())


def test_kept_targets_train_as_fresh_ones_do():
    agent = make("rosmo", 4)
    (fresh, _), (kept, _) = (train(agent, 5, cache=cache) for cache in (False, True))
    assert_close(fresh, kept, atol=1e-5)


def test_the_update_is_traced_once_and_learns():
    traces = []

    agent = make("rosmo", 4)

    class Counting:
        window = agent.window
        init = staticmethod(agent.init)
        act = staticmethod(agent.act)

        @staticmethod
        def loss(*args):
            traces.append(1)
            return agent.loss(*args)

    learner = Learner(Counting(), quick_adamw(), batch_size=16)
    state, source = learner.init(KEY), make_source(agent)
    losses = []
    for _ in range(3):
        state, metrics = learner.update_many(state, source, 20)
        losses.append(np.mean(metrics["loss"]))
    assert len(traces) == 1
    assert losses[-1] < losses[0]


def test_roots_have_keys_of_their_own():
    keys = jax.random.split(KEY, 3)
    raw = jax.random.key_data(keys)
    found = keys_of_roots(keys, 4)
    assert found.shape == (12,)
    np.testing.assert_array_equal(jax.random.key_data(found[::4]), raw)
    assert len(np.unique(jax.random.key_data(found), axis=0)) == 12
    np.testing.assert_array_equal(keys_of_roots(raw, 4), jax.random.key_data(found))


@pytest.mark.parametrize("roots", [0, -1, True])
def test_roots_that_are_no_count_are_refused(roots):
    with pytest.raises(ValueError, match="roots must be a whole number of at least 1, got"):
        make("rosmo", roots)


def test_windows_too_short_for_their_roots_are_refused():
    agent, short = make("rosmo", 4), make("rosmo", 3)
    batch, _ = every_window(short)
    params = agent.init(KEY)
    with pytest.raises(ValueError, match=r"at least 9 steps.*\(roots \+ unroll_steps \+ td_steps\), got"):
        agent.loss(params, params, batch, KEY)
