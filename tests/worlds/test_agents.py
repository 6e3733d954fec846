"""MOReL, MOPO and COMBO in worlds that are known exactly, and what training leaves of those."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rosmo import Learner, agents, latent_model
from rosmo.agents import Remembers
from rosmo.data import window_sampler
from rosmo.types import Trajectory
from rosmo.worlds import Frozen, disagreement
from rosmo.worlds.acting import EpisodeMemory, StandsOnWorld
from tests.windows import ON_WORLD
from tests.worlds.tables import TabularWorld, corridor, play

KEY = jax.random.key(0)
STATES = 7
CORRIDOR = corridor(STATES)
HEAD = functools.partial(latent_model, representation=(16, 8), dynamics=(16,), prediction=(8,), discount=0.9)
SIZES = {"combo": {"head": HEAD, "context": 2, "positions": 3, "horizon": 4}}
SMALL_PPO = {"hidden": (32,), "context": 3, "horizon": 8}


def make(name: str, world=CORRIDOR, **settings):
    return agents.get(name)(lambda key: world, **SIZES.get(name, SMALL_PPO), **settings)


@functools.cache
def recorded(policy=None) -> Trajectory:
    starts = lambda rng: rng.integers(1, STATES - 1)  # noqa: E731
    return play(CORRIDOR, np.random.default_rng(0), episodes=150, start=starts, policy=policy)


def source_of(agent, steps=None):
    steps = recorded() if steps is None else steps
    return window_sampler(steps, window=agent.window, num_actions=2)


def windows_of(agent, count=64, steps=None):
    return jax.vmap(source_of(agent, steps).sample)(jax.random.split(KEY, count))


def trained(agent, updates=400, steps=None, renew=16):
    learner = Learner(agent, optax.adam(3e-3), batch_size=32, target_update_interval=renew)
    return learner.update_many(learner.init(KEY), source_of(agent, steps), updates)[0].params


def right(params) -> np.ndarray:
    """How likely the policy goes right from each state that is not an end."""
    return np.asarray(jax.nn.softmax(params.head(jnp.eye(STATES))[0])[1:-1, 1])


def test_ppo_finds_the_optimal_policy_of_a_table():
    """1 at the right end, 0.2 at the left one: right is better from every state, for γ = 0.99."""
    params = trained(make("mopo", penalty=0.0))
    assert (right(params) > 0.9).all()
    # Its values are those of the optimal policy: γ to the number of steps before the last.
    values = np.asarray(params.head(jnp.eye(STATES))[1])[1:-1]
    np.testing.assert_allclose(values, 0.99 ** np.arange(4, -1, -1), atol=0.1)


def moved(params, key):
    """Heads start at zero and would hide mistakes."""
    return dataclasses.replace(
        params,
        head=jax.tree.map(
            lambda x: x + 0.3 * jax.random.normal(key, x.shape) if eqx.is_inexact_array(x) else x, params.head
        ),
    )


def of_every_state(head):
    """Log-probabilities `[S, A]` and values `[S]`, in NumPy."""
    logits, value = (np.asarray(x, np.float64) for x in head(jnp.eye(STATES)))
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)), value


def test_the_loss_of_imagined_episodes_by_a_loop():
    """Who plays, from where, what is halted, what is looked ahead to, and what counts: by what was played."""
    played = []

    class Recording(TabularWorld):
        def imagine(self, state, action, keys, member=None):
            jax.debug.callback(lambda *x: played.append(x), state, action, ordered=True)
            return super().imagine(state, action, keys, member)

    table = dataclasses.replace(CORRIDOR, doubt=jnp.zeros((STATES, 2)).at[3, 1].set(1.0))
    agent = make(
        "morel", Recording(*(getattr(table, f.name) for f in dataclasses.fields(table))), penalty=3.0
    )
    old, new = (moved(agent.init(KEY), key) for key in jax.random.split(KEY))
    old = eqx.tree_at(lambda p: p.head.policy.bias, old, jnp.array([2.0, 0.0]))  # who plays goes left
    batch = windows_of(agent, 32)
    loss, metrics = eqx.filter_jit(agent.loss)(new, old, batch, KEY)
    jax.effects_barrier()
    state, action = (np.stack(x, axis=1) for x in zip(*played, strict=True))
    begun = np.where(batch.is_last, -1, np.arange(agent.context)).max(axis=1)
    np.testing.assert_array_equal(state[:, 0], batch.observation.argmax(axis=-1)[np.arange(32), begun])
    assert np.mean(action[:, 0] == 0) > 0.7
    (log_old, v_old), (log_new, v_new) = of_every_state(old.head), of_every_state(new.head)
    steps = []
    for s, a in zip(state, action, strict=True):
        halted = (s == 3) & (a == 1)
        reward = np.where(halted, -3.0, table.reward[s, a])
        over = halted | (np.asarray(table.discount)[s, a] == 0)
        length, advantage = (over.argmax() + 1 if over.any() else len(s)), 0.0
        for t in reversed(range(length)):
            discount = 0.99 * (not over[t])
            ahead = discount * v_old[int(table.next_state[s[t], a[t]])]
            advantage = reward[t] + ahead - v_old[s[t]] + discount * 0.95 * advantage
            steps.append((s[t], a[t], advantage))
    s, a, advantage = (np.array(x) for x in zip(*steps, strict=True))
    target, error = advantage + v_old[s], v_new[s] - advantage - v_old[s]
    held = v_old[s] + np.clip(v_new[s] - v_old[s], -0.1, 0.1) - target
    scaled = (advantage - advantage.mean()) / advantage.std()
    ratio = np.exp(log_new[s, a] - log_old[s, a])
    policy = np.minimum(ratio * scaled, np.clip(ratio, 0.9, 1.1) * scaled).mean()
    entropy = -(np.exp(log_new) * log_new).sum(axis=-1)[s].mean()
    by_hand = -policy + 0.25 * np.maximum(error**2, held**2).mean() - 0.01 * entropy
    np.testing.assert_allclose(loss, by_hand, rtol=1e-4)
    np.testing.assert_allclose(metrics["imagined_steps"], len(s) / 32, rtol=1e-5)


def learned_tables(steps: Trajectory, members: int = 3) -> TabularWorld:
    """Tables as data makes them: exact where it has been, and anything elsewhere, of each member another."""
    rng, real = np.random.default_rng(1), ~steps.is_last
    state = steps.observation.argmax(axis=-1)
    seen = np.zeros((STATES, 2), bool)
    seen[state[real], steps.action[real]] = True
    guesses = rng.dirichlet(np.ones(STATES), (STATES, 2, members))
    exact = np.eye(STATES)[np.asarray(CORRIDOR.next_state)][:, :, None].repeat(members, axis=2)
    doubt = disagreement(jnp.asarray(np.where(seen[..., None, None], exact, guesses), jnp.float32))
    return dataclasses.replace(CORRIDOR, doubt=doubt)


def never_right_of_the_middle(rng, state):
    return rng.integers(2) if state < 3 else 0


def test_morel_stays_out_of_a_region_that_the_data_lacks_and_plain_ppo_does_not():
    steps = recorded(never_right_of_the_middle)
    world = learned_tables(steps)
    assert (np.asarray(world.doubt)[3:-1, 1] > 0.1).all()
    bold = trained(make("mopo", world, penalty=0.0), steps=steps)
    assert (right(bold) > 0.9).all()
    agent = make("morel", world)
    careful = agent.in_world(world, [windows_of(agent, steps=steps)])
    assert float(careful.pessimism(careful.doubts).threshold) == 0
    # From the middle and beyond it does not enter the unknown: the sure 0.2 is at the left.
    assert (right(trained(careful, updates=800, steps=steps))[2:] < 0.4).all()
    soft = make("mopo", world, penalty=5.0)
    soft = soft.in_world(world, [windows_of(soft, steps=steps)])
    assert (right(trained(soft, updates=800, steps=steps))[2:] < 0.4).all()


@pytest.mark.parametrize("name", ON_WORLD)
def test_training_leaves_the_world_as_it_was(name):
    agent = make(name).in_world(CORRIDOR, [windows_of(make(name))])
    assert isinstance(agent, StandsOnWorld)
    assert isinstance(agent, Remembers)
    learner = Learner(agent, optax.adamw(0.1, weight_decay=0.5), batch_size=8, target_update_interval=2)
    state = learner.init(KEY)
    before = jax.device_get(state.params)
    after = jax.device_get(learner.update_many(state, source_of(agent), 3)[0])
    for params in (after.params, after.target_params):
        kept, was = params.world.thaw(), before.world.thaw()
        assert jax.tree.structure(kept) == jax.tree.structure(was)
        for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(was), strict=True):
            np.testing.assert_array_equal(a, b)
    moved = [
        np.abs(a - b).max()
        for a, b in zip(*map(jax.tree.leaves, (after.params.head, before.head)), strict=True)
    ]
    assert max(moved) > 0.01


def test_frozen_arrays_come_back_to_the_bit():
    tree = {
        "a": jnp.array([1.5, -0.0, jnp.nan, jnp.inf, 1e-40]),
        "b": jnp.arange(3),
        "c": jnp.ones(2, jnp.bfloat16),
        "d": jnp.array([True]),
    }
    frozen = Frozen(tree)
    assert not any(eqx.is_inexact_array(x) for x in jax.tree.leaves(frozen))
    for a, b in zip(jax.tree.leaves(jax.jit(Frozen.thaw)(frozen)), jax.tree.leaves(tree), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("name", ON_WORLD)
def test_an_episode_is_remembered_by_the_action_that_was_chosen(name):
    seen = []

    class Recording(TabularWorld):
        def observe(self, state, action, embedding, first, keys):
            seen.append((np.asarray(state), np.asarray(action), np.asarray(first)))
            return super().observe(state, action, embedding, first, keys)

    agent = make(name, Recording(*(getattr(CORRIDOR, f.name) for f in dataclasses.fields(CORRIDOR))))
    params = agent.init(KEY)
    memory = agent.initial_memory(params, 2)
    shown = jnp.eye(STATES)[jnp.array([2, 5])]
    first, memory = agent.act(params, KEY, shown, memory)
    agent.act(params, KEY, shown, memory, greedy=True)
    np.testing.assert_array_equal(seen[0][2], [True, True])
    np.testing.assert_array_equal(seen[1][2], [False, False])
    np.testing.assert_array_equal(seen[1][0], [2, 5])
    np.testing.assert_array_equal(seen[1][1], first)
    assert isinstance(memory, EpisodeMemory)
    for forbidden in (0, 1):
        mask = jnp.broadcast_to(jnp.arange(2) == forbidden, (2, 2))
        legal, memory = agent.act(params, KEY, shown, memory, invalid_actions=mask)
        np.testing.assert_array_equal(legal, [1 - forbidden] * 2)
        np.testing.assert_array_equal(memory.action, legal)


def test_settings_that_cannot_be_meant_are_refused():
    for name, wrong, message in (
        ("morel", {"quantile": None}, "give one of the two"),
        ("morel", {"horizon": 0}, "horizon"),
        ("mopo", {"penalty": -1.0}, "penalty"),
        ("combo", {"ratio": 1.5}, "ratio"),
        ("combo", {"horizon": 1, "td_steps": 2}, "horizon"),
    ):
        with pytest.raises(ValueError, match=message):
            agents.get(name)(lambda key: CORRIDOR, **wrong)


def test_a_world_of_one_member_has_nothing_to_be_pessimistic_by():
    alone = dataclasses.replace(CORRIDOR, members=1)
    for name in ("morel", "mopo"):
        with pytest.raises(ValueError, match="members = 2 or more"):
            make(name, alone).in_world(alone, [windows_of(make(name))])
    make("mopo", alone, penalty=0.0).in_world(alone, [windows_of(make("mopo"))])
    counted = dataclasses.replace(alone, doubt=jnp.ones((STATES, 2)))  # a world may doubt by other means
    assert make("morel", counted).in_world(counted, [windows_of(make("morel"))]).doubts.min() == 1
