"""Minari data sets, against the episodes that were put into them."""

import dataclasses
import gc
import sys

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from minari.data_collector import EpisodeBuffer

from rosmo.data import minari as rosmo_minari
from rosmo.data import window_sampler
from rosmo.data.opening import count_actions

# All of these are about how minari writes data sets.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.eval_env. is set to None:UserWarning",
    "ignore:env_spec is None:UserWarning",
    "ignore:Implicitly cleaning up:ResourceWarning",
)

VECTOR = Box(-1, 1, (3,), np.float32)


@pytest.fixture(autouse=True)
def _own_datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def buffers(lengths, observation):
    """Episodes whose rewards tell them apart; every third ends with neither flag set."""
    rng = np.random.default_rng(0)
    return [
        EpisodeBuffer(
            id=i,
            observations=observation(rng, length + 1),
            actions=list(rng.integers(0, 4, length)),
            rewards=[10.0 * i + t for t in range(length)],
            terminations=[t == length - 1 and i % 3 == 0 for t in range(length)],
            truncations=[t == length - 1 and i % 3 == 1 for t in range(length)],
        )
        for i, length in enumerate(lengths)
    ]


def vectors(rng, count):
    return list(rng.uniform(-1, 1, (count, 3)).astype(np.float32))


def create(episodes, *, observation_space=VECTOR, action_space=None):
    minari.create_dataset_from_buffers(
        "tiny/test-v0",
        episodes,
        observation_space=observation_space,
        action_space=action_space or Discrete(4),
        algorithm_name="random",
        author="anyone",
        author_email="anyone@example.org",
        code_permalink="https://example.org",
        description="a test",
    )


def test_episodes_become_steps():
    episodes = buffers([3, 1, 2], vectors)
    create(episodes)
    steps = rosmo_minari.read("tiny/test-v0")
    assert count_actions("minari:tiny/test-v0", steps) == 4
    np.testing.assert_array_equal(steps.observation, np.concatenate([e.observations for e in episodes]))
    actions = [[*e.actions, 0] for e in episodes]
    np.testing.assert_array_equal(steps.action, np.concatenate(actions))
    assert steps.reward.tolist() == [0, 1, 2, 0, 10, 0, 20, 21, 0]
    assert steps.discount.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert np.flatnonzero(steps.is_first).tolist() == [0, 4, 6]
    assert np.flatnonzero(steps.is_last).tolist() == [3, 5, 8]
    assert np.flatnonzero(steps.is_terminal).tolist() == [3]
    assert (steps.observation.dtype, steps.action.dtype, steps.reward.dtype) == (
        np.float32,
        np.int32,
        np.float32,
    )
    assert len(window_sampler(steps, window=2, num_actions=4).starts) == 6


def test_collected_episodes_are_read():
    env = minari.DataCollector(gymnasium.make("CartPole-v1", max_episode_steps=12))
    seen, rewards = [], []
    for seed in range(6):
        observation, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        done = False
        while not done:
            seen.append(observation)
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            rewards.append(reward)
            done = terminated or truncated
        seen.append(observation)
        rewards.append(0)
    env.create_dataset(
        "cartpole/random-v0",
        algorithm_name="random",
        author="anyone",
        author_email="anyone@example.org",
        code_permalink="https://example.org",
        description="a test",
    )
    env.close()
    del env
    gc.collect()  # it warns of its temporary directory as it goes, which should not hit another test
    steps = rosmo_minari.read("cartpole/random-v0")
    np.testing.assert_array_equal(steps.observation, np.stack(seen))
    np.testing.assert_array_equal(steps.reward, rewards)
    lengths = np.diff(np.flatnonzero(np.append(steps.is_first, True))) - 1
    # CartPole falls or is stopped at the limit, and the pole's angle says which.
    fallen = np.abs(steps.observation[steps.is_last][:, 2]) > 12 * np.pi / 180
    np.testing.assert_array_equal(steps.is_terminal[steps.is_last], fallen)
    assert (lengths[~fallen] == 12).all()


