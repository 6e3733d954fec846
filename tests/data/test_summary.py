"""Data sets in numbers, and screens of others, against what was put into them."""

import dataclasses

import numpy as np
import pytest

from rosmo.data import FrameStore, from_flat, screens, write_store
from rosmo.data.episodes import each_episode
from rosmo.data.summary import summarise


def rows(**changes):
    """Three episodes; the second is the first again."""
    one = np.array([[0.0, 5.0], [1.0, 5.0]], np.float32)
    found = {
        "observations": np.concatenate([one, one, one + 1]),
        "next_observations": np.float32([[1, 5], [2, 5], [1, 5], [2, 5], [2, 6], [3, 6]]),
        "actions": np.array([0, 2, 0, 2, 0, 0]),
        "rewards": np.array([1.0, 0.5, 1.0, 0.5, 0.0, 2.0]),
        "terminals": np.array([0, 1, 0, 1, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 0, 1]),
    }
    return found | changes


def test_a_summary_is_what_the_rows_say():
    steps = from_flat(rows())
    found = summarise(steps)
    assert found.kind == "float32 [2]"
    assert found.returns.tolist() == [1.5, 1.5, 2.0]
    assert found.lengths.tolist() == [2, 2, 2]
    assert found.actions.tolist() == [4, 0, 2]
    assert sorted(found.rewards.tolist()) == [0.0, 0.5, 0.5, 1.0, 1.0, 2.0]
    assert found.terminations == 2
    assert found.host_bytes == found.device_bytes == 9 * (8 + 4 + 4 + 4 + 3)
    assert found.doubts == (
        "1 of 3 actions were never taken (1)",
        "1 of 3 episodes are equal to an earlier one",
    )


def test_doubtful_things_are_told():
    still = np.zeros((6, 2), np.float64)
    steps = from_flat(
        rows(observations=still, next_observations=still, rewards=np.ones(6), terminals=np.zeros(6))
    )
    reward = np.where(steps.is_last, 3, steps.reward).astype(np.float32)
    found = summarise(dataclasses.replace(steps, reward=reward))
    assert found.returns.sum() == 6  # without the closing steps'
    assert found.device_bytes < found.host_bytes  # float64 becomes float32 there
    text = "\n".join(found.doubts)
    for doubt in (
        "1 of 1 closing steps have a reward, which is never read",
        "every reward is 1",
        "no episode terminated",
        "every observation is the same",
    ):
        assert doubt in text
    observation = np.where([True, False], steps.observation, np.arange(7)[:, None])
    moving = dataclasses.replace(steps, observation=observation)
    assert "1 of the 2 numbers of an observation never change" in summarise(moving).doubts


def test_a_store_is_summed_up_without_its_frames_and_divided_by_episodes(tmp_path):
    frames = np.random.default_rng(0).integers(0, 255, (6, 4, 4)).astype(np.uint8)
    steps = from_flat({k: v for k, v in rows(observations=frames).items() if k != "next_observations"})
    write_store(tmp_path / "s", {"train": each_episode(steps)}, stack=2, metadata={})
    store = FrameStore(tmp_path / "s")
    found, ours = summarise(store), summarise(steps)
    assert found.returns.tolist() == ours.returns.tolist()
    assert found.actions.tolist() == ours.actions.tolist()
    assert found.doubts[-1] == "1 of 3 episodes are equal to an earlier one in all but frames"
    some = store.taking(np.array([0, 2]))
    del store  # whose end must not close the file under the other
    assert some.num_episodes == 2
    assert some.num_starts == 3
    window = some.read(np.arange(3), 1)
    np.testing.assert_array_equal(window.observation[:, 1], frames[[0, 1, 4]])
    assert some.columns()["action"].tolist() == [0, 2, 0, 0, 0]
    assert some.columns()["is_last"].tolist() == [False, False, True, False, True]


def screens_of(shape, count=6):
    return np.random.default_rng(0).integers(0, 255, (count, *shape)).astype(np.uint8)


def test_frames_are_stacked_on_the_three_before_and_nothing_was_before_the_first():
    frames = screens_of((84, 84))
    for given in (frames, frames[..., None], frames[:, None]):
        stacks = screens.as_stacks(given)
        assert stacks.shape == (6, 84, 84, 4)
        for age in range(4):
            np.testing.assert_array_equal(stacks[age:, ..., 3 - age], frames[: 6 - age])
        assert not stacks[0, ..., :3].any()


def test_stacks_along_the_first_axis_are_moved_to_the_end_and_others_are_made_anew():
    frames = screens_of((84, 84), 9)
    four = np.stack([frames[i : i + 4] for i in range(6)])
    np.testing.assert_array_equal(screens.as_stacks(four), np.moveaxis(four, 1, -1))
    two = np.stack([frames[i : i + 2] for i in range(6)])
    np.testing.assert_array_equal(screens.as_stacks(two), screens.as_stacks(frames[1:7]))


def test_screens_become_grey_and_small():
    flat = np.full((5, 210, 160, 3), (200, 100, 50), np.uint8)
    stacks = screens.as_stacks(flat)
    grey = 0.299 * 200 + 0.587 * 100 + 0.114 * 50
    assert stacks.shape == (5, 84, 84, 4)
    np.testing.assert_allclose(stacks[4], grey, atol=1)
    one = screens_of((210, 160))
    half = np.zeros((1, 210, 160), np.uint8)
    half[:, :, 80:] = 250
    small = screens.as_stacks(half)[0, ..., 3]
    assert small[:, :42].max() == 0
    assert small[:, 42:].min() == 250
    assert screens.as_stacks(one).shape == (6, 84, 84, 4)
    stacked = np.stack([one[i : i + 2] for i in range(4)])
    np.testing.assert_array_equal(screens.as_stacks(stacked), screens.as_stacks(one[1:5]))


@pytest.mark.parametrize("shape", [(7, 7, 3), (84, 84, 4), (4,), (), (64, 64, 3)])
def test_other_observations_stay_as_they_are(shape):
    given = screens_of(shape)
    assert screens.as_stacks(given) is given
    floats = given.astype(np.float32)
    assert screens.as_stacks(floats) is floats


def test_states_by_number_are_doubtful():
    numbered = from_flat(rows(observations=np.arange(6), next_observations=np.arange(1, 7)))
    assert any("make a one-hot vector" in doubt for doubt in summarise(numbered).doubts)
    assert not any("one-hot" in doubt for doubt in summarise(from_flat(rows())).doubts)
