"""Tabular models in mctx's language: fixtures whose answers are known exactly."""

from typing import NamedTuple

import jax.numpy as jnp
import mctx
import numpy as np


class Table(NamedTuple):
    """Rewards, next states, discounts and predictions by table; the embedding is the state's index `[B]`."""

    reward: jnp.ndarray  # [S, A]
    next_state: jnp.ndarray  # [S, A]
    value: jnp.ndarray  # [S]
    prior_logits: jnp.ndarray  # [S, A]
    discount: jnp.ndarray  # [S, A]


def root_of(table: Table, state) -> mctx.RootFnOutput:
    state = jnp.asarray(state)
    return mctx.RootFnOutput(
        prior_logits=table.prior_logits[state], value=table.value[state], embedding=state
    )


def table_step(table: Table, rng_key, action, state):
    del rng_key
    after = table.next_state[state, action]
    output = mctx.RecurrentFnOutput(
        reward=table.reward[state, action],
        discount=table.discount[state, action],
        prior_logits=table.prior_logits[after],
        value=table.value[after],
    )
    return output, after


def one_decision(prior_logits, value, q) -> tuple[Table, mctx.RootFnOutput]:
    """K states with given q(s, a): each action pays its q and leads to a last state of value 0."""
    prior_logits, q = jnp.asarray(prior_logits), jnp.asarray(q)
    cases, actions = q.shape
    table = Table(
        reward=jnp.concatenate([q, jnp.zeros((1, actions))]),
        next_state=jnp.full((cases + 1, actions), cases),
        value=jnp.append(jnp.asarray(value), 0.0),
        prior_logits=jnp.concatenate([prior_logits, jnp.zeros((1, actions))]),
        discount=jnp.ones((cases + 1, actions)),
    )
    return table, root_of(table, jnp.arange(cases))


class MDP(NamedTuple):
    """A finite MDP with deterministic transitions, in NumPy and float64."""

    reward: np.ndarray  # [S, A]
    next_state: np.ndarray  # [S, A]
    gamma: float

    def evaluate(self, policy: np.ndarray) -> np.ndarray:
        """The exact value of a policy `[S, A]`, by solving its linear equations."""
        states = len(self.reward)
        transition = np.zeros((states, states))
        for action in range(policy.shape[1]):
            np.add.at(transition, (np.arange(states), self.next_state[:, action]), policy[:, action])
        reward = np.sum(policy * self.reward, axis=1)
        return np.linalg.solve(np.eye(states) - self.gamma * transition, reward)

    def table(self, prior_logits: np.ndarray) -> Table:
        """The exact model, with a prior policy and its exact values as the predictions."""
        policy = softmax(prior_logits)
        return Table(
            reward=jnp.asarray(self.reward, jnp.float32),
            next_state=jnp.asarray(self.next_state, jnp.int32),
            value=jnp.asarray(self.evaluate(policy), jnp.float32),
            prior_logits=jnp.asarray(prior_logits, jnp.float32),
            discount=jnp.full(self.reward.shape, self.gamma, jnp.float32),
        )


def random_mdp(seed: int, states: int = 12, actions: int = 4, gamma: float = 0.9) -> tuple[MDP, np.ndarray]:
    """A random MDP and the logits of a random policy in it."""
    rng = np.random.default_rng(seed)
    mdp = MDP(rng.normal(size=(states, actions)), rng.integers(0, states, (states, actions)), gamma)
    return mdp, rng.normal(size=(states, actions))


def softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(np.asarray(x, np.float64) - np.max(x, axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)
