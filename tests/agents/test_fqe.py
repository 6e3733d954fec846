"""Fitted Q evaluation against exact values of tabular MDPs, for policies far from what recorded the data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Learner, adamw, latent_model
from rosmo.agents import FQE, JudgedSteps
from rosmo.data.windows import WindowSampler
from rosmo.types import Trajectory
from tests.tabular import random_mdp, softmax

STATES, ACTIONS, GAMMA, LENGTH = 6, 3, 0.8, 12


@pytest.fixture(scope="module")
def problem():
    """An MDP in which one action of each of two states terminates, and a policy that is nearly greedy."""
    mdp, _ = random_mdp(3, STATES, ACTIONS, GAMMA)
    ends = np.zeros((STATES, ACTIONS), bool)
    ends[1, 0] = ends[4, 2] = True
    policy = softmax(4 * np.random.default_rng(7).normal(size=(STATES, ACTIONS)))
    return mdp, ends, policy


def exact(mdp, ends: np.ndarray, policy: np.ndarray) -> np.ndarray:
    q = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        values = np.sum(policy * q, axis=1)
        q = mdp.reward + GAMMA * np.where(ends, 0, values[mdp.next_state])
    return q


def record(mdp, ends: np.ndarray, count: int = 3_000) -> Trajectory:
    """Episodes of random actions, cut off after 12 steps if they have not terminated."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(count):
        state, terminal = rng.integers(STATES), False
        for time in range(LENGTH):
            action = rng.integers(ACTIONS)
            terminal = bool(ends[state, action])
            rows.append((state, action, mdp.reward[state, action], not terminal, time == 0, False, False))
            state = mdp.next_state[state, action]
            if terminal:
                break
        rows.append((state, 0, 0.0, 0.0, False, True, terminal))
    state, action, reward, discount, first, last, terminal = map(np.array, zip(*rows, strict=True))
    return Trajectory(
        observation=np.eye(STATES, dtype=np.float32)[state],
        action=action.astype(np.int32),
        reward=reward.astype(np.float32),
        discount=discount.astype(np.float32),
        is_first=first,
        is_last=last,
        is_terminal=terminal,
    )


def agent() -> FQE:
    sizes = {"representation": (32,), "dynamics": (64,), "prediction": (8,), "discount": GAMMA}
    return FQE(
        functools.partial(latent_model, observation_shape=(STATES,), num_actions=ACTIONS, **sizes),
        positions=2,
    )


def test_it_learns_the_exact_values_of_a_policy_far_from_the_data(problem):
    mdp, ends, policy = problem
    steps = record(mdp, ends)
    state = np.argmax(steps.observation, axis=1)
    judged = JudgedSteps(**vars(steps), policy=policy[state].astype(np.float32))
    fqe = agent()
    starts = np.flatnonzero(~steps.is_last).astype(np.int32)
    source = WindowSampler(jax.tree.map(jnp.asarray, judged), jnp.asarray(starts), fqe.window)
    optimizer = adamw(learning_rate=3e-3, warmup_steps=10, decay_steps=700, decay_rate=0.3, weight_decay=0.0)
    learner = Learner(fqe, optimizer, batch_size=128, target_update_interval=50)
    trained, _ = learner.update_many(learner.init(jax.random.key(0)), source, 2_500)
    found = np.asarray(fqe.qvalues(trained.params, jnp.eye(STATES)))
    expected, uniform = exact(mdp, ends, policy), exact(mdp, ends, np.full_like(policy, 1 / ACTIONS))
    assert np.abs(expected - uniform).max() > 1.5  # the policy is worth something else than the data's own
    np.testing.assert_allclose(found, expected, atol=0.1)  # of values from about −4 to 3


def window(policy: np.ndarray, *, terminal: bool) -> JudgedSteps:
    """One step with a reward of 1, the end of its episode, and a step of another."""
    return JudgedSteps(
        observation=jnp.eye(STATES)[jnp.array([[0, 1, 2]])],
        action=jnp.array([[1, 0, 0]], jnp.int32),
        reward=jnp.array([[1.0, 50.0, 50.0]]),
        discount=jnp.array([[0.0 if terminal else 1.0, 0.0, 1.0]]),
        is_first=jnp.array([[True, False, True]]),
        is_last=jnp.array([[False, True, False]]),
        is_terminal=jnp.array([[False, terminal, False]]),
        policy=jnp.asarray(policy, jnp.float32)[None],
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_a_target_is_the_policys_expectation_of_the_next_observation(terminal):
    fqe = agent()
    params, target = (fqe.init(jax.random.key(seed)) for seed in (0, 1))
    policy = np.array([[1.0, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1.0]])
    _, metrics = fqe.loss(params, target, window(policy, terminal=terminal), jax.random.key(0))
    expected = float(policy[1] @ np.asarray(fqe.qvalues(target, jnp.eye(STATES)[1:2]))[0])
    goal = 1.0 if terminal else 1.0 + GAMMA * expected
    np.testing.assert_allclose(metrics["value_target"], goal, rtol=1e-5)


def test_steps_without_a_policy_are_refused():
    fqe = agent()
    params = fqe.init(jax.random.key(0))
    plain = {name: x for name, x in vars(window(np.eye(3), terminal=True)).items() if name != "policy"}
    with pytest.raises(TypeError, match="JudgedSteps"):
        fqe.loss(params, params, Trajectory(**plain), jax.random.key(0))
    with pytest.raises(ValueError, match="positions"):
        FQE(agent().model, positions=0)
