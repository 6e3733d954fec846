"""KL balancing, straight-through gradients and disagreement, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.worlds import disagreement
from rosmo.worlds.distributions import balanced_kl, bernoulli, normal, pixels, straight_through

RNG = np.random.default_rng(0)
Q, P = (jnp.asarray(RNG.normal(size=(3, 2, 4)), jnp.float32) for _ in range(2))


def softmax(x):
    x = np.exp(np.asarray(x, np.float64))
    return x / x.sum(axis=-1, keepdims=True)


def kl_by_hand(q, p):
    q, p = softmax(q), softmax(p)
    return np.sum(q * (np.log(q) - np.log(p)), axis=(-2, -1))


@pytest.mark.parametrize("balance", [0.0, 0.3, 0.8, 1.0])
def test_balancing_leaves_the_value_and_shares_the_gradient(balance):
    np.testing.assert_allclose(balanced_kl(Q, P, balance), kl_by_hand(Q, P), rtol=1e-5)
    to_q, to_p = jax.grad(lambda q, p: jnp.sum(balanced_kl(q, p, balance)), argnums=(0, 1))(Q, P)
    q, p = softmax(Q), softmax(P)
    # d KL / d p's logits = p − q, and d KL / d q's = q (log q/p − its mean under q).
    ratio = np.log(q) - np.log(p)
    np.testing.assert_allclose(to_p, balance * (p - q), atol=1e-5)
    excess = ratio - np.sum(q * ratio, axis=-1, keepdims=True)
    np.testing.assert_allclose(to_q, (1 - balance) * q * excess, atol=1e-5)


def test_a_drawn_latent_is_one_hot_and_has_the_gradient_of_its_probabilities():
    keys = jax.random.split(jax.random.key(0), 3)
    weight = jnp.asarray(RNG.normal(size=Q.shape), jnp.float32)
    drawn = straight_through(Q, keys)
    np.testing.assert_allclose(np.sort(drawn, axis=-1), np.eye(4)[[3]] * np.ones((3, 2, 1)), atol=1e-6)
    found = jax.grad(lambda logits: jnp.sum(weight * straight_through(logits, keys)))(Q)
    p, w = softmax(Q), np.asarray(weight, np.float64)
    by_hand = p * (w - np.sum(p * w, axis=-1, keepdims=True))  # of Σ w p, through the softmax
    np.testing.assert_allclose(found, by_hand, atol=1e-6)


def test_latents_are_drawn_as_often_as_they_are_likely():
    keys = jax.random.split(jax.random.key(1), 20_000)
    drawn = straight_through(jnp.broadcast_to(Q[:1], (20_000, 2, 4)), keys)
    np.testing.assert_allclose(jnp.mean(drawn, axis=0), softmax(Q[0]), atol=0.015)


def test_likelihoods_by_hand():
    logits, shown = jnp.asarray(RNG.normal(size=(5, 2, 3)), jnp.float32), jnp.asarray(RNG.random((5, 2, 3)))
    shown = shown.astype(jnp.float32)
    p = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    expected = np.sum(shown * np.log(p) + (1 - shown) * np.log(1 - p), axis=(1, 2))
    np.testing.assert_allclose(pixels("bernoulli", logits, 2).log_prob(shown), expected, rtol=1e-5)
    squares = np.sum((np.asarray(logits, np.float64) - np.asarray(shown)) ** 2, axis=(1, 2))
    expected = -squares / 2 - 6 * np.log(2 * np.pi) / 2
    np.testing.assert_allclose(pixels("normal", logits, 2).log_prob(shown), expected, rtol=1e-5)
    x, mean = jnp.float32(0.7), jnp.float32(0.2)
    by_hand = -(0.5**2) / (2 * 0.4**2) - np.log(0.4 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(normal(mean, 0.4).log_prob(x), by_hand, rtol=1e-5)
    # A discount between 0 and 1 is a cross entropy; an extreme logit stays finite.
    np.testing.assert_allclose(
        bernoulli(jnp.float32(1.0)).log_prob(jnp.float32(0.3)),
        0.3 * np.log(1 / (1 + np.exp(-1))) + 0.7 * np.log(1 - 1 / (1 + np.exp(-1))),
        rtol=1e-5,
    )
    assert float(bernoulli(jnp.float32(1e4)).log_prob(jnp.float32(0.0))) == pytest.approx(-1e4, rel=1e-3)


@pytest.mark.parametrize("members", [1, 2, 5])
def test_disagreement_is_the_largest_distance_of_a_pair(members):
    said = RNG.normal(size=(3, 4, members, 6)).astype(np.float32)
    expected = np.zeros((3, 4))
    for row in range(3):
        for column in range(4):
            for i in range(members):
                for j in range(members):
                    apart = said[row, column, i].astype(float) - said[row, column, j]
                    expected[row, column] = max(expected[row, column], np.sqrt(np.sum(apart**2)))
    np.testing.assert_allclose(disagreement(jnp.asarray(said)), expected, rtol=1e-5)
    gradient = jax.grad(lambda x: jnp.sum(disagreement(x)))(jnp.asarray(said))
    assert not gradient.any()  # and not nan, where a member meets itself
