"""BC, CRR and CQL on tasks with known answers, and beside an agent with a model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, Learner, Trajectory, adamw, operators, regularizers
from rosmo.agents import BC, CQL, CRR, LatentAgent
from rosmo.data import window_sampler
from rosmo.model import LatentModel
from tests.baselines import KEY, everything_said, gradient_of, scalar, single_steps, table_model, two_hot
from tests.tabular import softmax
from tests.windows import ACTIONS, small_model

# The paper's remark on its ablation.


@pytest.mark.parametrize(
    ("weighting", "regularizer"), [("binary", regularizers.behavior), ("exp", regularizers.behavior_exp)]
)
def test_behavior_is_crr_with_the_advantage_of_a_model(weighting, regularizer):
    """Where the look-ahead r + γv(s′) − v(s) equals Q(s, a) − E Q(s, ·), so do the policy gradients.

    The reward of the model is the Q of the critic, the next value is 0, and v(s) is what the critic expects.
    One network is online and target: the one judges by the target network, and the other by the online one.
    """
    rng = np.random.default_rng(0)
    states, codec = 7, Codec(9)
    policy, q = rng.normal(size=(states, 3)), 2 * rng.normal(size=(states, 3, 9))
    baseline = [softmax(policy[s]) @ [scalar(codec, q[s, a]) for a in range(3)] for s in range(states)]
    value = np.log(np.array([two_hot(codec, v) for v in baseline]) + 1e-12)
    value[-1] = 0
    model = table_model(policy, q, value, codec=codec)
    steps = single_steps(
        np.repeat(np.arange(states - 1), 3), np.tile(np.arange(3), states - 1), np.zeros(18), [True] * 18,
        states=states, length=3,
    )  # fmt: skip
    behavior = LatentAgent(
        lambda key: model, operators.prior, ((regularizer, 1.0),), policy_weight=0.0, value_weight=0.0,
        reward_weight=0.0, unroll_steps=1, td_steps=1,
    )  # fmt: skip
    crr = CRR(lambda key: model, weighting=weighting, positions=2, value_weight=0.0)
    (behavior_gradient, _), (crr_gradient, metrics) = (
        gradient_of(agent, model, model, steps) for agent in (behavior, crr)
    )
    expected, found = (g.networks.prediction.policy for g in (behavior_gradient, crr_gradient))
    assert 0.2 < metrics["advantage_positive"] < 0.8  # neither all nor nothing is cloned
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


# Small tasks whose answers are known.


def train(agent, steps: Trajectory, updates: int = 300, interval: int = 15) -> LatentModel:
    optimizer = adamw(5e-3, weight_decay=0.0, warmup_steps=10)
    learner = Learner(agent, optimizer, batch_size=32, target_update_interval=interval)
    source = window_sampler(steps, window=agent.window, num_actions=ACTIONS)
    return learner.update_many(learner.init(KEY), source, updates)[0].params


def bandit() -> Trajectory:
    """One decision: action 0 is frequent and pays 0, action 1 pays 1, action 2 is rare and costs 1."""
    action = np.repeat([0, 1, 2], [60, 30, 10])
    return flat(
        single_steps(np.zeros(100, int), action, [0, 1, -1] @ np.eye(3)[:, action], [True] * 100, states=4)
    )


def flat(windows: Trajectory) -> Trajectory:
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), windows)


def policy_in(model: LatentModel, state: int) -> np.ndarray:
    return softmax(everything_said(model, jnp.eye(4)[state][None])[0][0])


def q_in(model: LatentModel, state: int) -> np.ndarray:
    return np.asarray(model.value_codec.decode(everything_said(model, jnp.eye(4)[state][None])[1])[0])


def test_on_a_bandit_each_finds_its_own_answer():
    share = np.array([0.6, 0.3, 0.1])
    reward = np.array([0.0, 1.0, -1.0])
    np.testing.assert_allclose(policy_in(train(BC(small_model), bandit()), 0), share, atol=0.06)
    exponential = share * np.exp(reward) / (share @ np.exp(reward))  # π ∝ μ exp(Q): the baseline cancels
    model = train(CRR(small_model), bandit())
    np.testing.assert_allclose(q_in(model, 0), reward, atol=0.1)
    np.testing.assert_allclose(policy_in(model, 0), exponential, atol=0.06)
    assert policy_in(train(CRR(small_model, weighting="binary"), bandit()), 0)[1] > 0.95
    # The penalty alone is the cross entropy of a policy softmax Q.
    cautious = q_in(train(CQL(small_model, alpha=100.0), bandit()), 0)
    np.testing.assert_allclose(softmax(cautious), share, atol=0.06)


def chain() -> Trajectory:
    """A corridor of three states walked by chance for up to 8 steps; action 2 goes on, and the end pays 1."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(150):
        state, time = 0, 0
        while state < 3 and time < 8:
            action = int(rng.integers(0, 3))
            after = state + 1 if action == 2 else state
            rows.append((state, action, float(after == 3), time == 0, False, False))
            state, time = after, time + 1
        rows.append((state, 0, 0.0, False, True, state == 3))
    state, action, reward, first, last, terminal = map(np.array, zip(*rows, strict=True))
    return Trajectory(
        observation=np.eye(4, dtype=np.float32)[state],
        action=action.astype(np.int32),
        reward=reward.astype(np.float32),
        discount=np.ones(len(rows), np.float32),
        is_first=first,
        is_last=last,
        is_terminal=terminal,
    )


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(CRR, weighting="binary"),
        functools.partial(CRR, beta=0.02),
        functools.partial(CQL, alpha=0.1),
    ],
    ids=["crr_binary", "crr_exp", "cql"],
)
def test_along_a_corridor_both_learn_to_go_on(make):
    agent = make(small_model)
    model = train(agent, chain())
    observations = jnp.repeat(jnp.eye(4)[:3], 20, axis=0)
    for greedy in (False, True):
        actions = np.asarray(agent.act(model, KEY, observations, greedy=greedy))
        assert (actions == 2).mean() > (0.8 if isinstance(agent, CRR) and not greedy else 0.99)
    if isinstance(agent, CRR):
        best = [q_in(model, state)[2] for state in range(3)]
        np.testing.assert_allclose(best, [0.81, 0.9, 1.0], atol=0.12)


@pytest.mark.parametrize("make", [CRR, functools.partial(CQL, alpha=0.0)], ids=["crr", "cql"])
def test_a_truncation_is_not_an_end(make):
    """Two states that pay 1, each seen for one step: 0 ends there, worth 1; 1 was cut off, 1/(1 − γ)."""
    count = 120
    state = np.arange(count) // 2 % 2
    last = np.arange(count) % 2 == 1
    steps = Trajectory(
        observation=np.eye(4, dtype=np.float32)[state],
        action=(np.arange(count) // 4 % 3).astype(np.int32),
        reward=np.where(last, 0, 1).astype(np.float32),
        discount=np.ones(count, np.float32),
        is_first=~last,
        is_last=last,
        is_terminal=last & (state == 0),
    )
    model = train(make(small_model, positions=1), steps, updates=600, interval=6)
    np.testing.assert_allclose(q_in(model, 0), 1.0, rtol=0.1)
    np.testing.assert_allclose(q_in(model, 1), 10.0, rtol=0.1)
