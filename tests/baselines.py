"""The baselines at a small size, and networks by table, for their tests."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import Codec, Trajectory
from rosmo.agents import BC, CQL, CRR
from rosmo.model import LatentModel
from rosmo.networks import AbstractDynamics, AbstractPrediction, AbstractRepresentation, Networks
from tests.tabular import softmax
from tests.windows import ACTIONS, small_model, talkative

KEY = jax.random.key(0)
AGENTS = {
    "bc": BC(small_model, positions=4),
    "crr": CRR(small_model, positions=4, td_steps=2, beta=0.5, max_weight=1.5),
    "cql": CQL(small_model, positions=4, td_steps=2, alpha=0.7),
}
VARIANTS = AGENTS | {
    "crr_binary": CRR(small_model, positions=4, weighting="binary"),
    "cql_one_step": CQL(small_model, positions=4),
}
every_agent = pytest.mark.parametrize("name", AGENTS)


def params_of(agent, seed: int = 1) -> LatentModel:
    return talkative(agent.init(jax.random.key(seed)), jax.random.key(seed + 100))


# Compiled once for each agent and shape, whichever test asks.


@eqx.filter_jit
def loss_of(agent, params, target, batch):
    return agent.loss(params, target, batch, KEY)


@eqx.filter_jit
def gradient_of(agent, params, target, batch):
    return eqx.filter_grad(agent.loss, has_aux=True)(params, target, batch, KEY)


@eqx.filter_jit
def everything_said(model: LatentModel, observation) -> tuple[jax.Array, jax.Array]:
    """Policy logits `[N, A]` and the logits of Q `[N, A, bins]`."""
    state = model.encode(observation)
    q = [model.step(state, jnp.full(len(observation), a))[1] for a in range(model.num_actions)]
    return model.predict(state).policy_logits, jnp.stack(q, axis=1)


def some_forbidden(batch: Trajectory, share: float) -> Trajectory:
    """Forbids actions by chance, but none that was taken."""
    rng = np.random.default_rng(3)
    shape = (*batch.action.shape, ACTIONS)
    taken = np.arange(ACTIONS)[None, None] == np.asarray(batch.action)[..., None]
    return dataclasses.replace(batch, invalid_actions=jnp.asarray((rng.random(shape) < share) & ~taken))


# Networks by table: a state is a one-hot observation, and every step leads to the last state.


class Identity(AbstractRepresentation):
    def __call__(self, observation):
        return observation


class TableDynamics(AbstractDynamics):
    reward: jax.Array  # [S, A, bins]

    def __call__(self, state, action):
        rows = jnp.tensordot(state, self.reward, axes=1)
        return jax.nn.one_hot(len(state) - 1, len(state)), rows[action]


class TablePrediction(AbstractPrediction):
    policy: jax.Array  # [S, A]
    value: jax.Array  # [S, bins]

    def __call__(self, state):
        return state @ self.policy, state @ self.value


def table_model(policy, q, value=None, *, codec: Codec, discount: float = 0.5) -> LatentModel:
    policy, q = jnp.asarray(policy, jnp.float32), jnp.asarray(q, jnp.float32)
    value = jnp.zeros((len(policy), codec.bins)) if value is None else jnp.asarray(value, jnp.float32)
    networks = Networks(Identity(), TableDynamics(q), TablePrediction(policy, value))
    return LatentModel(networks, codec, codec, policy.shape[1], discount)


def single_steps(state, action, reward, terminal, *, states: int, length: int = 2) -> Trajectory:
    """Windows of one real step each, from `state` to the next one, padded with more of the closing step."""
    state, action, reward = np.asarray(state), np.asarray(action), np.asarray(reward)
    count = len(state)
    time = np.minimum(np.arange(length), 1)[None]
    last = np.broadcast_to(time > 0, (count, length))
    return Trajectory(
        observation=jnp.asarray(np.eye(states, dtype=np.float32)[state[:, None] + time]),
        action=jnp.asarray(np.broadcast_to(action[:, None], (count, length)).astype(np.int32)),
        reward=jnp.asarray(np.where(last, 0, reward[:, None]).astype(np.float32)),
        discount=jnp.ones((count, length)),
        is_first=jnp.asarray(~last),
        is_last=jnp.asarray(last),
        is_terminal=jnp.asarray(last & np.asarray(terminal)[:, None]),
    )


def two_hot(codec: Codec, x: float) -> np.ndarray:
    y = np.clip(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + codec.epsilon * x, codec.low, codec.high)
    low = min(int(np.floor(y - codec.low)), codec.bins - 2)
    weights = np.zeros(codec.bins)
    weights[low + 1] = y - codec.low - low
    weights[low] = 1 - weights[low + 1]
    return weights


def scalar(codec: Codec, logits: np.ndarray) -> float:
    y, e = float(softmax(logits) @ np.linspace(codec.low, codec.high, codec.bins)), codec.epsilon
    return np.sign(y) * (((np.sqrt(1 + 4 * e * (abs(y) + 1 + e)) - 1) / (2 * e)) ** 2 - 1)
