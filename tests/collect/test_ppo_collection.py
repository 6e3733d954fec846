"""PPO as what collects: what it plays, what is kept of it, and that it learns."""

import dataclasses
import json

import dm_env
import numpy as np
import pytest

from rosmo import envs
from rosmo.agents.ppo import PPOSettings
from rosmo.collect import collect, greedy_score
from rosmo.collect.host import HostNetwork, new_network, on_host
from rosmo.collect.ppo import PPOTraining, Tables, evenly, train
from rosmo.collect.recordings import Played, again
from rosmo.envs.base import registry
from tests.collect.test_collect import Corridor, same

QUICK = PPOTraining(
    transitions=1_000,
    kept=400,
    channels=(),
    hidden=(16,),
    ppo=PPOSettings(environments=4, steps=16, minibatches=4, epochs=2, learning_rate=1e-2, clip=0.2),
)


@pytest.fixture
def corridor(monkeypatch):
    monkeypatch.setattr(registry, "_parts", dict(registry._parts))

    def register(limit=20):
        registry.register("corridor")(lambda seed: Corridor(limit))
        return "corridor"

    return register


def tables_of(name: str, count: int = 3) -> tuple[Tables, HostNetwork]:
    tables = Tables(name, count, np.random.default_rng(0), 0.0)
    network = new_network(1, tables.observation_shape, tables.num_actions + 1, channels=(), hidden=(8,))
    return tables, on_host(network)


def test_a_batch_is_what_was_played(corridor):
    tables, network = tables_of(corridor(limit=6))
    batch, ended = tables.play(network, 40)
    assert batch.observation.shape == (40, 3, 5)
    out = network(batch.observation.reshape(120, 5)).reshape(40, 3, 4)
    np.testing.assert_allclose(batch.value, out[..., -1], rtol=1e-6)
    odds = np.exp(out[..., :-1])
    odds /= odds.sum(axis=-1, keepdims=True)
    chosen = np.take_along_axis(odds, batch.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(batch.log_prob, np.log(chosen), rtol=1e-4, atol=1e-5)
    # An end for each episode that is told, in its place, and a fresh corridor behind it.
    assert batch.is_end.sum() == len(ended) > 5
    for time, table in np.argwhere(batch.is_end[:-1]):
        np.testing.assert_array_equal(batch.observation[time + 1, table], np.eye(5)[0])
    assert sum(one.total for one in ended) == pytest.approx(batch.reward[batch.is_end].sum())


def test_values_past_an_end_are_of_its_own_episode(corridor):
    """The walker that is cut off at once never moves: its last observation is known."""
    tables, network = tables_of(corridor(limit=1))
    batch, _ = tables.play(network, 30)
    moved = {0: 0, 1: 1, 2: 0}  # by each action, from the first cell
    last = np.eye(5)[[[moved[a] for a in row] for row in batch.action]]
    assert batch.is_end.all()
    np.testing.assert_array_equal(batch.discount, batch.action != 0)  # cut off, or left by action 0
    values = network(last.reshape(90, 5))[:, -1].reshape(30, 3)
    np.testing.assert_allclose(batch.next_value, values, rtol=1e-6)
    tables, network = tables_of("corridor")
    batch, _ = Tables.play(tables, network, 10)
    onward = ~batch.is_end[:-1]
    np.testing.assert_array_equal(batch.next_value[:-1][onward], batch.value[1:][onward])


@pytest.mark.parametrize("name", ["catch", "minatar/breakout"])
def test_every_episode_can_be_played_again_by_its_seed(name):
    tables, network = tables_of(name, count=5)
    _, ended = tables.play(network, 60)
    assert len(ended) > 10
    assert len({one.seed for one in ended}) == len(ended)
    for one in ended:
        episode = again(name, one.seed, one.actions)
        assert episode.reward.sum() == one.total
        np.testing.assert_array_equal(episode.action[:-1], one.actions)


def test_episodes_are_taken_evenly_and_whatever_their_length():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 200, size=3_000)
    played = [Played(i, np.zeros(n, np.uint8), 0.0) for i, n in enumerate(lengths)]
    chosen = evenly(played, 30_000)
    taken = np.array([len(one.actions) for one in chosen])
    assert 30_000 - 200 <= taken.sum() <= 30_000
    order = np.array([one.seed for one in chosen])
    assert (np.diff(order) > 0).all()
    by_tenth = np.histogram(order, bins=10, range=(0, 3_000), weights=taken)[0]  # of transitions
    assert by_tenth.min() > 0.8 * by_tenth.max()
    assert taken.mean() == pytest.approx(lengths.mean(), rel=0.15)
    assert evenly(played[:50], 10**9) == played[:50]
    assert evenly([], 100) == []
    assert evenly(played[:1], 1) == []  # longer than all that may be kept


def test_the_same_seed_gives_the_same_training(corridor):
    name = corridor()
    first, again_, other = (collect(name, settings=QUICK, seed=seed) for seed in (1, 1, 2))
    assert all(map(same, first.episodes, again_.episodes))
    assert not all(map(same, first.episodes, other.episodes))
    assert sum(len(episode.action) - 1 for episode in first.episodes) <= QUICK.kept
    assert len(first.returns) > len(first.episodes)
    read = json.loads(json.dumps(first.settings))
    assert (read["environment"], read["transitions"], read["ppo"]["environments"]) == (name, 1_000, 4)


def test_it_learns(corridor):
    name = corridor()
    collected = collect(name, settings=dataclasses.replace(QUICK, transitions=12_000, kept=5_000))
    assert greedy_score(collected, name, episodes=2) == 1.0  # left at once would pay 0.1
    assert collected.returns[-100:].mean() > 0.9 > 0.4 > collected.returns[:100].mean()


def test_it_learns_from_images():
    settings = dataclasses.replace(QUICK, transitions=300, channels=(2,))
    before = []
    played, network = train(
        "minatar/breakout", settings, on_batch=lambda done, ended: before.append((done, len(ended)))
    )
    assert [done for done, _ in before] == [64, 128, 192, 256]
    assert sum(count for _, count in before) == len(played) > 5
    assert network(np.zeros((2, 10, 10, 4), np.uint8)).shape == (2, 4)


def test_noise_is_the_environments(corridor, monkeypatch):
    made = []
    make = envs.make
    monkeypatch.setattr(envs, "make", lambda *args, **how: (made.append(how["noise"]), make(*args, **how))[1])
    collect(corridor(), settings=QUICK, noise=0.3)
    assert set(made) == {0.3}


def test_an_environment_that_does_not_draw_by_its_seed_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_parts", dict(registry._parts))
    lengths = iter(range(1, 10_000))

    class Unsteady(Corridor):
        def reset(self) -> dm_env.TimeStep:
            self.limit = next(lengths)
            return super().reset()

    registry.register("unsteady")(lambda seed: Unsteady())
    with pytest.raises(RuntimeError, match="unsteady plays differently with the same seed and actions"):
        collect("unsteady", settings=QUICK)
