import dataclasses
import json
import os
import subprocess
import sys

import dm_env
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rosmo import envs
from rosmo.collect import SETTINGS, collect, dqn, greedy_score
from rosmo.collect.dqn import DQNSettings
from rosmo.data import window_sampler
from rosmo.envs.base import registry
from rosmo.networks.mlp import MLP
from rosmo.types import Trajectory
from tests.windows import random_steps

FIELDS = ("observation", "action", "reward", "discount", "is_first", "is_last", "is_terminal")
QUICK = DQNSettings(episodes=20, hidden=(16,), batch=16, steps_per_update=4.0, n_step=3)


class Corridor(dm_env.Environment):
    """Five cells: right pays 1 at the far end, left pays 0.1 and ends. Slow walkers are cut off."""

    def __init__(self, limit=20):
        self.limit = limit

    def reset(self):
        self.cell, self.time = 0, 0
        return dm_env.restart(self._observe())

    def step(self, action):
        self.time += 1
        if action == 0:
            return dm_env.termination(0.1, self._observe())
        self.cell += action == 1
        if self.cell == 4:
            return dm_env.termination(1.0, self._observe())
        cut = self.time >= self.limit
        return (dm_env.truncation if cut else dm_env.transition)(0.0, self._observe())

    def _observe(self):
        return np.eye(5)[self.cell]  # float64, as most environments that are not bsuite's

    def observation_spec(self):
        return dm_env.specs.Array((5,), np.float64)

    def action_spec(self):
        return dm_env.specs.DiscreteArray(3)


@pytest.fixture
def own(monkeypatch):
    """Registers environments for one test."""
    monkeypatch.setattr(registry, "_parts", dict(registry._parts))
    return registry.register


def same(a, b):
    return all(np.array_equal(getattr(a, field), getattr(b, field)) for field in FIELDS)


@pytest.mark.parametrize("name", ["catch", "cartpole"])
def test_the_record_follows_the_convention(name):
    collected = collect(name, episodes=12, settings=QUICK)
    assert len(collected.episodes) == 12
    for episode, total in zip(collected.episodes, collected.returns, strict=True):
        steps = len(episode.action)
        assert steps == 10 if name == "catch" else steps > 10
        assert {field: getattr(episode, field).dtype for field in FIELDS} == {
            "observation": np.float32,
            "action": np.int32,
            "reward": np.float32,
            "discount": np.float32,
            "is_first": bool,
            "is_last": bool,
            "is_terminal": bool,
        }
        assert episode.observation.shape == (steps, *envs.make(name, seed=0).observation_spec().shape)
        np.testing.assert_array_equal(np.flatnonzero(episode.is_first), [0])
        np.testing.assert_array_equal(np.flatnonzero(episode.is_last), [steps - 1])
        np.testing.assert_array_equal(episode.is_terminal, episode.is_last)
        np.testing.assert_array_equal(episode.discount, [*np.ones(steps - 2), 0, 0])
        assert episode.action[-1] == episode.reward[-1] == 0
        assert episode.reward.sum() == total
    joined = jax.tree.map(lambda *x: np.concatenate(x), *collected.episodes)
    window_sampler(joined, window=5, num_actions=3)  # the data's own checks


def test_the_record_replays_in_the_environment():
    collected = collect("catch", seed=4, episodes=15, settings=QUICK)
    environment = envs.make("catch", seed=4)
    for episode in collected.episodes:
        step = environment.reset()
        for t, action in enumerate(episode.action[:-1]):
            np.testing.assert_array_equal(step.observation, episode.observation[t])
            step = environment.step(int(action))
            assert step.reward == episode.reward[t]
        np.testing.assert_array_equal(step.observation, episode.observation[-1])


def test_under_noise_the_record_has_the_action_that_was_meant(monkeypatch):
    meant = []
    make = envs.make

    def listening(*args, **kwargs):
        environment = make(*args, **kwargs)
        step = environment.step
        environment.step = lambda action: (meant.append(action), step(action))[1]
        return environment

    def strayed(collected):
        """How often the paddle moved, and not as the record says."""
        paddles = [np.diff(e.observation[:-1, -1].argmax(axis=-1)) for e in collected.episodes]
        moves, said = np.concatenate(paddles), np.concatenate([e.action[:-2] - 1 for e in collected.episodes])
        return ((moves != 0) & (moves != said)).mean()

    assert strayed(collect("catch", episodes=30, settings=QUICK)) == 0
    monkeypatch.setattr(envs, "make", listening)
    collected = collect("catch", noise=0.5, episodes=30, settings=QUICK)
    np.testing.assert_array_equal(np.concatenate([e.action[:-1] for e in collected.episodes]), meant)
    assert 0.08 < strayed(collected) < 0.3  # ½ · 4/9 for a uniform policy, less at the walls


