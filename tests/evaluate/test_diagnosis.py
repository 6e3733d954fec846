"""What a diagnosis says, against arithmetic on what the agent itself foresees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import agents, latent_model, operators
from rosmo.evaluate.diagnosis import Diagnosis
from rosmo.model import recurrent_fn
from rosmo.report import draw_diagnosis
from rosmo.types import Trajectory, map_arrays

ACTIONS, DEPTH = 3, 4


def make(name: str = "rosmo", ensemble: int = 1, **settings):
    sizes = {"representation": (8,), "dynamics": (8,), "prediction": (8,), "ensemble": ensemble}
    model = functools.partial(latent_model, observation_shape=(2,), num_actions=ACTIONS, **sizes)
    return agents.get(name)(model, **settings)


def episodes() -> Trajectory:
    """Forty of 1 to 7 steps, of which every other one is cut off, with an illegal action in each step."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 8, 40)
    is_last = np.concatenate([np.arange(n + 1) == n for n in lengths])
    number = np.concatenate([np.full(n + 1, i) for i, n in enumerate(lengths)])
    count = len(is_last)
    action = rng.integers(0, ACTIONS, count).astype(np.int32)
    illegal = np.eye(ACTIONS, dtype=bool)[(action + rng.integers(1, ACTIONS, count)) % ACTIONS]
    return Trajectory(
        observation=rng.normal(size=(count, 2)).astype(np.float32),
        action=action,
        reward=np.where(is_last, 0, rng.normal(size=count)).astype(np.float32),
        discount=(~is_last).astype(np.float32),
        is_first=np.append(True, is_last[:-1]),
        is_last=is_last,
        is_terminal=is_last & (number % 2 == 0),
        invalid_actions=illegal,
    )


@pytest.fixture(scope="module")
def asked():
    agent, steps = make(), episodes()
    params = agent.init(jax.random.key(3))
    rng = np.random.default_rng(0)  # the heads begin at 0
    params = map_arrays(lambda x: x + rng.normal(scale=0.3, size=x.shape).astype(np.float32), params)
    diagnosis = Diagnosis(agent, steps, num_actions=ACTIONS, depth=DEPTH, names=("prior", "one_step", "smc"))
    return agent, params, steps, diagnosis(params)


def rows_of(steps: Trajectory):
    """Each step with an action, and how many follow it in its episode, the closing one too."""
    last = np.flatnonzero(steps.is_last)
    return [(t, last[np.searchsorted(last, t)] - t) for t in np.flatnonzero(~steps.is_last)]


def test_errors_by_depth_are_those_of_what_is_foreseen(asked):
    agent, params, steps, found = asked
    returns = np.where(steps.is_terminal, 0, np.asarray(agent.values(params, jnp.asarray(steps.observation))))
    for t in reversed(np.flatnonzero(~steps.is_last)):
        returns[t] = steps.reward[t] + params.discount * returns[t + 1]
    errors = {"reward": [[] for _ in range(DEPTH)], "value": [[] for _ in range(DEPTH + 1)]}
    for t, left in rows_of(steps):
        ahead = min(left, DEPTH)
        actions = np.zeros((1, DEPTH), np.int32)
        actions[0, :ahead] = steps.action[t : t + ahead]
        seen = agent.foresee(params, jnp.asarray(steps.observation[t : t + 1]), jnp.asarray(actions))
        for k in range(ahead):
            errors["reward"][k].append(abs(float(seen.rewards[0, k]) - steps.reward[t + k]))
        for k in range(min(left, DEPTH + 1)):
            errors["value"][k].append(abs(float(seen.values[0, k]) - returns[t + k]))
    assert found["windows"] == len(rows_of(steps))
    assert found["depth"]["reward"][0] is None  # nothing was imagined yet
    np.testing.assert_allclose(
        found["depth"]["reward"][1:], [np.mean(e) for e in errors["reward"]], rtol=1e-4
    )
    np.testing.assert_allclose(found["depth"]["value"], [np.mean(e) for e in errors["value"]], rtol=1e-4)
    starts = np.flatnonzero(~steps.is_last)
    np.testing.assert_allclose(found["values"]["return"], returns[starts].mean(), rtol=1e-4)


