import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.codec import Codec, inverse_transform, transform

SCALARS = np.concatenate([[0.0], np.geomspace(1e-6, 1e5, 400), -np.geomspace(1e-6, 1e5, 400)])


def h(x, epsilon=1e-3):
    """The transform as published (Pohlen et al., 2018), in float64."""
    x = np.asarray(x, np.float64)
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def test_transform_is_the_published_one():
    np.testing.assert_allclose(transform(jnp.asarray(SCALARS, jnp.float32)), h(SCALARS), rtol=1e-6)


def test_inverse_undoes_the_transform_to_float32_precision():
    x = jnp.asarray(SCALARS, jnp.float32)
    np.testing.assert_allclose(inverse_transform(transform(x)), x, rtol=2e-6)
    np.testing.assert_allclose(inverse_transform(jnp.asarray(h(SCALARS), jnp.float32)), SCALARS, rtol=2e-6)


@pytest.mark.parametrize("codec", [Codec(601), Codec(1201), Codec(241, -600.0, 600.0)])
def test_round_trip_through_bins_with_a_bin_at_zero(codec):
    x = SCALARS[np.abs(h(SCALARS)) <= codec.high].astype(np.float32)
    weights = codec.encode(jnp.asarray(x))
    np.testing.assert_allclose(codec.decode(jnp.log(weights)), x, rtol=1e-4)


def test_round_trip_of_the_twenty_bin_codec():
    codec = Codec(20)
    x = SCALARS[np.abs(h(SCALARS)) <= codec.high].astype(np.float32)
    # 0 lies between two bins here, so small scalars carry the absolute error of a difference of halves.
    np.testing.assert_allclose(codec.decode(jnp.log(codec.encode(jnp.asarray(x)))), x, rtol=1e-4, atol=1e-6)


def test_support_is_symmetric_by_default_and_explicit_otherwise():
    np.testing.assert_array_equal(Codec(20).support, np.arange(20) - 9.5)
    np.testing.assert_array_equal(Codec(601).support, np.arange(601) - 300.0)
    np.testing.assert_array_equal(Codec(5, high=2.0).support, [-2, -1, 0, 1, 2])
    np.testing.assert_array_equal(Codec(5, low=-4.0).support, [-4, -2, 0, 2, 4])
    np.testing.assert_array_equal(Codec(3, 0.0, 1.0).support, [0, 0.5, 1])


def test_two_hot_by_hand():
    codec = Codec(5, epsilon=1e-3)  # bins at −2 … 2
    weights = codec.encode(jnp.array([3.0, -3.0, 0.0]))  # h(3) = 1 + 0.003
    np.testing.assert_allclose(weights[0], [0, 0, 0, 0.997, 0.003], atol=1e-6)
    np.testing.assert_allclose(weights[1], [0.003, 0.997, 0, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(weights[2], [0, 0, 1, 0, 0])


@pytest.mark.parametrize("codec", [Codec(20), Codec(601), Codec(20, -10.0, 10.0), Codec(7, -1.0, 3.0)])
def test_two_hot_is_a_distribution_on_neighbours_whose_mean_is_h(codec):
    x = jnp.asarray(np.random.default_rng(0).normal(0, 20, 500), jnp.float32)
    weights = np.asarray(codec.encode(x), np.float64)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert ((weights > 0).sum(-1) <= 2).all()
    assert all(np.ptp(np.flatnonzero(row)) <= 1 for row in weights)
    np.testing.assert_allclose(weights @ codec.support, np.clip(h(x), codec.low, codec.high), atol=1e-4)


@pytest.mark.parametrize("codec", [Codec(20), Codec(601), Codec(20, -10.0, 10.0), Codec(11, -0.3, 0.7)])
@pytest.mark.parametrize("beyond", [1e6, 1e30, np.inf])
def test_clipping_at_the_ends_is_exact(codec, beyond):
    weights = codec.encode(jnp.array([-beyond, beyond], jnp.float32))
    np.testing.assert_array_equal(weights, np.eye(codec.bins)[[0, -1]])


def test_zero_logits_stand_for_zero():
    for codec in (Codec(20), Codec(601)):
        np.testing.assert_allclose(codec.decode(jnp.zeros((3, codec.bins))), 0, atol=1e-4)


def test_decode_is_stable_for_any_logits():
    codec = Codec(20)
    logits = jnp.full((2, 20), -1e4).at[0, 3].set(1e4).at[1, :].set(1e4)
    expected = [float(inverse_transform(jnp.float32(-6.5))), 0.0]
    np.testing.assert_allclose(codec.decode(logits), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [transform, inverse_transform])
def test_gradients_are_finite_and_right_everywhere(function):
    x = np.array([0.0, 1e-7, -1e-7, 1.0, -1.0, 50.0, -50.0])
    gradient = jax.vmap(jax.grad(function))(jnp.asarray(x, jnp.float32))
    at_zero = {transform: 0.5 + 1e-3, inverse_transform: 1 / (0.5 + 1e-3)}[function]
    np.testing.assert_allclose(gradient[:3], at_zero, rtol=1e-5)
    step = 1e-6 * np.maximum(1, np.abs(x))
    slope = {transform: h(x + step) - h(x - step)}.get(function)
    if slope is not None:
        np.testing.assert_allclose(gradient, slope / (2 * step), rtol=1e-4)
    assert np.isfinite(jax.vmap(jax.grad(function))(jnp.array([1e5, -1e5, 1e30]))).all()


def test_gradients_through_encode_and_decode_are_finite():
    codec = Codec(20)
    x = jnp.array([0.0, 3.0, -1e9, 1e9])
    encoded = jax.vmap(jax.grad(lambda x: jnp.sum(codec.encode(x) ** 2)))(x)
    decoded = jax.grad(lambda logits: jnp.sum(codec.decode(logits)))(jnp.zeros((2, 20)).at[0, 0].set(1e4))
    assert np.isfinite(encoded).all()
    assert np.isfinite(decoded).all()


def test_bfloat16_logits_are_decoded_in_float32():
    codec = Codec(20)
    logits = jnp.log(codec.encode(jnp.array([2.0])) + 1e-6).astype(jnp.bfloat16)
    assert codec.decode(logits).dtype == jnp.float32


def test_impossible_supports_are_refused():
    with pytest.raises(ValueError, match="at least 2 bins"):
        Codec(1)
    with pytest.raises(ValueError, match="run upwards"):
        Codec(10, 3.0, -3.0)
    with pytest.raises(ValueError, match="epsilon"):
        Codec(10, epsilon=0.0)