def test_the_same_seed_gives_the_same_data_and_another_seed_others():
    first, again, other = (collect("catch", seed=seed, episodes=40) for seed in (3, 3, 8))
    assert all(map(same, first.episodes, again.episodes))
    assert all(map(np.array_equal, *(jax.tree.leaves(c.policy.network.layers) for c in (first, again))))
    assert not all(map(same, first.episodes, other.episodes))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors are chosen on Linux alone")
def test_devices_and_threads_do_not_change_the_data():
    code = (
        "import os, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[2])])\n"
        "import jax; jax.config.update('jax_num_cpu_devices', int(sys.argv[1]))\n"
        "import hashlib; from rosmo.collect import collect\n"
        "c = collect('mountain_car', episodes=2)\n"
        "layers = c.policy.network.layers\n"
        "print(hashlib.sha256(b''.join(x.tobytes() for layer in layers for x in layer)).hexdigest())"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, *counts], stdout=subprocess.PIPE, text=True)
        for counts in (["1", "1"], ["8", "2"])
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second != ""


def test_progress_is_told_after_every_episode():
    told = []
    collected = collect("catch", episodes=6, settings=QUICK, on_episode=lambda *args: told.append(args))
    assert told == [(i + 1, 6, value) for i, value in enumerate(collected.returns)]


def test_what_it_was_made_with_is_ready_for_json():
    collected = collect("catch", noise=0.1, seed=2, episodes=3, settings=QUICK)
    read = json.loads(json.dumps(collected.settings))
    assert (read["environment"], read["noise"], read["seed"], read["episodes"]) == ("catch", 0.1, 2, 3)
    assert read["hidden"] == [16]


def test_the_tasks_have_the_papers_numbers_of_episodes():
    assert {name: SETTINGS[name].episodes for name in ("catch", "cartpole", "mountain_car")} == {
        "catch": 2000,
        "cartpole": 1000,
        "mountain_car": 500,
    }


def test_it_learns_in_an_environment_of_ones_own(own):
    own("corridor")(lambda seed: Corridor())
    settings = DQNSettings(episodes=300, hidden=(32,), steps_per_update=1.0, batch=32, exploration=0.7)
    collected = collect("corridor", settings=settings)
    assert greedy_score(collected, "corridor", episodes=2) == 1.0  # left at once would pay 0.1
    assert collected.returns[-30:].mean() > 0.6 > collected.returns[:30].mean()
    assert collected.episodes[0].observation.dtype == np.float32


def test_a_truncated_episode_is_no_termination(own):
    own("short_corridor")(lambda seed: Corridor(limit=1))
    collected = collect("short_corridor", episodes=30, settings=QUICK)
    for episode in collected.episodes:
        assert len(episode.action) == 2
        terminated = episode.action[0] == 0
        assert episode.is_terminal[-1] == terminated
        assert episode.discount[0] == (not terminated)


def test_actions_that_are_not_discrete_are_refused(own):
    class Continuous(Corridor):
        def action_spec(self):
            return dm_env.specs.BoundedArray((1,), np.float32, -1, 1)

    own("continuous")(lambda seed: Continuous())
    with pytest.raises(TypeError, match="only discrete ones will do"):
        collect("continuous")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "episodes must be above 0, got 0"),
        ({"n_step": 0}, "n_step must be above 0"),
        ({"steps_per_update": 0.0}, "steps_per_update must be above 0"),
        ({"epsilon": 1.5}, r"epsilon must lie in \[0, 1\], got 1.5"),
        ({"discount": -0.1}, r"discount must lie in \[0, 1\]"),
    ],
)
def test_settings_that_could_not_train_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(QUICK, **change)


def test_a_scale_for_other_observations_is_refused_before_the_first_episode():
    settings = dataclasses.replace(QUICK, observation_scale=(1.0, 2.0))
    with pytest.raises(ValueError, match="observation_scale has 2 factors for observations of 50 numbers"):
        collect("catch", settings=settings, on_episode=lambda *args: pytest.fail("an episode was played"))


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("n_step", [1, 3, 20])
def test_n_step_transitions_match_a_sum_by_hand(terminal, n_step):
    episode = random_steps(np.random.default_rng(0), [7], np.array([terminal]))
    episode = Trajectory(*(np.asarray(getattr(episode, field)) for field in FIELDS))
    settings = DQNSettings(n_step=n_step, discount=0.9, reward_scale=2.0, observation_scale=3.0)
    rows = dqn.n_step_transitions(episode, settings)
    last = len(episode.action) - 1
    assert len(rows.action) == last
    for t in range(last):
        total, factor, end = 0.0, 1.0, t
        while end < last and end < t + n_step:
            total += factor * episode.reward[end]
            factor *= 0.9 * episode.discount[end]
            end += 1
        assert rows.reward[t] == pytest.approx(2 * total, rel=1e-5)
        assert rows.discount[t] == pytest.approx(factor, rel=1e-5)
        if terminal and end == last:
            assert rows.discount[t] == 0
        np.testing.assert_allclose(rows.observation[t], 3 * episode.observation[t].reshape(-1))
        np.testing.assert_allclose(rows.next_observation[t], 3 * episode.observation[end].reshape(-1))


