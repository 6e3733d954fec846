import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, latent_model
from rosmo.model import recurrent_fn
from rosmo.networks.base import Output

KEY = jax.random.key(0)


@pytest.fixture
def model():
    """A model whose heads say something: they start at zero otherwise."""
    model = latent_model(KEY, observation_shape=(4,), num_actions=3, discount=0.9)
    leaves, tree = jax.tree.flatten(model)
    keys = jax.random.split(KEY, len(leaves))
    return tree.unflatten(
        [x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    )


def test_unroll_is_step_after_step(model):
    actions = jnp.array([[0, 2, 1, 1], [2, 2, 0, 1]])
    state = model.encode(jax.random.normal(KEY, (2, 4)))
    unrolled = model.unroll(state, actions)
    for k in range(5):
        prediction = model.predict(state)
        np.testing.assert_allclose(unrolled.policy_logits[:, k], prediction.policy_logits, atol=1e-5)
        np.testing.assert_allclose(unrolled.value_logits[:, k], prediction.value_logits, atol=1e-5)
        if k < 4:
            state, reward_logits = model.step(state, actions[:, k])
            np.testing.assert_allclose(unrolled.reward_logits[:, k], reward_logits, atol=1e-5)


def test_a_long_unroll_loops(model):
    actions = jnp.zeros((1, 30), jnp.int32)
    assert model.unroll(model.encode(jnp.ones((1, 4))), actions).policy_logits.shape == (1, 31, 3)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_the_gradient_is_halved_at_each_dynamics_step(model, depth):
    """Against the same prediction written out without any scaling, the root's gradient is (½)^depth."""
    actions = jnp.array([[0, 2, 1]])

    def scaled(state):
        return jnp.sum(model.unroll(state, actions).value_logits[:, depth] ** 2)

    def plain(state):
        for k in range(depth):
            state, _ = model.step(state, actions[:, k])
        return jnp.sum(model.predict(state).value_logits ** 2)

    state = model.encode(jnp.ones((1, 4)))
    np.testing.assert_allclose(
        jax.grad(scaled)(state), 0.5**depth * jax.grad(plain)(state), rtol=1e-4, atol=1e-7
    )


def test_recurrent_fn_decodes_what_the_model_predicts(model):
    state = model.encode(jnp.ones((2, 4)))
    action = jnp.array([1, 2])
    output, after = recurrent_fn(model, KEY, action, state)
    expected, reward_logits = model.step(state, action)
    prediction = model.predict(expected)
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(output.reward, model.reward_codec.decode(reward_logits))
    np.testing.assert_array_equal(output.value, model.value_codec.decode(prediction.value_logits))
    np.testing.assert_array_equal(output.prior_logits, prediction.policy_logits)
    np.testing.assert_allclose(output.discount, 0.9)
    root = model.root(state)
    np.testing.assert_array_equal(root.value, model.value_codec.decode(model.predict(state).value_logits))


@pytest.mark.parametrize("network", ["mlp", "conv", "resnet"])
def test_what_is_imagined_is_float32_from_states_that_were_encoded_in_bfloat16(network):
    shape = (8,) if network == "mlp" else (16, 16, 2)
    settings = {"network": network, "observation_shape": shape, "num_actions": 3, "value_codec": Codec(20)}
    coarse, fine = (latent_model(KEY, dtype=dtype, **settings) for dtype in ("bfloat16", "float32"))
    observation = jax.random.uniform(KEY, (2, *shape))
    imagining, root = coarse.imagine_from(observation)
    state = coarse.encode(observation).astype(jnp.float32)
    np.testing.assert_array_equal(root.embedding, state)
    output, after = recurrent_fn(imagining, KEY, jnp.array([1, 2]), root.embedding)
    assert after.dtype == output.value.dtype == jnp.float32
    np.testing.assert_array_equal(after, fine.step(state, jnp.array([1, 2]))[0])


def test_logits_are_summed_up_in_float32():
    """(300 − 298)(1 + 2⁻⁷) is 2.0156; with each product rounded to bfloat16 it would be 2 or 4."""
    layer = eqx.tree_at(lambda m: m.weight, Output(2, 1), jnp.full((2, 1), 1 + 2**-7, jnp.bfloat16))
    logits = layer(jnp.array([300, -298], jnp.bfloat16))
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, 2 * (1 + 2**-7))


