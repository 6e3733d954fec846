"""What held-out episodes say of an agent, against arithmetic by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import agents
from rosmo.agents.base import Foreseen
from rosmo.data.episodes import held_out_episodes, number_of_actions, take_episodes
from rosmo.evaluate import HeldOut
from rosmo.model import latent_model
from rosmo.types import Trajectory


class Params(eqx.Module):
    always: jax.Array  # the action
    discount: float = eqx.field(static=True, default=0.5)


@dataclasses.dataclass(frozen=True)
class Sayer:
    """Values an observation at its own number, and imagines rewards of 1 on the way to two more."""

    window: int = 2
    unroll_steps: int = 1

    def init(self, key):
        return Params(jnp.asarray(1))

    def act(self, params, key, observation, *, greedy=False):
        return jnp.full(len(observation), params.always)

    def loss(self, params, target_params, batch, key):
        loss = jnp.mean(batch.reward[:, 0])
        return loss, {"loss": loss}

    def values(self, params, observation):
        return observation[:, 0]

    def foresee(self, params, observation, actions):
        here = observation[:, :1]
        return Foreseen(jnp.ones(actions.shape), jnp.concatenate([here, here + 2], axis=1))


def two_episodes():
    """One that terminates (0, 1 → 2) and one that is cut off (10, 11 → 12)."""
    is_last = np.array([0, 0, 1, 0, 0, 1], bool)
    return Trajectory(
        observation=np.array([[0.0], [1], [2], [10], [11], [12]], np.float32),
        action=np.array([1, 0, 0, 1, 1, 0], np.int32),
        reward=np.array([1, 2, 0, 3, 4, 0], np.float32),
        discount=np.array([1, 0, 0, 1, 1, 1], np.float32),
        is_first=np.array([1, 0, 0, 1, 0, 0], bool),
        is_last=is_last,
        is_terminal=is_last & (np.arange(6) == 2),
    )


def test_scores_are_those_of_hand_arithmetic():
    agent = Sayer()
    found = HeldOut(agent, two_episodes(), num_actions=2).report(agent.init(None), seed=0)
    assert found.pop("calibration") == [[0, 2], [1, 2], [10, 8], [11, 10]]  # 3 + 4/2 + 12/4, and 4 + 12/2
    assert found == pytest.approx(
        {
            "loss": 2.5,
            "accuracy": 0.75,
            "reward_error_1": 1.5,  # 1 against 1, 2, 3, 4
            "value_error_1": 1.0,  # two more where it is one; the state of the termination has no value
            "return": 5.5,
            "value_bias": 0.0,
            "value_rmse": np.sqrt(2.5),
            "value_correlation": np.corrcoef([0, 1, 10, 11], [2, 2, 8, 10])[0, 1],
        }
    )


def test_a_trained_agents_scores_repeat_and_an_agent_without_values_has_none():
    model = lambda key: latent_model(key, observation_shape=(1,), num_actions=2)  # noqa: E731
    for agent, there in ((agents.BC(model, positions=2), False), (agents.CQL(model, positions=1), True)):
        params = agent.init(jax.random.key(0))
        held_out = HeldOut(agent, two_episodes(), num_actions=2)
        scores = held_out(params, seed=3)
        assert scores == held_out(params, seed=3)
        assert ("value_rmse" in scores) == there
        assert {"loss", "loss/policy" if not there else "loss/value", "accuracy"} <= scores.keys()


def test_held_out_episodes_are_a_seeded_share_that_larger_shares_contain():
    kept, held = held_out_episodes(20, 0.2, seed=1)
    assert sorted([*kept, *held]) == list(range(20))
    assert len(held) == 4
    assert set(held) < set(held_out_episodes(20, 0.5, seed=1)[1])
    assert set(held) != set(held_out_episodes(20, 0.2, seed=2)[1])
    assert [len(part) for part in held_out_episodes(2, 0.01, seed=0)] == [1, 1]
    with pytest.raises(ValueError, match="there is 1 episode, and some are to be held out"):
        held_out_episodes(1, 0.5, seed=0)


def test_episodes_are_taken_whole():
    steps = take_episodes(two_episodes(), [1])
    assert steps.observation[:, 0].tolist() == [10, 11, 12]
    assert number_of_actions(steps) == 2