def test_the_replay_keeps_the_latest_and_draws_them_all_alike():
    replay = dqn.Replay(10)
    for start in range(0, 28, 4):
        x = np.arange(start, start + 4)
        f = x.astype(np.float32)
        replay.add(dqn.Transitions(f[:, None], x.astype(np.int32), f, f, f[:, None]))
    drawn = replay.sample(np.random.default_rng(0), (100, 50))
    values, counts = np.unique(drawn.action, return_counts=True)
    np.testing.assert_array_equal(values, np.arange(18, 28))
    np.testing.assert_allclose(counts, 500, atol=5 * np.sqrt(500))
    np.testing.assert_array_equal(drawn.observation[..., 0], drawn.action)


def test_the_policy_on_the_host_is_the_network():
    settings = DQNSettings(observation_scale=(1.0, 10.0, 0.5))
    network = MLP(jax.random.key(0), (3, 8, 8, 4))
    policy = dqn.greedy_policy(network, settings)
    for observation in np.random.default_rng(0).normal(size=(20, 1, 3)).astype(np.float32):
        expected = network(jnp.asarray(observation[0] * np.array([1, 10, 0.5], np.float32)))
        np.testing.assert_allclose(policy.values(observation), expected, rtol=1e-4, atol=1e-5)
        assert policy(observation) == int(np.argmax(expected))


IMAGES = dataclasses.replace(QUICK, channels=(3, 5))


def test_images_are_learned_from_as_they_are():
    collected = collect("minatar/breakout", episodes=12, settings=IMAGES)
    again = collect("minatar/breakout", episodes=12, settings=IMAGES)
    assert all(same(a, b) for a, b in zip(collected.episodes, again.episodes, strict=True))
    assert collected.episodes[0].observation.dtype == np.uint8
    rows = dqn.n_step_transitions(collected.episodes[0], IMAGES)
    assert rows.observation.dtype == np.uint8
    np.testing.assert_array_equal(rows.observation, collected.episodes[0].observation[:-1])
    first = dqn.greedy_policy(dqn.q_network(0, (10, 10, 4), 3, IMAGES), IMAGES)
    assert not np.allclose(first.network.convs[0][0], collected.policy.network.convs[0][0])


def test_the_policy_on_the_host_is_the_network_on_images():
    network = dqn.q_network(0, (6, 7, 2), 3, IMAGES)
    policy = dqn.greedy_policy(network, IMAGES)
    for image in np.random.default_rng(0).integers(0, 2, (10, 6, 7, 2)).astype(np.uint8):
        np.testing.assert_allclose(policy.values(image), network(jnp.asarray(image)), atol=1e-5)


def test_convolutions_of_what_is_no_image_are_refused_before_the_first_episode():
    with pytest.raises(ValueError, match=r"convolutions take images .* of the shape \[1, 6\]"):
        collect("cartpole", settings=IMAGES, on_episode=lambda *args: pytest.fail("an episode was played"))
    with pytest.raises(ValueError, match="observation_scale is for vectors"):
        dataclasses.replace(IMAGES, observation_scale=2.0)


def test_an_update_takes_the_double_q_target():
    """One row, SGD's direction alone: Adam's first step has the sign of the gradient."""

    def layer(mlp, bias):
        replace = (jnp.zeros((2, 3)), jnp.asarray(bias, jnp.float32))
        return eqx.tree_at(lambda m: (m.layers[0].weight, m.layers[0].bias), mlp, replace)

    state = dqn.init(MLP(jax.random.key(1), (2, 3)))
    state = state._replace(online=layer(state.online, [0, 1, 0]), target=layer(state.target, [5, -5, 0]))
    x = np.zeros((1, 1, 2), np.float32)
    one = np.ones((1, 1), np.float32)
    batch = dqn.Transitions(x, np.zeros((1, 1), np.int32), 0 * one, one, x)
    # The online network prefers action 1, whose target value is −5: a plain maximum (+5) would go up instead.
    after = dqn.update(state, batch, np.float32(0.1), np.float32(0.5))
    np.testing.assert_allclose(after.online.layers[0].bias, [-0.1, 1, 0], atol=1e-4)
    np.testing.assert_allclose(after.target.layers[0].bias, [2.45, -2, 0], atol=1e-4)
