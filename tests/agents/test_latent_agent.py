import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import agents, operators, regularizers
from rosmo.agents.latent import LatentAgent
from rosmo.agents.targets import find_boundary
from rosmo.model import recurrent_fn
from tests.windows import ACTIONS, ON_WORLD, every_ending, small_model, talkative

KEY = jax.random.key(0)
PRESETS = tuple(name for name in agents.names() if name not in (*ON_WORLD, "bc", "cql", "crr"))
every_preset = pytest.mark.parametrize("name", PRESETS)


def make(name: str, dtype: str = "float32") -> LatentAgent:
    return agents.get(name)(functools.partial(small_model, dtype=dtype), unroll_steps=4, td_steps=2)


def params_of(agent: LatentAgent, seed: int = 1):
    return talkative(agent.init(jax.random.key(seed)), jax.random.key(seed + 100))


@pytest.fixture(scope="module")
def batch():
    return every_ending(np.random.default_rng(0), 7)


def loss_of(agent, params, target, batch, key=KEY):
    return eqx.filter_jit(agent.loss)(params, target, batch, key)


def loss_per_window(agent, params, target, batch, key=KEY):
    """Each window's own loss, under the key it has in the batch."""
    keys = jax.random.split(key, len(batch.action))
    one = eqx.filter_jit(
        lambda window, key: agent.loss(params, target, jax.tree.map(lambda x: x[None], window), key)
    )
    windows = [jax.tree.map(lambda x, i=i: x[i], batch) for i in range(len(keys))]
    return np.array([one(window, keys[i : i + 1])[0] for i, window in enumerate(windows)])


@every_preset
def test_the_loss_is_the_mean_over_windows_with_keys_of_their_own(name, batch):
    agent = make(name)
    params, target = params_of(agent, 1), params_of(agent, 2)
    loss, metrics = loss_of(agent, params, target, batch)
    np.testing.assert_allclose(loss, loss_per_window(agent, params, target, batch).mean(), rtol=2e-5)
    parts = sum(value for key, value in metrics.items() if key.startswith("loss/"))
    np.testing.assert_allclose(loss, parts, rtol=1e-5)
    assert all(np.isfinite(value) for value in metrics.values())


@every_preset
def test_nothing_beyond_an_episodes_end_is_read(name, batch):
    """Every field of every step after the end is replaced: no window's loss changes by a bit."""
    agent = make(name)
    params, target = params_of(agent, 1), params_of(agent, 2)
    rng = np.random.default_rng(5)
    beyond = ~np.asarray(find_boundary(batch).observed)
    assert beyond.sum() == 30

    def scramble(field, x):
        other = {
            "observation": lambda: rng.normal(size=x.shape).astype(np.float32) * 100,
            "action": lambda: rng.integers(0, ACTIONS, x.shape).astype(np.int32),
            "reward": lambda: rng.normal(size=x.shape).astype(np.float32) * 100,
            "discount": lambda: rng.random(x.shape).astype(np.float32),
        }.get(field, lambda: rng.random(x.shape) < 0.5)()
        return jnp.where(beyond.reshape(beyond.shape + (1,) * (x.ndim - 2)), other, x)

    changed = dataclasses.replace(
        batch, **{field: scramble(field, x) for field, x in vars(batch).items() if x is not None}
    )
    before = loss_per_window(agent, params, target, batch)
    after = loss_per_window(agent, params, target, changed)
    np.testing.assert_array_equal(before, after)


@every_preset
def test_padding_may_be_nan_and_no_gradient_shows_it(name, batch):
    agent = make(name)
    params, target = params_of(agent, 1), params_of(agent, 2)
    beyond = ~np.asarray(find_boundary(batch).observed)
    poisoned = dataclasses.replace(
        batch,
        observation=jnp.where(beyond[..., None], jnp.nan, batch.observation),
        reward=jnp.where(beyond, jnp.nan, batch.reward),
    )
    gradient = eqx.filter_jit(eqx.filter_grad(agent.loss, has_aux=True))
    clean, poisoned = (gradient(params, target, windows, KEY) for windows in (batch, poisoned))
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(poisoned), strict=True):
        np.testing.assert_array_equal(a, b)


