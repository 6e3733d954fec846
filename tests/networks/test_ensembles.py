"""Members of an ensemble: what they say, against NumPy, and what no training changes of them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, latent_model
from rosmo.learner import adamw
from rosmo.model import deviation, recurrent_fn
from rosmo.networks.ensembles import Members
from tests.networks.test_networks import SHAPES
from tests.windows import small_model

KEY = jax.random.key(0)
ACTION = jnp.array([0, 2])


def built(name: str, of: str):
    shape = {"mlp": (10, 5), "conv": (10, 10, 4), "resnet": (16, 16, 2)}[name]
    settings = {"observation_shape": shape, "num_actions": 3, "value_codec": Codec(21)}
    return eqx.filter_eval_shape(
        functools.partial(latent_model, network=name, ensemble=3, ensemble_of=of, **settings), KEY
    )


@pytest.mark.parametrize("of", ["heads", "dynamics"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_network_can_have_an_ensemble(name, of):
    model = built(name, of)
    shown = jnp.ones((2, *model.observation_shape), jnp.uint8 if name == "resnet" else jnp.float32)

    def everything(model):
        state = model.encode(shown)
        output, _ = recurrent_fn(model.at_pessimism(1.0), KEY, ACTION, state)
        return output, model.unroll(state, jnp.zeros((2, 2), jnp.int32))

    output, unrolled = eqx.filter_eval_shape(everything, model)
    assert output.reward.shape == output.value.shape == (2,)
    assert output.prior_logits.shape == (2, 3)
    assert unrolled.value_logits.shape == (2, 3, 3, 21)
    assert unrolled.reward_logits.shape == (2, 2, 3, 21)


@pytest.mark.parametrize("of", ["heads", "dynamics"])
def test_members_differ_from_the_start(of):
    model = small_model(KEY, ensemble=3, ensemble_of=of)
    state, reward = model.step(model.encode(jnp.ones((2, 4))), ACTION)
    for logits in (reward, model.predict(state).value_logits):
        assert len(np.unique(np.asarray(logits)[0, :, 0])) == 3


def test_a_layer_of_members_by_hand():
    layer = Members(KEY, 5, 4, members=3, scale=2.0)
    layer = eqx.tree_at(lambda m: m.output.weight, layer, jax.random.normal(KEY, (5, 12)))
    x = jax.random.normal(KEY, (5,))
    hidden, last = jax.tree.map(np.asarray, layer.prior.thaw())
    still = np.asarray(x) / np.sqrt(np.mean(np.square(x)))
    random = np.maximum(still @ hidden.weight + hidden.bias, 0) @ last
    expected = np.asarray(x) @ np.asarray(layer.output.weight) + 2 * random
    np.testing.assert_allclose(layer(x), expected.reshape(3, 4), rtol=1e-4, atol=1e-5)
    untrained = Members(KEY, 5, 4, members=3, scale=2.0)
    np.testing.assert_allclose(untrained(1e6 * x), untrained(x), rtol=1e-4)  # the size of x changes nothing


def test_priors_have_no_gradient_and_let_none_through():
    layer = Members(
        KEY, 5, 4, members=3, scale=2.0
    )  # what is trained starts at 0: all that is said is random
    x = jax.random.normal(KEY, (5,))
    assert np.any(layer(x))
    assert not np.any(jax.grad(lambda x: jnp.sum(layer(x) ** 2))(x))
    gradient = eqx.filter_grad(lambda m: jnp.sum(m(x) ** 2))(layer)
    assert jax.tree.leaves(gradient.prior) == []
    assert np.any(gradient.output.weight)


@pytest.mark.parametrize("of", ["heads", "dynamics"])
def test_no_update_and_no_decay_changes_a_prior(of):
    model = small_model(KEY, ensemble=3, ensemble_of=of)
    optimizer = adamw(1e-2, weight_decay=0.5, warmup_steps=0)
    trained = eqx.filter(model, eqx.is_inexact_array)
    state = optimizer.init(trained)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, trained), state, trained)
    after = eqx.apply_updates(model, updates)
    priors = [leaf for leaf in jax.tree.leaves(after) if leaf.dtype == jnp.uint32]
    assert len(priors) == 2 * 3  # of reward and value: a layer with its bias, and another
    for before, now in zip(jax.tree.leaves(model), jax.tree.leaves(after), strict=True):
        assert np.array_equal(before, now) == (now.dtype == jnp.uint32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_members_compute_in_the_models_type_and_say_it_in_float32(dtype):
    model = small_model(KEY, ensemble=3, dtype=dtype)
    state = model.encode(jnp.ones((2, 4)))
    state, reward = model.step(state, ACTION)
    assert (state.dtype, reward.dtype, model.predict(state).value_logits.dtype) == (
        dtype,
        "float32",
        "float32",
    )


def test_operators_are_shown_the_bound_of_a_members_q_as_a_whole():
    model = small_model(KEY, ensemble=4)
    state = model.encode(jax.random.normal(KEY, (2, 4)))
    after, reward_logits = model.step(state, ACTION)
    r = np.asarray(model.reward_codec.decode(reward_logits), np.float64)
    v = np.asarray(model.value_codec.decode(model.predict(after).value_logits), np.float64)
    here = np.asarray(model.value_codec.decode(model.predict(state).value_logits), np.float64)
    q = r + 0.9 * v
    for pessimism in (0.0, 1.0, -0.5, 3, "min"):

        def bound(x, pessimism=pessimism):
            return x.min(axis=1) if pessimism == "min" else x.mean(axis=1) - pessimism * x.std(axis=1)

        shown = model.at_pessimism(pessimism)
        output, _ = recurrent_fn(shown, KEY, ACTION, state)
        np.testing.assert_allclose(output.value, bound(v), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(output.reward, bound(q) - 0.9 * bound(v), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(shown.root(state).value, bound(here), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(shown.neutral.root(state).value, here.mean(axis=1), rtol=1e-4, atol=1e-5)
    naive = r.mean(axis=1) - r.std(axis=1) + 0.9 * (v.mean(axis=1) - v.std(axis=1))
    assert np.all(bound_of(q) > naive + 1e-4)  # errors of r and v that cancel are not counted twice


def bound_of(q):
    return q.mean(axis=1) - q.std(axis=1)


def test_a_deviation_of_nothing_has_a_gradient_of_nothing():
    members = jnp.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
    np.testing.assert_allclose(deviation(members), [0, np.std([1, 2, 3])], rtol=1e-6)
    gradient = jax.grad(lambda x: jnp.sum(deviation(x)))(members)
    np.testing.assert_array_equal(gradient[0], 0)
    np.testing.assert_allclose(gradient[1, 1], 0, atol=1e-6)


def test_settings_that_cannot_be_meant_are_refused():
    for bad in (0, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="ensemble"):
            small_model(KEY, ensemble=bad)
    with pytest.raises(ValueError, match="prior_scale must be a finite number above 0, got 0"):
        small_model(KEY, ensemble=2, prior_scale=0)
    with pytest.raises(ValueError, match=r"a pessimism of 1\.0 is of how far .* set ensemble too"):
        small_model(KEY).at_pessimism(1.0)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="pessimism must be a finite number, or 'min'"):
            small_model(KEY, ensemble=2).at_pessimism(bad)

    def own(key, *, observation_shape, num_actions, num_value_bins, num_reward_bins):
        raise AssertionError

    with pytest.raises(ValueError, match="an ensemble of 2 needs a network that takes `ensemble`"):
        latent_model(
            KEY, network=own, observation_shape=(4,), num_actions=2, ensemble=2, value_codec=Codec(20)
        )
