import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Learner, agents
from rosmo.learner.kept_targets import pays
from tests.learner.test_learner import assert_close, make_source, mesh_of
from tests.windows import small_model, talkative

KEY = jax.random.key(0)


def make_agent(name: str):
    extra = {"num_simulations": 3, "dirichlet_fraction": 0.0} if name.startswith("mzu") else {}
    return agents.get(name)(small_model, unroll_steps=3, td_steps=2, **extra)


def train(agent, source, *, cache: bool | None, devices: int = 1, calls=(10,)):
    learner = Learner(
        agent, batch_size=8, target_update_interval=4, cache_targets=cache, mesh=mesh_of(devices)
    )
    state = learner.init(KEY)
    # Heads that start at zero tie every action: a search would then be decided by its key.
    start = talkative(agent.init(KEY), jax.random.key(1))
    state = eqx.tree_at(lambda s: (s.params, s.target_params), state, (start, jax.tree.map(jnp.copy, start)))
    metrics = []
    for count in calls:
        state, new = learner.update_many(state, source, count)
        metrics.append(new)
    return state, jax.tree.map(lambda *x: np.concatenate(x), *metrics)


@pytest.fixture(scope="module")
def source():
    return make_source(make_agent("rosmo"))


@pytest.mark.parametrize("name", ["rosmo", "mzu"])
def test_kept_targets_train_as_fresh_ones_do_over_several_refreshes(name, source):
    agent = make_agent(name)
    plain, plain_metrics = train(agent, source, cache=False)
    kept, kept_metrics = train(agent, source, cache=True)
    assert_close(kept.params, plain.params, atol=1e-5)
    assert_close(kept.target_params, plain.target_params, atol=1e-5)
    for metric, values in plain_metrics.items():
        np.testing.assert_allclose(kept_metrics[metric], values, atol=1e-4, rtol=1e-4, err_msg=metric)


def test_calls_may_end_anywhere_between_refreshes(source):
    agent = make_agent("rosmo")
    whole, _ = train(agent, source, cache=True)
    parts, _ = train(agent, source, cache=True, calls=(3, 1, 5, 1))
    assert_close(parts.params, whole.params, atol=1e-6)


def test_each_device_judges_its_share(source):
    agent = make_agent("rosmo")
    one, _ = train(agent, source, cache=True)
    eight, _ = train(agent, source, cache=True, devices=8)
    assert_close(eight.params, one.params, atol=1e-5)


def test_a_small_data_set_is_chosen_for_and_a_large_one_is_not(source):
    agent, count = make_agent("rosmo"), len(source.steps.action)
    choose = functools.partial(pays, agent, source, agent.init(KEY), interval=2, window=1)
    assert choose(batch_size=count)
    assert not choose(batch_size=count - 1)


def test_operators_that_draw_samples_are_not_cached_unless_asked(source):
    agent = make_agent("sampled_rosmo")
    learner = Learner(agent, batch_size=8)
    assert not learner._caches(learner.init(KEY), source)
    for name, repeatable in {"mzu": False, "mzu_q": False, "rosmo": True, "behavior": True}.items():
        agent = make_agent(name)
        assert agent.repeatable(agent.init(KEY), source.steps) == repeatable


def test_a_cache_that_cannot_be_is_refused(source):
    class Loss:
        window = 6
        init = staticmethod(make_agent("rosmo").init)
        loss = staticmethod(make_agent("rosmo").loss)
        act = staticmethod(make_agent("rosmo").act)

    learner = Learner(Loss(), batch_size=8, cache_targets=True)
    with pytest.raises(TypeError, match="targets cannot be cached for Loss"):
        learner.update_many(learner.init(KEY), source, 1)
