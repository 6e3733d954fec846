"""RL Unplugged's layout: its own builder and tfds.load against the reader and the store of this library."""

import dataclasses
import importlib.util
import pickle
import sys

import jax
import numpy as np
import pytest

from rosmo import cli
from rosmo.data import FrameStore, StoreSampler, rlds
from rosmo.data.atari import single_frames
from rosmo.data.stacking import stack_frames
from rosmo.runs.datasets import load_or_collect
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
    """Where TFDS's builders wrote the data sets; beside it is what `tfds.load` gave of them."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip('the builder of RL Unplugged needs TensorFlow: pip install "rosmo[tensorflow]"')
    directory = tmp_path_factory.mktemp("rlu")
    files = [[raw(e, c, i) for i, e in enumerate(part)] for c, part in enumerate(episodes)]
    with open(directory / "raw.pickle", "wb") as file:
        pickle.dump(files, file)
    assert atari.run_python(atari.BUILD, directory, atari.RUN, atari.WHOLE) == [True, 0, 0, 1]
    return directory / "tfds"


def loaded(prepared, split):
    """The steps of the episodes of a split, as `tfds.load` gave them."""
    count = len(list(prepared.parent.glob(f"loaded-{split}-*.npz")))
    return [dict(np.load(prepared.parent / f"loaded-{split}-{i}.npz")) for i in range(count)]


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
    assert cli.main(["data", "convert", str(prepared / atari.RUN), str(tmp_path / "store")]) == 0
    store = FrameStore(tmp_path / "store")
    assert store.info["splits"] == {"checkpoint_00": 2, "checkpoint_01": 1}
    found = jax.device_get(stack_frames(store.read(np.arange(store.num_starts), WINDOW)))
    episodes = [*loaded(prepared, "checkpoint_00"), *loaded(prepared, "checkpoint_01")]
    expected = [window for steps in episodes for window in stacked_windows(steps)]
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
    assert list(rlds.info(prepared / atari.RUN).splits) == ["checkpoint_00", "checkpoint_01"]
    for checkpoint, part in enumerate(episodes):
        read = rlds.read_episodes(prepared / atari.RUN, split=f"checkpoint_0{checkpoint}")
        for ours, theirs in zip(part, read, strict=True):
            jax.tree.map(np.testing.assert_array_equal, single_frames(ours), single_frames(theirs))


@pytest.mark.parametrize("name", [atari.RUN, atari.WHOLE])
def test_the_path_through_tfds_load_gives_the_same_store(prepared, tmp_path, name):
    assert cli.main(["data", "convert", str(prepared / name), str(tmp_path / "ours")]) == 0
    ours, theirs = FrameStore(tmp_path / "ours"), FrameStore(prepared.parent / f"store-{name.split('/')[0]}")
    assert ours.checksum == theirs.checksum
    assert ours.info["metadata"]["environment"] == theirs.info["metadata"]["environment"] == "atari/Breakout"


def test_shards_are_read_whole_and_in_the_order_of_tfds(prepared):
    assert len(list((prepared / atari.WHOLE).glob("*/*tfrecord*"))) == 2
    found = list(rlds.read_episodes(prepared / atari.WHOLE))
    assert len(found) == 3
    for ours, theirs in zip(found, loaded(prepared, "train"), strict=True):
        for field, values in theirs.items():
            np.testing.assert_array_equal(getattr(ours, field), values)


@pytest.mark.parametrize("name", [atari.RUN, atari.WHOLE])
def test_a_training_asks_to_convert_before_anything_is_decoded(prepared, tmp_path, monkeypatch, name):
    monkeypatch.setattr(rlds.reading, "_payloads", None)
    with pytest.raises(
        ValueError, match=rf"single frames, \[84, 84, 1\].* rosmo data convert .*{name} TARGET"
    ):
        load_or_collect("atari/Breakout", data=str(prepared / name), root=tmp_path)


def test_a_share_is_taken_of_every_split(prepared, tmp_path):
    arguments = ["data", "convert", str(prepared / atari.RUN), str(tmp_path / "store")]
    assert cli.main([*arguments, "--fraction", "0.5"]) == 0
    assert FrameStore(tmp_path / "store").info["splits"] == {"checkpoint_00": 1, "checkpoint_01": 1}


def test_frames_collected_here_train_through_the_same_path(episodes, tmp_path, monkeypatch):
    written = [single_frames(e) for part in episodes for e in part]
    with_channel = [  # the layout of the data sets
        type(e)(e.observation[..., None], *(getattr(e, f) for f in list(vars(e))[1:])) for e in written
    ]
    about = {"environment": "atari/Breakout", "seed": 3}
    rlds.write(tmp_path / "rlds", with_channel, name="breakout", metadata=about)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["data", "convert", str(tmp_path / "rlds"), "~/store"]) == 0
    store = FrameStore(tmp_path / "store")
    assert about.items() <= store.info["metadata"].items()
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


def test_the_discount_before_a_termination_is_0_though_its_source_leaves_that_out(episodes):
    game = episodes[0][1]
    assert game.is_terminal[-1]
    open_ended = dataclasses.replace(game, discount=np.ones_like(game.discount))
    assert single_frames(open_ended).discount[-3:].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("reward", np.inf, "a reward that is not finite"),
        ("reward", np.nan, "a reward that is not finite"),
        ("action", 17, "an action outside 0…5"),
    ],
)
def test_a_bad_step_is_named_as_its_source_has_it(episodes, tmp_path, capsys, field, value, fault):
    game = episodes[1][0]
    column = getattr(game, field).copy()
    column[7] = value
    games = [game] * 5 + [dataclasses.replace(game, **{field: column})]
    about = {"environment": "atari/Pong"}
    rlds.write(tmp_path / "rlds", games, name="pong", metadata=about)
    arguments = ["data", "convert", str(tmp_path / "rlds"), str(tmp_path / "store")]
    assert cli.main([*arguments, "--fraction", "0.34", "--seed", "2"]) == 1  # the second of the two it takes
    message = capsys.readouterr().err
    assert f"episode 5 of the split train of {tmp_path / 'rlds'}: step 7 has {fault}" in message
    assert not (tmp_path / "store").exists()


def test_an_error_shows_where_it_is_if_asked(tmp_path):
    with pytest.raises(FileNotFoundError):
        cli.main(["data", "convert", str(tmp_path / "nowhere"), str(tmp_path / "new"), "--debug"])


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
    assert cli.main(["data", "convert", "here", str(tmp_path / "new"), "--data-dir", "there"]) == 1
    assert "--data-dir goes with tfds:NAME" in capsys.readouterr().err
    assert cli.main(["data", "convert", "tfds:rlu_atari", str(tmp_path / "new"), "--fraction", "2"]) == 1
    assert "fraction must be a finite number above 0 and at most 1, got 2.0" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_data_set_is_not_replaced_by_its_own_store_nor_with_what_lies_beside_it(episodes, tmp_path, capsys):
    source, target = tmp_path / "rlds", tmp_path / "store"
    rlds.write(source, episodes[1], name="breakout", metadata={})
    convert = ["data", "convert", "--overwrite"]
    assert cli.main([*convert, str(source), str(source)]) == 1
    assert "is what is to be converted: choose another directory" in capsys.readouterr().err
    assert len(rlds.read(source).action) == sum(len(episode.action) for episode in episodes[1])
    assert cli.main([*convert, str(source), str(target)]) == 0
    assert cli.main([*convert, str(source), str(target)]) == 0
    assert cli.main([*convert, str(target), str(tmp_path / "again")]) == 1
    assert "is a store already: train with" in capsys.readouterr().err
    (target / "runs").mkdir()
    (target / "notes.json").write_text("kept")
    assert cli.main([*convert, str(source), str(target)]) == 1
    assert (
        "more in it than a data set, which replacing it would delete (notes.json, runs)"
        in capsys.readouterr().err
    )
    assert (target / "notes.json").read_text() == "kept"


def test_a_shard_that_is_missing_is_seen_before_the_first_is_decoded(episodes, tmp_path):
    rlds.write(tmp_path / "rlds", episodes[1], name="breakout", metadata={})
    next((tmp_path / "rlds").glob("*-of-*")).unlink()
    with pytest.raises(FileNotFoundError, match=r"the shard .*-of-00001 is missing: restore it"):
        rlds.read_episodes(tmp_path / "rlds")


def test_every_split_is_known_before_the_first_is_converted(episodes, tmp_path, monkeypatch, capsys):
    rlds.write(tmp_path / "rlds", episodes[1], name="breakout", metadata={})
    monkeypatch.setattr(rlds.reading, "_payloads", None)
    splits = ["--split", "train", "--split", "tests"]
    assert cli.main(["data", "convert", str(tmp_path / "rlds"), str(tmp_path / "store"), *splits]) == 1
    assert "there is no split 'tests'" in capsys.readouterr().err


def test_what_compresses_frames_is_asked_for_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert cli.main(["data", "convert", "nowhere", str(tmp_path / "store")]) == 1
    assert 'needs zstandard: pip install "rosmo[atari]"' in capsys.readouterr().err