def test_one_entry_is_unwrapped_and_several_are_refused():
    space = {"a": VECTOR, "b": VECTOR}
    create(
        buffers([2, 3], lambda rng, count: {"a": vectors(rng, count)}), observation_space=Dict({"a": VECTOR})
    )
    assert rosmo_minari.read("tiny/test-v0").observation.shape == (7, 3)
    minari.delete_dataset("tiny/test-v0")
    create(
        buffers([2], lambda rng, count: {key: vectors(rng, count) for key in space}),
        observation_space=Dict(space),
    )
    with pytest.raises(ValueError, match=r"have several parts \(a, b\): combine them"):
        rosmo_minari.read("tiny/test-v0")


def test_screens_of_atari_become_what_agents_see():
    space = Box(0, 255, (210, 160, 3), np.uint8)
    create(
        buffers([3, 2], lambda rng, count: [space.sample() for _ in range(count)]), observation_space=space
    )
    steps = rosmo_minari.read("tiny/test-v0")
    assert (steps.observation.shape, steps.observation.dtype) == ((7, 84, 84, 4), np.uint8)
    np.testing.assert_array_equal(steps.observation[2, ..., 2], steps.observation[1, ..., 3])
    assert not steps.observation[4, ..., :3].any()  # a new episode: nothing was before


@pytest.mark.parametrize("space", [Box(-1, 1, (), np.float32), Discrete(4, start=1)])
def test_other_actions_are_refused(space):
    (episode,) = buffers([2], vectors)
    create([dataclasses.replace(episode, actions=[space.sample() for _ in range(2)])], action_space=space)
    with pytest.raises(ValueError, match=r"'tiny/test-v0' are .*: only Discrete\(n\) is supported"):
        rosmo_minari.read("tiny/test-v0")


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("rewards", [0.0, 1e300], ValueError, "step 1 has a reward that does not fit into float32"),
        ("actions", np.array([0.0, 1.9]), TypeError, "actions must be integers, got float64"),
    ],
)
def test_values_that_would_change_are_named(field, value, error, message, monkeypatch):
    create(buffers([3, 2], vectors))
    iterate = minari.MinariDataset.iterate_episodes

    def other(self, indices=None):
        first, second = iterate(self, indices)
        yield from (first, dataclasses.replace(second, **{field: np.asarray(value)}))

    monkeypatch.setattr(minari.MinariDataset, "iterate_episodes", other)
    with pytest.raises(error, match=rf"Minari data set 'tiny/test-v0': episode 1: {message}"):
        rosmo_minari.read("tiny/test-v0")


def test_a_fraction_keeps_whole_episodes_in_order():
    create(buffers([2] * 10, vectors))
    previous: set[float] = set()
    for fraction, count in ((0.01, 1), (0.5, 5), (1.0, 10)):
        rewards = rosmo_minari.read("tiny/test-v0", fraction=fraction, seed=1).reward[::3]
        assert len(rewards) == count
        assert (np.diff(rewards) > 0).all()
        assert previous < set(rewards.tolist())
        previous = set(rewards.tolist())
    with pytest.raises(ValueError, match="fraction must be a finite number above 0"):
        rosmo_minari.read("tiny/test-v0", fraction=0.0)


def test_a_data_set_that_is_not_here_lists_those_that_are():
    with pytest.raises(FileNotFoundError, match=r"\(there are: none\); get it with `minari download a/b-v0`"):
        rosmo_minari.read("a/b-v0")
    create(buffers([2], vectors))
    with pytest.raises(FileNotFoundError, match="there are: tiny/test-v0"):
        rosmo_minari.read("a/b-v0")


def test_without_minari_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r'pip install "rosmo\[minari\]"'):
        rosmo_minari.read("tiny/test-v0")
