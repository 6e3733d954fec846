import jax.numpy as jnp
import numpy as np
import pytest

from rosmo.agents.targets import find_boundary, n_step_returns
from tests.windows import every_ending, random_steps

GAMMA = 0.9


def slow_return(reward, discount, value, is_last, is_terminal, start, n):
    """The definition, one step at a time, as one would explain it."""
    total, factor, t = 0.0, 1.0, start
    for _ in range(n):
        if is_last[t]:
            break
        total += factor * reward[t]
        factor *= GAMMA * discount[t]
        t += 1
    if is_last[t] and is_terminal[t]:
        return total
    return total + factor * value[t]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_returns_equal_a_slow_and_obvious_loop(n):
    rng = np.random.default_rng(n)
    batch = every_ending(rng, 6 + n)
    value = rng.normal(size=batch.reward.shape).astype(np.float32)
    boundary = find_boundary(batch)
    returns = n_step_returns(batch, jnp.asarray(value), boundary, discount=GAMMA, steps=n)
    assert returns.shape == (batch.reward.shape[0], 6)
    checked = 0
    for row in range(len(value)):
        fields = [
            np.asarray(x)[row]
            for x in (batch.reward, batch.discount, value, batch.is_last, batch.is_terminal)
        ]
        last = int(np.argmax(fields[3])) if fields[3].any() else len(fields[3])
        for t in range(min(last + 1, 6)):
            expected = slow_return(*fields, t, n)
            np.testing.assert_allclose(returns[row, t], expected, atol=1e-5)
            checked += 1
        if last < 6 and fields[4][last]:
            assert (np.asarray(returns)[row, last:] == 0).all()  # absorbing
    assert checked > 60


def test_returns_by_hand():
    batch = random_steps(np.random.default_rng(0), [4, 3], np.array([True, False]))
    batch = type(batch)(
        **{
            **vars(batch),
            "reward": np.array([1, 2, 4, 99, 8, 16, 99], np.float32),
            "discount": np.array([1, 1, 0, 1, 1, 1, 1], np.float32),
        }
    )
    value = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    first, second = (
        n_step_returns(b, v, find_boundary(b), discount=0.5, steps=2)[0]
        for b, v in (
            (add_batch(batch, slice(0, 7)), value[None]),
            (add_batch(batch, slice(4, 7)), value[None, 4:]),
        )
    )
    # Terminated at step 3: 1 + ½·2 + ¼·30; 2 + ½·4 and the end; 4 and the end; 0 from there on.
    np.testing.assert_allclose(first[:4], [9.5, 4.0, 4.0, 0.0])
    # Truncated at step 6: 8 + ½·16 + ¼·70.
    np.testing.assert_allclose(second, [33.5])


def add_batch(steps, window):
    import jax

    return jax.tree.map(lambda x: jnp.asarray(x[window])[None], steps)


def test_boundary_by_hand():
    terminated = add_batch(
        random_steps(np.random.default_rng(0), [3, 2], np.array([True, True])), slice(0, 5)
    )
    boundary = find_boundary(terminated)
    np.testing.assert_array_equal(boundary.real[0], [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(boundary.observed[0], [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(boundary.terminated[0], [0, 0, 1, 1, 1])
    truncated = add_batch(
        random_steps(np.random.default_rng(0), [3, 2], np.array([False, True])), slice(0, 5)
    )
    np.testing.assert_array_equal(find_boundary(truncated).terminated[0], [0, 0, 0, 0, 0])


def test_what_lies_beyond_a_truncation_may_be_nan():
    batch = add_batch(random_steps(np.random.default_rng(0), [3, 6], np.array([False, True])), slice(0, 6))
    poison = jnp.arange(6)[None] > 2
    values = jnp.where(poison, jnp.nan, 1.0)
    reward = jnp.where(poison, jnp.nan, batch.reward)
    batch = type(batch)(**{**vars(batch), "reward": reward})
    returns = n_step_returns(batch, values, find_boundary(batch), discount=GAMMA, steps=3)
    assert np.isfinite(np.asarray(returns)[0, :3]).all()
