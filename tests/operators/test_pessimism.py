"""Every operator leaves the action that members of an ensemble disagree on, with no word of it in them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, operators
from rosmo.model import LatentModel, recurrent_fn
from rosmo.networks import AbstractDynamics, AbstractPrediction, Networks
from tests.baselines import Identity, two_hot
from tests.operators.test_operators import SETTINGS

KEY = jax.random.key(0)
CODEC = Codec(21)
DISPUTED = 1
VALUES = np.array(  # of four members in the root and behind each of its three actions: all 0 on average
    [[0, 0, 2, 0], [0, 0, -2, 0], [0, 0, 2, 0], [0, 0, -2, 0]], np.float32
)


class Fork(AbstractDynamics):
    """The root leads to a state of each action, and those to themselves, without any reward."""

    def __call__(self, state, action):
        after = jnp.where(state[0] > 0, jax.nn.one_hot(action + 1, len(state)), state)
        return after, jnp.log(jnp.asarray([[two_hot(CODEC, 0.0)] * len(VALUES)], jnp.float32)[0] + 1e-9)


class Judged(AbstractPrediction):
    """Members' values by table."""

    def __call__(self, state):
        table = np.array([[two_hot(CODEC, x) for x in row] for row in VALUES], np.float32)
        logits = jnp.einsum("s,msb->mb", state, jnp.log(table + 1e-9))
        return jnp.zeros(3), logits


def model_of(pessimism) -> LatentModel:
    networks = Networks(Identity(), Fork(), Judged())  # pyright: ignore
    return LatentModel(networks, CODEC, CODEC, 3, 0.9, ensemble=4).at_pessimism(pessimism)


@pytest.mark.parametrize("name", SETTINGS)
def test_pessimism_leaves_the_disputed_action_and_optimism_seeks_it(name):
    operator = functools.partial(operators.get(name), **SETTINGS[name])

    @functools.partial(jax.jit, static_argnums=0)
    def weight(pessimism):
        model = model_of(pessimism)
        root = model.root(jnp.tile(jax.nn.one_hot(0, 4)[None], (64, 1)))
        improved = operator(model, KEY, root, recurrent_fn).action_weights
        return jnp.mean(improved / jnp.sum(improved, axis=1, keepdims=True), axis=0)[DISPUTED]

    timid, neutral, bold = weight(1.5), weight(0.0), weight(-1.5)
    if name == "prior":  # which asks no model
        assert timid == neutral == bold
    else:
        assert timid + 0.02 < bold
        assert timid - 1e-3 < neutral < bold + 1e-3  # MPO moves as far for rounding errors
    if name == "one_step":
        q = 0.9 * 2 * np.array([0, 1, 0])
        for found, kappa in ((timid, 1.5), (neutral, 0), (bold, -1.5)):
            expected = np.exp(-kappa * q)
            np.testing.assert_allclose(found, expected[DISPUTED] / expected.sum(), rtol=2e-3)
        np.testing.assert_allclose(weight("min"), weight(1.0), rtol=2e-3)  # of ±2 the deviation is 2