def test_operators_are_judged_at_the_observed_states(asked):
    _, params, steps, found = asked
    starts = np.flatnonzero(~steps.is_last)
    model, root = params.imagine_from(jnp.asarray(steps.observation[starts]))
    invalid = jnp.asarray(steps.invalid_actions[starts])
    improved = operators.one_step(model, jax.random.key(0), root, recurrent_fn, invalid_actions=invalid)
    weights = np.asarray(improved.action_weights, np.float64)
    said, logs = found["operators"]["one_step"], np.log(np.maximum(weights, 1e-12))
    assert said["accuracy"] == pytest.approx(np.mean(weights.argmax(axis=1) == steps.action[starts]))
    assert said["gain"] == pytest.approx(float(jnp.mean(improved.value - root.value)), rel=1e-4)
    assert said["entropy"] == pytest.approx(-(weights * logs).sum(axis=1).mean(), rel=1e-4)
    nothing = found["operators"]["prior"]
    assert nothing["gain"] == 0
    assert nothing["divergence"] == pytest.approx(0, abs=1e-6)
    assert said["divergence"] > 0
    # ROSMO acts by its one-step look-ahead.
    taken = weights[np.arange(len(starts)), steps.action[starts]]
    assert found["policy"]["log_loss"] == pytest.approx(-np.log(taken).mean(), rel=1e-4)
    assert found["policy"]["entropy"] == pytest.approx(said["entropy"])


def test_at_depth_0_the_policy_is_that_of_the_network(asked):
    _, params, steps, found = asked
    starts = np.flatnonzero(~steps.is_last)
    root = params.imagine_from(jnp.asarray(steps.observation[starts]))[1]
    logits = np.where(steps.invalid_actions[starts], -np.inf, np.asarray(root.prior_logits, np.float64))
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    taken = logs[np.arange(len(starts)), steps.action[starts]]
    assert found["depth"]["policy"][0] == pytest.approx(-taken.mean(), rel=1e-4)


def test_several_are_drawn_side_by_side(asked, tmp_path):
    *_, found = asked
    draw_diagnosis({"one": found, "another": found}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_an_agent_without_a_model_is_refused():
    with pytest.raises(TypeError, match="BC has no model that imagines"):
        Diagnosis(make("bc"), episodes(), num_actions=ACTIONS)


def test_doubts_are_the_deviations_of_members_against_the_errors_of_their_mean(tmp_path):
    rng = np.random.default_rng(0)
    agent, steps = make("rosmo", pessimism=1.0, ensemble=3), episodes()
    params = agent.init(jax.random.key(3))
    params = map_arrays(lambda x: x + rng.normal(scale=0.3, size=x.shape).astype(np.float32), params)
    found = Diagnosis(agent, steps, num_actions=ACTIONS, depth=1, names=("one_step",))(params)
    starts = np.flatnonzero(~steps.is_last)
    state = params.encode(jnp.asarray(steps.observation))
    members = np.asarray(params.value_codec.decode(params.predict(state).value_logits), np.float64)
    returns = np.where(steps.is_terminal, 0, members.mean(axis=1))
    for t in reversed(starts):
        returns[t] = steps.reward[t] + params.discount * returns[t + 1]
    error = np.abs(members.mean(axis=1) - returns)[starts]
    doubt = members.std(axis=1)[starts]
    values = found["values"]
    assert values["doubt"] == pytest.approx(doubt.mean(), rel=1e-4)
    assert values["doubt_correlation"] == pytest.approx(np.corrcoef(doubt, error)[0, 1], rel=1e-3)
    most = np.argsort(doubt, kind="stable")[-(len(doubt) // 10) :]
    np.testing.assert_allclose(values["doubts"][-1], [doubt[most].mean(), error[most].mean()], rtol=1e-3)
    draw_diagnosis({"one": found}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