def test_a_network_of_ones_own_needs_no_registration():
    def tiny(key, *, observation_shape, num_actions, num_value_bins, num_reward_bins):
        from rosmo.networks import mlp

        return mlp(
            key,
            observation_shape=observation_shape,
            num_actions=num_actions,
            num_value_bins=num_value_bins,
            num_reward_bins=num_reward_bins,
            representation=(4,),
        )

    model = latent_model(KEY, network=tiny, observation_shape=(4,), num_actions=2)
    assert model.encode(jnp.ones((1, 4))).shape == (1, 4)


def test_reward_and_value_may_have_codecs_of_their_own():
    model = latent_model(
        KEY, observation_shape=(4,), num_actions=2, value_codec=Codec(31), reward_codec=Codec(5)
    )
    unrolled = model.unroll(model.encode(jnp.ones((1, 4))), jnp.zeros((1, 2), jnp.int32))
    assert unrolled.value_logits.shape[-1] == 31
    assert unrolled.reward_logits.shape[-1] == 5


def test_networks_bring_their_own_number_of_bins():
    for name, shape, bins in (("mlp", (4,), 20), ("resnet", (84, 84, 4), 601)):
        build = functools.partial(latent_model, network=name, observation_shape=shape, num_actions=2)
        model = eqx.filter_eval_shape(build, KEY)
        assert (model.value_codec.bins, model.reward_codec.bins) == (bins, bins)


def test_bad_settings_are_refused():
    with pytest.raises(KeyError, match=r"no network 'mpl'\. Did you mean 'mlp'"):
        latent_model(KEY, network="mpl", observation_shape=(4,), num_actions=2)
    with pytest.raises(ValueError, match="num_actions must be a whole number of at least 1, got 0"):
        latent_model(KEY, observation_shape=(4,), num_actions=0)
    for discount in (2.0, -0.1):
        with pytest.raises(
            ValueError, match=f"discount must be a finite number of at least 0 and at most 1, got {discount}"
        ):
            latent_model(KEY, observation_shape=(4,), num_actions=2, discount=discount)
    with pytest.raises(ValueError, match="the size of a layer must be a whole number of at least 1, got 0"):
        latent_model(KEY, observation_shape=(4,), num_actions=2, representation=(8, 0))
    for name in ("representation", "dynamics", "prediction"):
        with pytest.raises(ValueError, match=rf"{name} needs a layer at least, as in \(64,\), got \(\)"):
            latent_model(KEY, observation_shape=(4,), num_actions=2, **{name: ()})
    for name, least, size in (("channels", 2, 1), ("head_size", 1, 0), ("dynamics_blocks", 0, -1)):
        with pytest.raises(ValueError, match=f"{name} must be a whole .* at least {least}, got {size}"):
            latent_model(KEY, network="resnet", observation_shape=(84, 84, 4), num_actions=2, **{name: size})
    for dtype in ("int32", "bfloat17"):
        with pytest.raises(
            ValueError, match=f"dtype must be 'float32', 'bfloat16' or 'float16', got '{dtype}'"
        ):
            latent_model(KEY, observation_shape=(4,), num_actions=2, dtype=dtype)


def test_a_model_compiles_as_an_argument(model):
    encode = eqx.filter_jit(lambda model, x: model.encode(x))
    np.testing.assert_allclose(encode(model, jnp.ones((2, 4))), model.encode(jnp.ones((2, 4))), atol=1e-6)


def test_observations_of_another_shape_are_refused(model):
    with pytest.raises(
        ValueError, match=r"a batch of observations, \[B, 4\], got an array of the shape \[2, 5\]"
    ):
        model.encode(jnp.zeros((2, 5)))