@every_preset
def test_the_closing_steps_action_reward_and_discount_are_never_read(name, batch):
    agent = make(name)
    params, target = params_of(agent, 1), params_of(agent, 2)
    changed = dataclasses.replace(
        batch,
        action=jnp.where(batch.is_last, (batch.action + 1) % ACTIONS, batch.action),
        reward=jnp.where(batch.is_last, 1e6, batch.reward),
        discount=jnp.where(batch.is_last, 0.3, batch.discount),
    )
    np.testing.assert_array_equal(
        loss_per_window(agent, params, target, batch), loss_per_window(agent, params, target, changed)
    )


def test_every_real_step_is_read(batch):
    """The masks are not too wide: rewards and the first observation of windows without an end all matter."""
    agent = make("rosmo")
    params, target = params_of(agent, 1), params_of(agent, 2)
    row = jax.tree.map(lambda x: x[-1:], batch)
    assert not row.is_last.any()
    before = loss_of(agent, params, target, row)[0]
    for t in range(6):  # reward 6 would belong to a seventh step
        changed = dataclasses.replace(row, reward=row.reward.at[0, t].add(1.0))
        assert loss_of(agent, params, target, changed)[0] != before
    for t in range(7):
        changed = dataclasses.replace(row, observation=row.observation.at[0, t].add(1.0))
        assert loss_of(agent, params, target, changed)[0] != before


def test_loss_by_hand(batch):
    """ROSMO's loss rebuilt in NumPy from the model's own predictions, position by position."""
    agent = make("rosmo")
    params, target = params_of(agent, 1), params_of(agent, 2)
    real_windows = [i for i in range(len(batch.action)) if not batch.is_last[i, :5].any()]
    total = []
    for i in real_windows:
        window = jax.tree.map(lambda x, i=i: x[i], batch)
        root = target.root(target.encode(window.observation))
        values = np.asarray(root.value, np.float64)
        state = params.encode(window.observation[:1])
        terms = {"policy": 0.0, "value": 0.0, "reward": 0.0, "behavior": 0.0}
        for k in range(5):
            q = []
            for action in range(ACTIONS):
                output, _ = recurrent_fn(target, KEY, jnp.full(7, action), root.embedding)
                q.append(float(output.reward[k] + 0.9 * output.value[k]))
            log_prior = np.asarray(jax.nn.log_softmax(root.prior_logits[k]), np.float64)
            improved = np.exp(log_prior + np.array(q) - values[k])
            improved /= improved.sum()
            prediction = params.predict(state)
            log_policy = np.asarray(jax.nn.log_softmax(prediction.policy_logits[0]), np.float64)
            terms["policy"] -= improved @ log_policy
            ret, factor = 0.0, 1.0
            ended = False
            for j in range(k, k + 2):
                if window.is_last[j]:
                    ended = True
                    break
                ret += factor * float(window.reward[j])
                factor *= 0.9 * float(window.discount[j])
            if ended:
                ret += 0.0 if window.is_terminal[j] else factor * values[j]
            elif not window.is_terminal[k + 2]:
                ret += factor * values[k + 2]
            terms["value"] -= two_hot_dot(params.value_codec, ret, prediction.value_logits[0])
            if q[int(window.action[k])] > values[k]:
                terms["behavior"] -= log_policy[int(window.action[k])]
            if k < 4:
                state, reward_logits = params.step(state, window.action[k : k + 1])
                terms["reward"] -= two_hot_dot(params.reward_codec, float(window.reward[k]), reward_logits[0])
        total.append(terms["policy"] + 0.25 * terms["value"] + terms["reward"] + 0.2 * terms["behavior"])
    ours = loss_per_window(agent, params, target, jax.tree.map(lambda x: x[np.array(real_windows)], batch))
    assert len(total) >= 4
    np.testing.assert_allclose(ours, np.array(total) / 5, rtol=2e-4)


def two_hot_dot(codec, scalar, logits):
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    y = np.clip(np.sign(scalar) * (np.sqrt(abs(scalar) + 1) - 1) + 1e-3 * scalar, codec.low, codec.high)
    low = min(int(np.floor(y - codec.low)), codec.bins - 2)
    share = y - codec.low - low
    return (1 - share) * log_probs[low] + share * log_probs[low + 1]


