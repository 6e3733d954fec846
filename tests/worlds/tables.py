"""A finite MDP as a world that knows it exactly, with windows of experience from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rosmo.types import Trajectory
from rosmo.worlds import Imagined


class TabularWorld(eqx.Module):
    """States are indices, observations one-hot vectors; each (s, a) has a reward, a discount and a doubt."""

    reward: jax.Array  # [S, A]
    next_state: jax.Array  # [S, A]
    discount: jax.Array  # [S, A]
    doubt: jax.Array  # [S, A]
    members: int = eqx.field(static=True, default=2)

    @property
    def num_actions(self):
        return self.reward.shape[1]

    def begin(self, batch):
        return jnp.zeros(batch, jnp.int32)

    def embed(self, observation):
        return observation

    def observe(self, state, action, embedding, first, keys):
        return jnp.argmax(embedding, axis=-1).astype(jnp.int32)

    def imagine(self, state, action, keys, member=None):
        at = (state, action)
        return Imagined(self.next_state[at], self.reward[at], self.discount[at], self.doubt[at])

    def features(self, state):
        return jax.nn.one_hot(state, len(self.reward))

    def reconstruct(self, state):
        return self.features(state)


def corridor(length: int = 5) -> TabularWorld:
    """Left and right along a corridor: 1 at the far right, and 0.2 at the far left, where the episode ends.

    From the middle, the right end is worth more for every γ above 0.2 ** (1 / …): it is as far as the left.
    """
    states = np.arange(length)
    left, right = np.maximum(states - 1, 0), np.minimum(states + 1, length - 1)
    reward = np.zeros((length, 2), np.float32)
    reward[1, 0], reward[length - 2, 1] = 0.2, 1.0
    discount = np.ones((length, 2), np.float32)
    discount[1, 0] = discount[length - 2, 1] = 0.0
    return TabularWorld(
        jnp.asarray(reward),
        jnp.asarray(np.stack([left, right], axis=1), jnp.int32),
        jnp.asarray(discount),
        jnp.zeros((length, 2), jnp.float32),
    )


def play(world: TabularWorld, rng, *, episodes: int, start, policy=None, most: int = 20) -> Trajectory:
    """Episodes of a random policy (or of `policy(rng, state) -> action`) as steps `[N]`."""
    rows = []
    for _ in range(episodes):
        state, first, done = int(start(rng)), True, False
        for time in range(most + 1):
            last = done or time == most
            action = int(rng.integers(world.num_actions) if policy is None else policy(rng, state))
            reward, going = float(world.reward[state, action]), float(world.discount[state, action])
            rows.append((state, action, 0.0 if last else reward, going, first, last, done))
            if last:
                break
            done = rng.random() >= going
            state, first = int(world.next_state[state, action]), False
    state, action, reward, discount, first, last, terminal = map(np.array, zip(*rows, strict=True))
    return Trajectory(
        observation=np.eye(len(world.reward), dtype=np.float32)[state],
        action=action.astype(np.int32),
        reward=reward.astype(np.float32),
        discount=discount.astype(np.float32),
        is_first=first,
        is_last=last,
        is_terminal=terminal,
    )
