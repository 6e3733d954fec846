"""Counts of a trace, against arithmetic."""

import jax
import jax.numpy as jnp
import pytest

from rosmo import agents, latent_model
from rosmo.costs import Compute, count_flops, update_compute
from tests.windows import ON_WORLD

BATCH, ACTIONS, UNROLL, TD = 4, 3, 2, 3
X, W = jnp.ones((2, 3)), jnp.ones((3, 3))


def test_a_product_is_two_operations_for_each_multiply_and_add():
    assert count_flops(lambda x, w: x @ w, X, W) == 2 * 2 * 3 * 3


def test_a_loop_counts_as_often_as_it_runs_and_a_branch_by_the_dearest():
    product = 2 * 2 * 3 * 3

    def loop(x, w):
        return jax.lax.scan(lambda x, _: (jax.jit(jnp.matmul)(x, w), None), x, length=7)[0]

    def branch(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: x @ w @ w, lambda: x @ w)

    assert count_flops(loop, X, W) == 7 * product
    assert count_flops(branch, X, W) == 2 * product
    assert count_flops(lambda x, w: jax.lax.fori_loop(0, 5, lambda _, x: x @ w, x), X, W) == 5 * product


def test_shapes_are_enough():
    shapes = (jax.ShapeDtypeStruct((2, 3), jnp.float32), jax.ShapeDtypeStruct((3, 5), jnp.float32))
    assert count_flops(jnp.matmul, *shapes) == 2 * 2 * 3 * 5


POSITIONS = UNROLL + 1
WINDOW = UNROLL + TD + 1
IMAGINED = {
    "bc": 0,
    "cql": 0,
    "crr": 0,
    "behavior": BATCH * (POSITIONS + UNROLL),  # the advantage of the data set's action alone
    "one_step": BATCH * (POSITIONS * ACTIONS + UNROLL),
    "rosmo": BATCH * (POSITIONS * ACTIONS + UNROLL),
    "sampled_rosmo": BATCH * (POSITIONS * (2 + 1) + UNROLL),
    "mzu": BATCH * (WINDOW * 6 + UNROLL),
    "mzu_q": BATCH * (WINDOW * 6 + UNROLL),
    "gumbel": BATCH * (WINDOW * 6 + UNROLL),
    "regularized": BATCH * (POSITIONS * ACTIONS + UNROLL),
    "cmpo": BATCH * (POSITIONS * ACTIONS + UNROLL),
    "mpo": BATCH * (POSITIONS * ACTIONS + UNROLL),
    "smc": BATCH * (POSITIONS * (4 * 2 + 1) + UNROLL),
}


def compute(name: str) -> Compute:
    def model(key):
        sizes = {"representation": (8, 6), "dynamics": (7,), "prediction": (5,)}
        return latent_model(key, observation_shape=(3, 2), num_actions=ACTIONS, **sizes)

    settings = {} if name in ("bc", "cql", "crr") else {"unroll_steps": UNROLL, "td_steps": TD}
    settings |= {"num_samples": 2} if name == "sampled_rosmo" else {}
    settings |= {"num_simulations": 6} if name.startswith("mzu") or name == "gumbel" else {}
    settings |= {"num_particles": 4, "depth": 2} if name == "smc" else {}
    agent = agents.get(name)(model, **settings)
    return update_compute(agent, batch_size=BATCH, observation_shape=(3, 2))


@pytest.mark.parametrize("name", sorted(set(agents.names()) - set(ON_WORLD)))
def test_model_calls_are_the_states_that_a_next_one_is_imagined_of(name):
    found = compute(name)
    assert found.model_calls == IMAGINED[name]
    assert found.flops > 0


def test_operations_of_cloning_by_hand():
    """Forward, and twice that backward, without the gradient of the observations."""
    positions = BATCH * 6
    layers = [(6, 8), (8, 6), (6, 5), (5, ACTIONS), (5, 20)]
    forward = sum(2 * positions * rows * columns for rows, columns in layers)
    value_head, first = (2 * positions * rows * columns for rows, columns in (layers[-1], layers[0]))
    backward = 2 * (forward - value_head) - first
    assert compute("bc").flops == forward + backward