@every_preset
def test_targets_carry_no_gradient(name, batch):
    """The loss of one network as its own target has the gradient of a target that stands apart."""
    agent = make(name)
    params = params_of(agent)

    def gradient(function):
        return eqx.filter_jit(eqx.filter_grad(function))(params)

    tied = gradient(lambda p: agent.loss(p, p, batch, KEY)[0])
    apart = gradient(lambda p: agent.loss(p, params, batch, KEY)[0])
    for a, b in zip(jax.tree.leaves(tied), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    target_gradient = gradient(lambda t: agent.loss(params, t, batch, KEY)[0])
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(target_gradient))


@every_preset
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_finite_with_a_single_legal_action(name, dtype, batch):
    agent = make(name, dtype)
    params, target = params_of(agent, 1), params_of(agent, 2)
    invalid = np.arange(ACTIONS)[None, None] != np.asarray(batch.action)[..., None]
    masked = dataclasses.replace(batch, invalid_actions=jnp.asarray(invalid))
    for windows in (batch, masked):
        gradient, metrics = eqx.filter_jit(eqx.filter_grad(agent.loss, has_aux=True))(
            params, target, windows, KEY
        )
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
        assert all(np.isfinite(value) for value in metrics.values())
    # A policy with one legal action has nothing to learn.
    np.testing.assert_allclose(metrics["loss/policy"], 0, atol=1e-6)
    np.testing.assert_allclose(metrics["policy_entropy"], 0, atol=1e-6)


def test_only_the_root_is_encoded_by_the_online_network(batch):
    agent = make("rosmo")
    params, target = params_of(agent, 1), params_of(agent, 2)
    changed = dataclasses.replace(batch, observation=batch.observation.at[:, 1:].set(0.0))

    def online_part(batch):
        targets = jax.tree.map(
            jnp.zeros_like, jax.vmap(agent.step_targets, (None, 0, 0))(target, batch, keys)
        )
        return agent.loss_from_targets(params, batch, targets, keys)[0]

    keys = jax.random.split(KEY, len(batch.action))
    np.testing.assert_array_equal(online_part(batch), online_part(changed))


@pytest.mark.parametrize("name", ["mzu", "mzu_q"])
def test_searches_bootstrap_from_their_improved_values(name, batch):
    agent = make(name)
    target = params_of(agent)
    window = jax.tree.map(lambda x: x[0], batch)
    targets = agent.step_targets(target, window, KEY)
    root = target.root(target.encode(window.observation))
    key = jax.random.fold_in(KEY, 2**31)
    improved = agent.operator(target, key, root, recurrent_fn)
    np.testing.assert_allclose(targets.values, improved.value, rtol=1e-5)
    assert not np.allclose(targets.values, root.value)


@pytest.mark.parametrize(
    "operator",
    [operators.one_step, operators.prior, operators.sampled_one_step, operators.mcts],
    ids=lambda o: o.__name__,
)
def test_the_advantage_is_the_look_aheads_where_the_operator_has_none(operator, batch):
    agent = LatentAgent(small_model, operator, ((regularizers.behavior, 1.0),), unroll_steps=4, td_steps=2)
    target = params_of(agent)
    window = jax.tree.map(lambda x: x[-1], batch)
    advantage = agent.step_targets(target, window, KEY).advantage
    root = target.root(target.encode(window.observation))
    output, _ = recurrent_fn(target, KEY, window.action, root.embedding)
    expected = output.reward + output.discount * output.value - root.value
    if operator is operators.mcts:  # the search's own q-values look further
        assert np.isfinite(advantage).all()
    else:
        np.testing.assert_allclose(advantage, expected[:5], atol=1e-4)


