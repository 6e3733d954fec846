"""PPO's loss and advantages against plain NumPy, and what they do at boundaries."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rosmo.agents import PPOSettings, gae, ppo_loss

RNG = np.random.default_rng(0)


def looped_gae(reward, discount, value, next_value, lambda_, is_end):
    """Σ_l Π(γλ) δ_{t+l} up to the end of the episode, written as sums and not as a recursion."""
    advantage = np.zeros_like(reward)
    for start in range(len(reward)):
        weight = 1.0
        for t in range(start, len(reward)):
            advantage[start] += weight * (reward[t] + discount[t] * next_value[t] - value[t])
            weight *= discount[t] * lambda_
            if is_end[t]:
                break
    return advantage


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_gae_is_the_sum_of_discounted_errors_within_an_episode(lambda_):
    reward, value, next_value = RNG.normal(size=(3, 12, 5)).astype(np.float32)
    is_end = RNG.random((12, 5)) < 0.3
    terminated = is_end & (RNG.random((12, 5)) < 0.5)
    assert terminated.any()
    assert (is_end & ~terminated).any()
    discount = np.where(terminated, 0, 0.9).astype(np.float32)
    args = (reward, discount, value, next_value)
    expected = np.stack(
        [looped_gae(*(x[:, b].astype(float) for x in args), lambda_, is_end[:, b]) for b in range(5)], axis=1
    )
    arrays = [jnp.asarray(x) for x in args]
    advantage = gae(*arrays, lambda_, is_end=jnp.asarray(is_end))
    np.testing.assert_allclose(advantage, expected, atol=1e-5)
    by_rows = gae(*(x.T for x in arrays), lambda_, is_end=jnp.asarray(is_end.T), time_axis=1)
    np.testing.assert_array_equal(by_rows.T, advantage)


def test_a_termination_needs_no_mark_of_an_end():
    reward, value, next_value = jnp.asarray(RNG.normal(size=(3, 6)), jnp.float32)
    discount = jnp.asarray([0.9, 0.9, 0, 0.9, 0.9, 0.9])
    is_end = jnp.asarray([False, False, True, False, False, False])
    args = (reward, discount, value, next_value, 0.95)
    np.testing.assert_array_equal(gae(*args), gae(*args, is_end=is_end))


def settled(logits):
    logits = logits.astype(float)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def batch(count=20, actions=4):
    logits, old_logits = RNG.normal(size=(2, count, actions)).astype(np.float32)
    action = RNG.integers(actions, size=count)
    value, old_value, advantage, target = RNG.normal(size=(4, count)).astype(np.float32)
    old_log_prob = settled(old_logits)[np.arange(count), action].astype(np.float32)
    return logits, value, action, old_log_prob, advantage, target, old_value


@pytest.mark.parametrize("clip_value", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_loss_is_that_of_the_paper_and_of_cleanrl(normalise, clip_value):
    logits, value, action, old_log_prob, advantage, target, old_value = batch()
    clip, entropy, value_weight = 0.1, 0.02, 0.7
    a = advantage.astype(float)
    if normalise:
        a = (a - a.mean()) / (a.std() + 1e-8)
    log_probs = settled(logits)
    ratio = np.exp(log_probs[np.arange(len(action)), action] - old_log_prob)
    policy = np.maximum(-a * ratio, -a * np.clip(ratio, 1 - clip, 1 + clip)).mean()
    error = (value - target) ** 2
    if clip_value:
        error = np.maximum(error, (old_value + np.clip(value - old_value, -clip, clip) - target) ** 2)
    spread = -(np.exp(log_probs) * log_probs).sum(axis=-1).mean()
    expected = policy + value_weight * 0.5 * error.mean() - entropy * spread
    loss, metrics = ppo_loss(
        *map(jnp.asarray, (logits, value, action, old_log_prob, advantage, target)),
        clip=clip,
        entropy=entropy,
        value_weight=value_weight,
        normalise=normalise,
        old_value=jnp.asarray(old_value) if clip_value else None,
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["clipped"], (np.abs(ratio - 1) > clip).mean(), rtol=1e-6)


def test_a_gradient_that_would_move_a_ratio_further_out_is_cut_off():
    def policy_loss(logit, advantage):
        logits = jnp.stack([logit, jnp.zeros(())])[None]
        zeros, ones = jnp.zeros(1), jnp.ones(1)
        old = jnp.full(1, jnp.log(0.5))
        return ppo_loss(
            logits, zeros, jnp.zeros(1, int), old, advantage * ones, zeros, entropy=0.0, normalise=False
        )[0]

    slope = jax.grad(policy_loss)
    # d/dl of −(p/½)A is −2p(1 − p)A: at p = ½, inside of the clip, −A/2.
    np.testing.assert_allclose(slope(jnp.zeros(()), 3.0), -1.5, rtol=1e-6)
    assert slope(jnp.ones(()), 3.0) == 0  # already likelier by more than ε
    assert slope(-jnp.ones(()), -3.0) == 0
    assert slope(jnp.ones(()), -3.0) > 0  # but it may always go back
    assert slope(-jnp.ones(()), 3.0) < 0


def test_steps_that_do_not_count_change_nothing_whatever_they_hold():
    arrays = [jnp.asarray(x) for x in batch()]
    mask = jnp.arange(20) < 13
    few = ppo_loss(*(x[:13] for x in arrays[:6]), old_value=arrays[6][:13])[0]
    arrays[3] = jnp.where(mask, arrays[3], -1e9)
    arrays[5] = jnp.where(mask, arrays[5], 1e9)

    def loss(logits, value):
        return ppo_loss(logits, value, *arrays[2:6], old_value=arrays[6], mask=mask)[0]

    np.testing.assert_allclose(loss(*arrays[:2]), few, rtol=1e-6)
    slopes = jax.grad(loss, (0, 1))(*arrays[:2])
    assert all(bool(jnp.all(jnp.isfinite(x)) and jnp.all(x[13:] == 0)) for x in slopes)


def test_an_action_that_is_forbidden_has_no_part_in_the_policy():
    logits, *rest, _ = [jnp.asarray(x) for x in batch(actions=3)]
    wider = jnp.concatenate([logits, jnp.full((20, 1), 7.0)], axis=1)
    invalid = jnp.broadcast_to(jnp.arange(4) == 3, (20, 4))
    for got, expected in zip(
        jax.tree.leaves(ppo_loss(wider, *rest, invalid_actions=invalid)),
        jax.tree.leaves(ppo_loss(logits, *rest)),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_single_action_has_nothing_to_learn():
    _, value, _, _, advantage, target, _ = (jnp.asarray(x) for x in batch())

    def loss(logits):
        zeros = jnp.zeros(20, int)
        return ppo_loss(logits, value, zeros, jnp.zeros(20), advantage, target)[0]

    np.testing.assert_allclose(jax.grad(loss)(jnp.ones((20, 1))), 0, atol=1e-7)


def test_settings_are_refused_before_they_do_harm():
    with pytest.raises(ValueError, match="does not divide into 3 minibatches"):
        PPOSettings(minibatches=3)
    with pytest.raises(ValueError, match="lambda_ must be a finite number"):
        PPOSettings(lambda_=1.5)


def test_the_learning_rate_falls_to_nothing_with_the_last_minibatch():
    settings = PPOSettings(epochs=2, minibatches=2, max_grad_norm=1e9)
    optimizer = settings.optimizer(num_batches=3)
    params = jnp.zeros(2)
    state = optimizer.init(params)
    sizes = []
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(13):
            updates, state = optimizer.update(jnp.ones(2), state, params)
            sizes.append(float(optax.tree.norm(updates)))
    np.testing.assert_allclose(np.asarray(sizes) / sizes[0], np.maximum(1 - np.arange(13) / 12, 0), atol=1e-4)
