"""RL Unplugged's layout: its own builder and tfds.load against the reader and the store of this library."""

import dataclasses
import importlib.util
import pickle

import jax
import numpy as np
import pytest

from rosmo import cli
from rosmo.data import FrameStore, StoreSampler, rlds
from rosmo.data.atari import single_frames
from rosmo.frames import stack_frames
from tests import atari

pytest.importorskip("ale_py")
WINDOW = 6


@pytest.fixture(scope="module")
def episodes():
    """Two checkpoints of games, some cut off and one played to its end."""
    return [
        [atari.play(0, max_frames=160), atari.play(1, max_frames=100_000)],
        [atari.play(2, max_frames=40)],
    ]


def raw(episode, checkpoint, number):
    """An episode as RL Unplugged's own files have it."""
    count = len(episode.action)
    terminal = bool(episode.is_terminal[-1])
    rewards = np.clip(episode.reward, -1, 1)
    return {
        "checkpoint_idx": [checkpoint],
        "episode_idx": [number],
        "episode_return": [float(rewards.sum())],
        "clipped_episode_return": [float(rewards.sum())],
        "observations": [atari.png(stack[..., -1]) for stack in episode.observation],
        "actions": [*map(int, episode.action[:-1]), 99 if terminal else 1],
        "unclipped_rewards": [*map(float, rewards[:-1]), 7.0 if terminal else 0.0],
        "clipped_rewards": [0.0] * count,
        "discounts": [1.0] * (count - 1) + [float(not terminal)],
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, episodes):
    """The data set as TFDS's builder writes it, and its steps as `tfds.load` gives them."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip('the builder of RL Unplugged needs TensorFlow: pip install "rosmo[tensorflow]"')
    directory = tmp_path_factory.mktemp("rlu")
    files = [[raw(e, c, i) for i, e in enumerate(part)] for c, part in enumerate(episodes)]
    with open(directory / "raw.pickle", "wb") as file:
        pickle.dump(files, file)
    assert atari.run_python(atari.BUILD, directory, atari.RUN) == [True, 0]
    loaded = [
        [dict(np.load(directory / f"loaded-{c}-{i}.npz")) for i in range(len(part))]
        for c, part in enumerate(episodes)
    ]
    return directory / "tfds", loaded


def stacked_windows(steps):
    """All windows of an episode that tfds.load gave, the slow and obvious way: {first step: window}."""
    frames = steps["observation"][..., 0]
    count = len(frames)
    for start in range(count - 1):
        rows = range(start, min(start + WINDOW, count))
        stacks = [
            np.stack([frames[t - k] if t >= k else np.zeros_like(frames[0]) for k in (3, 2, 1, 0)], axis=-1)
            for t in rows
        ]
        yield np.stack(stacks), {key: steps[key][rows.start : rows.stop] for key in steps}


def test_tfds_load_and_our_reader_give_identical_windows(prepared, tmp_path):
    directory, loaded = prepared
    assert cli.main(["data", "convert", str(directory / atari.RUN), str(tmp_path / "store")]) == 0
    store = FrameStore(tmp_path / "store")
    assert store.info["splits"] == {"checkpoint_00": 2, "checkpoint_01": 1}
    found = jax.device_get(stack_frames(store.read(np.arange(store.num_starts), WINDOW)))
    expected = [window for part in loaded for steps in part for window in stacked_windows(steps)]
    assert len(expected) == store.num_starts
    terminations = 0
    for i, (stacks, steps) in enumerate(expected):
        count = len(stacks)
        np.testing.assert_array_equal(found.observation[i, :count], stacks)
        for flag in ("is_first", "is_last", "is_terminal"):
            np.testing.assert_array_equal(getattr(found, flag)[i, :count], steps[flag])
        real = ~steps["is_last"]  # the closing step has an observation alone
        for field in ("action", "reward", "discount"):
            np.testing.assert_array_equal(getattr(found, field)[i, :count][real], steps[field][real])
        if steps["is_terminal"][-1]:
            terminations += 1
            assert steps["discount"][-2:].tolist() == [0, 0]  # doubled, as the data has it
            assert (steps["action"][-1], steps["reward"][-1]) == (99, 7)  # and meaningless
            assert found.action[i, count - 1] == found.reward[i, count - 1] == 0
    assert terminations == WINDOW - 1


def test_what_was_recorded_is_what_is_read(prepared, episodes):
    directory, _ = prepared
    assert rlds.split_names(directory / atari.RUN) == ["checkpoint_00", "checkpoint_01"]
    for checkpoint, part in enumerate(episodes):
        read = rlds.read_episodes(directory / atari.RUN, split=f"checkpoint_0{checkpoint}")
        for ours, theirs in zip(part, read, strict=True):
            jax.tree.map(np.testing.assert_array_equal, single_frames(ours), single_frames(theirs))


def test_the_path_through_tfds_load_gives_the_same_store(prepared, tmp_path):
    directory, _ = prepared
    assert cli.main(["data", "convert", str(directory / atari.RUN), str(tmp_path / "ours")]) == 0
    assert FrameStore(tmp_path / "ours").checksum == FrameStore(directory.parent / "store").checksum


def test_a_share_is_taken_of_every_split(prepared, tmp_path):
    directory, _ = prepared
    arguments = ["data", "convert", str(directory / atari.RUN), str(tmp_path / "store")]
    assert cli.main([*arguments, "--fraction", "0.5"]) == 0
    assert FrameStore(tmp_path / "store").info["splits"] == {"checkpoint_00": 1, "checkpoint_01": 1}


def test_frames_collected_here_train_through_the_same_path(episodes, tmp_path):
    written = [single_frames(e) for part in episodes for e in part]
    with_channel = [  # the layout of the data sets
        type(e)(e.observation[..., None], *(getattr(e, f) for f in list(vars(e))[1:])) for e in written
    ]
    rlds.write(tmp_path / "rlds", with_channel, name="breakout", metadata={"seed": 0})
    assert cli.main(["data", "convert", str(tmp_path / "rlds"), str(tmp_path / "store")]) == 0
    store = FrameStore(tmp_path / "store")
    sampler = StoreSampler(store, window=WINDOW, num_actions=4)
    batch = stack_frames(sampler.batch(jax.random.split(jax.random.key(0), 5)))
    assert batch.observation.shape == (5, WINDOW, 84, 84, 4)
    assert store.observation_shape == (84, 84, 4)


def test_rewards_are_clipped_and_the_closing_step_is_cleared(episodes):
    game = episodes[0][1]
    assert game.is_terminal[-1]
    doubled = type(game)(**(vars(game) | {"reward": game.reward * 5, "action": game.action + 1}))
    frames = single_frames(doubled)
    assert set(np.unique(frames.reward)) <= {-1.0, 0.0, 1.0}
    assert frames.reward.sum() == (game.reward > 0).sum()
    assert frames.discount[-3:].tolist() == [1, 0, 0]
    assert (frames.action[-1], frames.reward[-1]) == (0, 0)
    np.testing.assert_array_equal(frames.observation, game.observation[..., -1])
    assert frames.observation.base is None  # it does not keep the stacks that it was taken from
    with pytest.raises(ValueError, match=r"frames of bytes .* got float32 of the shape \[3\]"):
        single_frames(
            type(game)(**(vars(game) | {"observation": np.zeros((len(game.action), 3), np.float32)}))
        )


def test_planes_that_are_no_frames_are_refused(episodes, tmp_path, capsys):
    game = episodes[0][0]
    for observation in (game.observation[..., ::-1], game.observation[..., :2]):  # the newest first; too few
        with pytest.raises(ValueError, match=r"are neither single frames nor stacks of the last 4"):
            single_frames(dataclasses.replace(game, observation=observation))
    planes = np.random.default_rng(0).integers(0, 2, (len(game.action), 10, 10, 4)).astype(np.uint8)
    rlds.write(
        tmp_path / "rlds", [dataclasses.replace(game, observation=planes)], name="minatar", metadata={}
    )
    assert cli.main(["data", "convert", str(tmp_path / "rlds"), str(tmp_path / "store")]) == 1
    assert "observations of the shape [10, 10, 4] are neither" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_mistakes_are_one_sentence_and_lose_nothing(tmp_path, capsys):
    target = tmp_path / "store"
    target.mkdir()
    (target / "mine.txt").write_text("kept")
    assert cli.main(["data", "convert", str(tmp_path), str(target)]) == 1
    assert "exists and is no data set" in capsys.readouterr().err
    assert (target / "mine.txt").read_text() == "kept"
    assert cli.main(["data", "convert", str(tmp_path / "nowhere"), str(tmp_path / "new")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