def test_regularizers_add_up(batch):
    pairs = ((regularizers.behavior, 0.2), (functools.partial(regularizers.behavior_exp, beta=2.0), 0.5))
    params, target = params_of(make("one_step"), 1), params_of(make("one_step"), 2)

    def loss(regularized):
        agent = LatentAgent(small_model, operators.one_step, regularized, unroll_steps=4, td_steps=2)
        return loss_of(agent, params, target, batch)[0]

    none, first, second, both = (loss(r) for r in ((), pairs[:1], pairs[1:], pairs))
    assert first > none
    np.testing.assert_allclose(both - none, (first - none) + (second - none), rtol=1e-3)
    np.testing.assert_allclose(loss((pairs[0], pairs[0])) - none, 2 * (first - none), rtol=1e-3)


@every_preset
@pytest.mark.parametrize("greedy", [False, True])
def test_act_chooses_legal_actions(name, greedy):
    agent = make(name)
    params = params_of(agent)
    observation = jax.random.normal(KEY, (20, 4))
    action = agent.act(params, KEY, observation, greedy=greedy)
    assert action.shape == (20,)
    assert action.dtype == jnp.int32
    invalid = jnp.arange(ACTIONS)[None] == jnp.ones((20, 1), jnp.int32)
    assert not np.any(agent.act(params, KEY, observation, greedy=greedy, invalid_actions=invalid) == 1)


def test_greedy_acting_takes_the_action_of_the_largest_weight():
    agent = make("rosmo")
    params = params_of(agent)
    observation = jax.random.normal(KEY, (20, 4))
    improved = operators.one_step(params, KEY, params.root(params.encode(observation)), recurrent_fn)
    greedy = agent.act(params, KEY, observation, greedy=True)
    np.testing.assert_array_equal(greedy, np.argmax(improved.action_weights, axis=1))


def test_presets_are_the_papers():
    rosmo = agents.rosmo(small_model)
    assert (rosmo.unroll_steps, rosmo.td_steps, rosmo.window) == (5, 3, 9)
    assert (rosmo.policy_weight, rosmo.value_weight, rosmo.reward_weight) == (1.0, 0.25, 1.0)
    assert rosmo.regularizers == ((regularizers.behavior, 0.2),)
    assert agents.one_step(small_model).regularizers == ()
    assert agents.behavior(small_model).policy_weight == 0
    assert agents.mzu(small_model).bootstrap == "operator"
    search = {"num_simulations": 4, "max_depth": None}
    assert agents.mzu(small_model).operator.keywords == search | {"dirichlet_fraction": 0.25}
    assert agents.mzu(small_model).acting.keywords == search  # without noise
    assert agents.mzu_q(small_model).operator.keywords["tau"] == 0.1
    assert agents.sampled_rosmo(small_model, num_samples=8).operator.keywords == {"num_samples": 8}


@pytest.mark.parametrize("weight", [-1.0, -1e-9, float("nan"), float("inf")])
def test_weights_that_cannot_be_meant_are_refused(weight):
    for name in ("policy_weight", "value_weight", "reward_weight"):
        with pytest.raises((ValueError, TypeError), match=name):
            LatentAgent(small_model, operators.one_step, **{name: weight})
    with pytest.raises(
        ValueError, match="the weight of the regularizer behavior must be a finite number of at"
    ):
        agents.rosmo(small_model, behavior_weight=weight)
    behavior_exp = functools.partial(regularizers.behavior_exp, beta=0.5)
    with pytest.raises(ValueError, match=r"the weight of the regularizer behavior_exp must be"):
        LatentAgent(small_model, operators.one_step, ((behavior_exp, weight),))


def test_windows_too_short_are_refused(batch):
    agent = agents.rosmo(small_model)
    with pytest.raises(ValueError, match=r"at least 9 steps.*got actions of shape \[\d+, 7\]"):
        agent.loss(agent.init(KEY), agent.init(KEY), batch, KEY)
    for steps in (0, True):
        with pytest.raises(ValueError, match="unroll_steps must be a whole number of at least 1"):
            agents.rosmo(small_model, unroll_steps=steps)
    with pytest.raises(TypeError, match="operator"):
        LatentAgent(small_model, "one_step")
    with pytest.raises(TypeError, match="regularizers"):
        LatentAgent(small_model, operators.one_step, (regularizers.behavior, 0.2))
    with pytest.raises((ValueError, TypeError), match="bootstrap"):
        LatentAgent(small_model, operators.one_step, bootstrap="oracle")
