import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, latent_model, networks
from rosmo.costs.flops import count_flops
from rosmo.model import recurrent_fn
from rosmo.networks.conv import PatchConv
from rosmo.networks.resnet import Conv3x3, LayerNorm, ResidualBlock, average_pool, convolve
from rosmo.operators import look_ahead

KEY = jax.random.key(0)

# What every registered network is built with in the suite; a new network must be added here.
SHAPES = {"conv": (10, 10, 4), "mlp": (10, 5), "resnet": (84, 84, 4)}
every_network = pytest.mark.parametrize("name", SHAPES)


def observations(name: str, count: int = 2):
    rng = np.random.default_rng(0)
    if name in ("conv", "resnet"):
        return jnp.asarray(rng.integers(0, 256 if name == "resnet" else 2, (count, *SHAPES[name]), np.uint8))
    return jnp.asarray(rng.random((count, *SHAPES[name]), np.float32))


@functools.cache
def built(name: str, dtype: str = "float32"):
    codec = Codec(601 if name == "resnet" else 20)
    return latent_model(
        KEY, network=name, observation_shape=SHAPES[name], num_actions=3, value_codec=codec, dtype=dtype
    )


def test_every_registered_network_is_in_the_suite():
    assert set(SHAPES) == set(networks.names())


@every_network
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_computes_in_its_dtype_and_keeps_parameters_in_float32(name, dtype):
    model = built(name, dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
    state = eqx.filter_jit(model.encode)(observations(name))
    assert state.dtype == jnp.dtype(dtype)
    state, reward_logits = eqx.filter_jit(model.step)(state, jnp.array([0, 2]))
    assert state.dtype == jnp.dtype(dtype)
    prediction = eqx.filter_jit(model.predict)(state)
    assert {x.dtype for x in (reward_logits, *prediction)} == {jnp.dtype("float32")}
    assert np.isfinite(state.astype(jnp.float32)).all()


@every_network
def test_heads_start_at_zero(name):
    model = built(name)
    state, reward_logits = eqx.filter_jit(model.step)(model.encode(observations(name)), jnp.array([0, 2]))
    prediction = model.predict(state)
    assert not np.any(reward_logits)
    assert not np.any(prediction.policy_logits)
    assert not np.any(prediction.value_logits)


@every_network
def test_bfloat16_stays_close_to_float32(name):
    exact, rough = (
        eqx.filter_jit(built(name, d).encode)(observations(name)) for d in ("float32", "bfloat16")
    )
    scale = np.abs(exact).max()
    np.testing.assert_allclose(rough.astype(jnp.float32), exact, atol=0.05 * scale)


@every_network
def test_the_action_changes_the_next_state(name):
    model = built(name)
    state = model.encode(observations(name, 1))
    after = [model.step(state, jnp.array([a]))[0] for a in range(3)]
    assert not np.allclose(after[0], after[1])
    assert not np.allclose(after[1], after[2])


@every_network
def test_the_look_ahead_computes_the_states_part_once(name):
    """The cost of one more action is less than that of a first one, by the products with the state."""
    model = built(name)
    state = model.encode(observations(name))

    def cost(num_actions):
        actions = jnp.zeros((2, num_actions), jnp.int32)
        return count_flops(lambda m, s: look_ahead(m, KEY, s, recurrent_fn, actions), model, state)

    first, more = cost(1), cost(2) - cost(1)
    assert cost(5) == first + 4 * more
    shared = {"conv": 2 * 2 * 128 * 256, "mlp": 2 * 2 * 32 * 256, "resnet": 2 * 2 * 36 * 9 * 64 * 64}[name]
    assert first - more == shared


def test_mlp_by_hand():
    model = built("mlp")
    h, g, f = jax.tree.map(np.asarray, model.networks)
    observation = np.asarray(observations("mlp"))
    x = observation.reshape(2, -1)
    assert [layer.weight.shape for layer in h.mlp.layers] == [(50, 64), (64, 64), (64, 32)]
    for layer in h.mlp.layers[:-1]:
        x = np.maximum(x @ layer.weight + layer.bias, 0)
    state = x @ h.mlp.layers[-1].weight + h.mlp.layers[-1].bias
    np.testing.assert_allclose(model.encode(jnp.asarray(observation)), state, atol=1e-5)

    joint = np.concatenate([g.from_state.weight, g.from_action])  # one layer on [state, one-hot action]
    assert joint.shape == (35, 256)
    one_hot = np.eye(3)[[2, 0]]
    hidden = np.maximum(np.concatenate([state, one_hot], axis=1) @ joint + g.from_state.bias, 0)
    (last,) = g.rest.layers
    expected = hidden @ last.weight + last.bias
    after, _ = model.step(jnp.asarray(state), jnp.array([2, 0]))
    np.testing.assert_allclose(after, expected, atol=1e-4)
    assert [layer.weight.shape for layer in f.torso.layers] == [(32, 32)]


def test_mlp_sizes_are_settings():
    sizes = {"representation": (16, 8), "dynamics": (20, 12), "prediction": (10, 6)}
    model = latent_model(KEY, observation_shape=(3,), num_actions=1, **sizes)
    unrolled = model.unroll(model.encode(jnp.ones((2, 3))), jnp.zeros((2, 4), jnp.int32))
    assert unrolled.policy_logits.shape == (2, 5, 1)
    assert unrolled.reward_logits.shape == (2, 4, 20)


def test_a_convolution_by_patches_is_xlas():
    conv = PatchConv(KEY, 2, 3)
    image = jnp.asarray(np.random.default_rng(0).normal(size=(7, 6, 2)), jnp.float32)
    kernel = conv.linear.weight.reshape(3, 3, 2, 3)
    conv = eqx.tree_at(lambda c: c.linear.bias, conv, jnp.arange(3.0))
    expected = convolve(image, kernel) + jnp.arange(3.0)[None, None]
    np.testing.assert_allclose(conv(image), expected, atol=1e-5)


def test_conv_reads_every_kind_of_plane_alike():
    encode = built("conv").networks.representation
    image = observations("conv", 1)[0]
    assert encode(image).shape == (128,)
    np.testing.assert_array_equal(encode(image), encode(image.astype(bool)))
    np.testing.assert_array_equal(encode(image), encode(image.astype(jnp.float32)))


def test_conv_sizes_are_settings_and_the_planes_the_observations():
    sizes = {"channels": (4, 8), "representation": (12, 6), "dynamics": (10,), "prediction": (5,)}
    model = latent_model(KEY, network="conv", observation_shape=(4, 5, 7), num_actions=2, **sizes)
    torso = model.networks.representation.torso
    assert [conv.linear.weight.shape for conv in torso.convs] == [(9 * 7, 4), (9 * 4, 8)]
    assert [layer.weight.shape for layer in torso.mlp.layers] == [(4 * 5 * 8, 12), (12, 6)]
    unrolled = model.unroll(model.encode(jnp.ones((3, 4, 5, 7), bool)), jnp.zeros((3, 2), jnp.int32))
    assert unrolled.policy_logits.shape == (3, 3, 2)


def test_conv_takes_images_alone():
    with pytest.raises(ValueError, match=r"convolutions take images .* of the shape \[10, 5\]"):
        latent_model(KEY, network="conv", observation_shape=(10, 5), num_actions=2)


def test_resnet_is_the_appendix_one():
    model = built("resnet")
    h, g, f = model.networks
    assert model.encode(observations("resnet")).shape == (2, 6, 6, 64)
    assert [conv.weight.shape for conv in h.convs] == [(3, 3, 4, 32), (3, 3, 32, 64)]
    assert [len(tower.blocks) for tower in h.towers] == [1, 2, 1, 6]
    assert len(g.tower.blocks) == 2
    assert len(f.tower.blocks) == 2
    for head, out in ((g.reward, 601), (f.value, 601), (f.policy, 3)):
        assert head.hidden.weight.shape == (6 * 6 * 64, 128)
        assert head.output.weight.shape == (128, out)


def test_resnet_observations_are_scaled_inside():
    h = built("resnet").networks.representation
    image = observations("resnet", 1)[0]
    np.testing.assert_allclose(h(image), h(image.astype(jnp.float32)), atol=1e-5)
    first = h.convs[0](image.astype(jnp.float32) / 255)
    assert np.abs(first).max() < 20


def test_initial_weights_have_variance_one_over_fan_in():
    weight = np.asarray(Conv3x3(KEY, 64, 64).weight)
    np.testing.assert_allclose(weight.std(), (9 * 64) ** -0.5, rtol=0.02)
    assert np.abs(weight).max() < 2.3 * (9 * 64) ** -0.5


def test_convolution_by_hand():
    conv = Conv3x3(KEY, 2, 3, stride=2)
    image = np.random.default_rng(0).normal(size=(7, 6, 2)).astype(np.float32)
    ours = np.asarray(conv(jnp.asarray(image)))
    assert ours.shape == (4, 3, 3)
    # SAME with stride 2: 7 rows need one of padding on each side, 6 columns need one at the end.
    padded = np.pad(image, ((1, 1), (0, 1), (0, 0)))
    for i in range(4):
        for j in range(3):
            patch = padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            np.testing.assert_allclose(ours[i, j], np.einsum("xyi,xyio->o", patch, conv.weight), atol=1e-5)


def test_average_pool_by_hand():
    image = np.arange(25, dtype=np.float32).reshape(5, 5, 1)
    pooled = np.asarray(average_pool(jnp.asarray(image)))[..., 0]
    assert pooled.shape == (3, 3)
    np.testing.assert_allclose(pooled[0, 0], image[:2, :2].mean())  # a corner has four pixels
    np.testing.assert_allclose(pooled[1, 1], image[1:4, 1:4].mean())
    np.testing.assert_allclose(pooled[2, 1], image[3:5, 1:4].mean())
    np.testing.assert_allclose(average_pool(jnp.ones((21, 21, 2))), 1, rtol=1e-6)


def test_layer_norm_is_equinoxs():
    norm = eqx.tree_at(lambda n: (n.scale, n.offset), LayerNorm(4), (jnp.arange(1.0, 5), jnp.arange(4.0)))
    theirs = eqx.tree_at(lambda n: (n.weight, n.bias), eqx.nn.GroupNorm(1, 4), (norm.scale, norm.offset))
    x = jnp.asarray(np.random.default_rng(0).normal(3, 5, (6, 7, 4)), jnp.float32)
    np.testing.assert_allclose(norm(x), jnp.moveaxis(theirs(jnp.moveaxis(x, -1, 0)), 0, -1), atol=1e-4)


def test_residual_block_adds_to_its_input():
    block = ResidualBlock(KEY, 4)
    silent = eqx.tree_at(lambda b: b.convs[1].weight, block, jnp.zeros_like(block.convs[1].weight))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5, 4)), jnp.float32)
    np.testing.assert_array_equal(silent(x), x)
    assert not np.allclose(block(x), x)
