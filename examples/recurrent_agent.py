"""An agent of one's own that remembers: it clones a player who saw at the start where to go at the end."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import rosmo


class Recurrent:
    window = 4

    def init(self, key):
        return eqx.nn.GRUCell(3, 16, key=key), eqx.nn.Linear(16, 2, key=key)

    def step(self, params, memory, observation):
        memory = jax.vmap(params[0])(observation, memory)
        return memory, jax.vmap(params[1])(memory)

    def initial_memory(self, params, batch):
        return jnp.zeros((batch, 16))

    def act(self, params, key, observation, memory, *, greedy=False):
        memory, logits = self.step(params, memory, observation)
        return jnp.argmax(logits, -1) if greedy else jax.random.categorical(key, logits), memory

    def loss(self, params, target_params, batch, key):
        def seen(memory, now):  # an episode that begins inside of a window begins with nothing
            return self.step(params, jnp.where(now[1][:, None], 0, memory), now[0])

        along = (jnp.swapaxes(batch.observation, 0, 1), batch.is_first.T)
        _, logits = jax.lax.scan(seen, self.initial_memory(params, len(batch.action)), along)
        error = optax.softmax_cross_entropy_with_integer_labels(logits, batch.action.T)
        return jnp.mean(jnp.where(batch.is_last.T, 0, error)), {}


# Three steps: a sign that says left or right, a corridor that says nothing, and a fork. Then the end.
sign, place = np.random.default_rng(0).integers(0, 2, 1_000), np.tile(np.arange(4), 1_000)
steps = rosmo.Trajectory(
    observation=np.eye(3, dtype=np.float32)[np.where(place == 0, sign.repeat(4), 2)],
    action=np.where(place == 2, sign.repeat(4), 0).astype(np.int32),
    reward=(place == 2).astype(np.float32),
    discount=(place < 2).astype(np.float32),
    is_first=place == 0,
    is_last=place == 3,
    is_terminal=place == 3,
)
agent = Recurrent()
learner = rosmo.Learner(agent, optax.adam(1e-2), batch_size=64)
source = rosmo.data.window_sampler(steps, window=agent.window, num_actions=2)
state, _ = learner.update_many(learner.init(jax.random.key(0)), source, 500)
memory, shown = agent.initial_memory(state.params, 2), jnp.eye(3)[jnp.array([[0, 1], [2, 2], [2, 2]])]
for observation in shown:  # as rosmo.evaluate.Evaluator does, which begins anew with each episode
    action, memory = agent.act(state.params, jax.random.key(1), observation, memory)
print(f"at the fork, after a sign for left and one for right: {action}")
assert (action == jnp.arange(2)).all()
