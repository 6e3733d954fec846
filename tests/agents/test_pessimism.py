"""Agents whose models have an ensemble: what they learn, what operators are shown, and how they train."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rosmo import Learner, agents, configs
from rosmo.agents.roots import cut
from rosmo.agents.terms import reward_loss, value_loss
from rosmo.configs import ConfigError
from rosmo.data import window_sampler
from rosmo.model import recurrent_fn
from rosmo.runs.checkpoint import Checkpoints
from rosmo.types import map_arrays
from tests.learner.test_learner import mesh_of, quick_adamw
from tests.windows import ACTIONS, every_ending, random_steps, small_model

KEY = jax.random.key(0)
pair_model = functools.partial(small_model, ensemble=3)


def make(name="rosmo", pessimism=1.5, **settings):
    return agents.get(name)(pair_model, unroll_steps=3, td_steps=2, pessimism=pessimism, **settings)


def talkative(model, seed):
    rng = np.random.default_rng(seed)
    return map_arrays(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), model)


@pytest.fixture(scope="module")
def batch():
    return every_ending(np.random.default_rng(0), 6)


def test_the_loss_is_the_mean_over_members_with_the_same_targets(batch):
    agent = make()
    model = talkative(agent.init(KEY), 1)
    targets = jax.vmap(agent.step_targets, (None, 0, 0))(
        model, batch, jax.random.split(KEY, len(batch.action))
    )
    rooted = cut(batch, targets, jax.random.split(KEY, len(batch.action)), roots=1)
    unrolled = model.unroll(model.encode(batch.observation[:, 0]), rooted.batch.action[:, :3])
    returns = jnp.linspace(-2, 2, len(batch.action) * 4).reshape(-1, 4)
    found = value_loss(model, unrolled, returns, rooted.boundary)
    rewards = reward_loss(model, unrolled, rooted.batch.reward, rooted.boundary)
    each, each_reward = [], []
    for member in range(3):
        one = unrolled._replace(
            value_logits=unrolled.value_logits[:, :, member],
            reward_logits=unrolled.reward_logits[:, :, member],
        )
        each.append(value_loss(model, one, returns, rooted.boundary))
        each_reward.append(reward_loss(model, one, rooted.batch.reward, rooted.boundary))
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rewards, np.mean(each_reward, axis=0), rtol=1e-4, atol=1e-5)
    cross_entropy = optax.softmax_cross_entropy(
        unrolled.value_logits[-1, 0], model.value_codec.encode(returns[-1, :1])
    )
    np.testing.assert_allclose(found[-1, 0], np.mean(cross_entropy), rtol=1e-4)


def test_values_bootstrap_from_the_mean_and_all_else_is_of_the_bound(batch):
    agent = make()
    target = talkative(agent.init(KEY), 2)
    assert target.pessimism == 1.5
    window = jax.tree.map(lambda x: x[-1], batch)
    said = agent.step_targets(target, window, KEY)
    root = target.root(target.encode(window.observation))
    v = np.asarray(target.value_codec.decode(target.predict(root.embedding).value_logits), np.float64)
    np.testing.assert_allclose(said.values, v.mean(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(agent.values(target, window.observation), v.mean(axis=1), rtol=1e-4, atol=1e-5)
    bound = v.mean(axis=1) - 1.5 * v.std(axis=1)
    np.testing.assert_allclose(said.prior_value, bound[:4], rtol=1e-4, atol=1e-5)
    output, _ = recurrent_fn(target, KEY, window.action, root.embedding)
    advantage = np.asarray(output.reward + output.discount * output.value) - bound
    np.testing.assert_allclose(said.advantage, advantage[:4], rtol=1e-3, atol=1e-4)
    searched = make("mzu", num_simulations=2)
    assert not np.allclose(searched.step_targets(target, window, KEY).values, v.mean(axis=1))


def trained(devices: int, updates: int, agent, state=None):
    rng = np.random.default_rng(0)
    steps = random_steps(rng, rng.integers(2, 12, 40), rng.random(40) < 0.5)
    source = window_sampler(steps, window=agent.window, num_actions=ACTIONS)
    settings = {"batch_size": 8, "target_update_interval": 2, "cache_targets": True}
    learner = Learner(agent, quick_adamw(), mesh=mesh_of(devices), **settings)
    state = learner.init(KEY) if state is None else state(learner)
    return learner.update_many(state, source, updates)[0]


def arrays_of(state):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(state.params, eqx.is_array))]


def test_it_trains_alike_on_one_device_and_four_and_goes_on_where_it_stopped(tmp_path):
    agent = make(roots=2)
    whole = trained(1, 4, agent)
    for x, y in zip(arrays_of(whole), arrays_of(trained(4, 4, agent)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(trained(1, 2, agent))
    checkpoints.close()
    later = trained(
        1, 2, agent, lambda learner: Checkpoints(tmp_path).restore(learner.init(jax.random.key(5)))
    )
    for x, y in zip(arrays_of(whole), arrays_of(later), strict=True):
        np.testing.assert_array_equal(x, y)
    fresh = Learner(agent, quick_adamw(), batch_size=8, mesh=mesh_of(1)).init(KEY)
    same = [np.array_equal(x, y) for x, y in zip(arrays_of(fresh), arrays_of(whole), strict=True)]
    assert same == [x.dtype == np.uint32 for x in arrays_of(whole)]  # all is trained but the priors


def test_an_agent_is_as_pessimistic_as_it_is_told():
    bind = ["ensemble = 3", "pessimism = 'min'", "prior_scale = 0.5"]
    agent = configs.load(["bsuite/mzu"], bind).build_agent()
    model = eqx.filter_eval_shape(agent.init, KEY)
    assert (model.ensemble, model.pessimism) == (3, "min")
    assert model.networks.prediction.value.scale == 0.5
    plain = eqx.filter_eval_shape(configs.load(["bsuite/rosmo"]).build_agent().init, KEY)
    assert (plain.ensemble, plain.pessimism) == (1, 0.0)


@pytest.mark.parametrize(
    ("agent", "binding", "message"),
    [
        ("rosmo", "pessimism = 'max'", "pessimism must be a number or one of 'min', got 'max'"),
        ("rosmo", "ensemble = 2.5", "ensemble must be a whole number, got 2.5"),
        ("cql", "pessimism = 1.0", "would change nothing"),
    ],
)
def test_a_setting_of_another_kind_is_refused(agent, binding, message):
    with pytest.raises(ConfigError, match=message):
        configs.load([f"bsuite/{agent}"], [binding])


@pytest.mark.parametrize(
    ("name", "bind", "message"),
    [
        ("rosmo", ["pessimism = 1.0"], "set ensemble too"),
        ("rosmo", ["ensemble = 0"], "ensemble must be a whole number of at least 1, got 0"),
        ("bc", ["ensemble = 2"], "leave ensemble at 1"),
        ("crr", ["ensemble = 2"], "leave ensemble at 1"),
        ("cql", ["ensemble = 2"], "leave ensemble at 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(name, bind, message):
    agent = configs.load([f"bsuite/{name}"], bind).build_agent()
    with pytest.raises(ValueError, match=message) as error:
        eqx.filter_eval_shape(agent.init, KEY)
    assert "\n" not in str(error.value).split("In call to configurable")[0].strip()
