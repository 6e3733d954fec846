"""An operator and a regularizer of one's own, composed into an agent and trained with nothing edited."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import rosmo
from rosmo.operators import Improvement, look_ahead


@rosmo.operators.register("greedy")
def greedy(params, rng_key, root, recurrent_fn, *, invalid_actions=None) -> Improvement:
    """Puts all weight on the action with the best one-step look-ahead."""
    batch, num_actions = root.prior_logits.shape
    actions = jnp.tile(jnp.arange(num_actions), (batch, 1))
    q = look_ahead(params, rng_key, root.embedding, recurrent_fn, actions)
    legal = q if invalid_actions is None else jnp.where(invalid_actions, -jnp.inf, q)
    best = jnp.argmax(legal, axis=-1)
    weights = jax.nn.one_hot(best, num_actions)
    return Improvement(best, weights, value=jnp.max(legal, axis=-1), qvalues=q, complete=True)


@rosmo.regularizers.register("entropy")
def entropy(positions) -> jax.Array:
    """Pays for a policy that is sure of itself."""
    log_policy = jax.nn.log_softmax(positions.policy_logits)
    return jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)


def bandit_episodes(rng: np.random.Generator, count: int) -> rosmo.Trajectory:
    """Episodes of one decision: the arm that the observation points at pays 1."""
    shown, chosen = rng.integers(0, 3, (2, count))
    is_last = np.tile([False, True], count)
    return rosmo.Trajectory(
        observation=np.repeat(np.eye(3, dtype=np.float32)[shown], 2, axis=0),
        action=np.repeat(chosen, 2).astype(np.int32),
        reward=np.where(is_last, 0, np.repeat(shown == chosen, 2)).astype(np.float32),
        discount=np.zeros(2 * count, np.float32),
        is_first=~is_last,
        is_last=is_last,
        is_terminal=is_last,
    )


model = functools.partial(rosmo.latent_model, observation_shape=(3,), num_actions=3)
regularizers = ((rosmo.regularizers.get("entropy"), 0.02), (rosmo.regularizers.get("behavior"), 0.2))
agent = rosmo.agents.LatentAgent(model, rosmo.operators.get("greedy"), regularizers)
steps = bandit_episodes(np.random.default_rng(0), 500)
source = rosmo.data.window_sampler(steps, window=agent.window, num_actions=3)
learner = rosmo.Learner(agent, rosmo.adamw(3e-3, warmup_steps=50), batch_size=64)
state, metrics = learner.update_many(learner.init(jax.random.key(0)), source, 1_000)
actions = agent.act(state.params, jax.random.key(1), jnp.eye(3))
print(f"loss {metrics['loss'][0]:.2f} → {metrics['loss'][-1]:.2f}, actions {actions}")
assert (actions == jnp.arange(3)).all()
