"""The store of frames: it draws what the device draws, trains as memory does, and names its damage."""

import dataclasses
import functools
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from rosmo import Learner, agents
from rosmo.data import FrameStore, StoreSampler, window_sampler, write_store
from rosmo.frames import stack_frames
from rosmo.runs.datasets import load_or_collect
from tests.test_learner import KEY, assert_close, quick_adamw
from tests.windows import random_steps, small_model

SIZE, STACK, WINDOW, ACTIONS = (7, 5), 4, 6, 3
LENGTHS = (9, 2, 30, 3, 17, 40, 5)


def frame_episodes(seed=0):
    rng = np.random.default_rng(seed)
    for i, length in enumerate(LENGTHS):
        steps = random_steps(rng, [length], np.array([i % 2 == 0]))
        yield dataclasses.replace(
            steps,
            observation=rng.integers(0, 255, (length, *SIZE)).astype(np.uint8),
            is_first=np.arange(length) == 0,
        )


def stacked(episode):
    """An episode with its frames stacked, the slow and obvious way."""
    frames = np.concatenate([np.zeros((STACK - 1, *SIZE), np.uint8), episode.observation])
    stacks = [np.stack(frames[t : t + STACK], axis=-1) for t in range(len(episode.action))]
    return dataclasses.replace(episode, observation=np.stack(stacks))


def joined(episodes):
    return jax.tree.map(lambda *x: np.concatenate(x), *episodes)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store") / "s"
    episodes = list(frame_episodes())
    splits = {"early": episodes[:3], "late": iter(episodes[3:])}
    write_store(directory, splits, stack=STACK, metadata={"game": "none"})
    return directory


def observed(batch):
    """Marks the steps up to the end of a window's first episode: what targets may read."""
    is_last = np.asarray(batch.is_last)
    return np.cumsum(is_last, axis=1) - is_last == 0


def test_the_store_draws_the_windows_that_the_device_draws(directory):
    steps = joined(map(stacked, frame_episodes()))
    keys = jax.random.split(KEY, 200)
    device = jax.vmap(window_sampler(steps, window=WINDOW, num_actions=ACTIONS).sample)(keys)
    store = stack_frames(StoreSampler(FrameStore(directory), window=WINDOW, num_actions=ACTIONS).batch(keys))
    for field in ("action", "reward", "discount", "is_first", "is_last", "is_terminal"):
        np.testing.assert_array_equal(getattr(store, field), getattr(device, field))
    here = observed(device)
    np.testing.assert_array_equal(np.asarray(store.observation)[here], np.asarray(device.observation)[here])
    assert not here.all()


def test_past_the_last_step_of_all_it_stands_still(directory):
    store = FrameStore(directory)
    frames = store.read(np.array([store.num_starts - 1]), WINDOW).observation[0]
    last = list(frame_episodes())[-1].observation
    np.testing.assert_array_equal(frames[STACK - 1 :], last[[-2, *[-1] * (WINDOW - 1)]])


def test_windows_begin_at_every_step_with_an_action_and_at_no_other(directory):
    store = FrameStore(directory)
    start, first = store.starts(np.arange(store.num_starts))
    steps = joined(frame_episodes())
    np.testing.assert_array_equal(start, np.flatnonzero(~steps.is_last))
    assert steps.is_first[first].all()
    assert ((start >= first) & (start - first < max(LENGTHS))).all()


def test_rows_of_a_batch_are_read_alone_and_from_any_step_on(directory):
    sampler = StoreSampler(FrameStore(directory), window=WINDOW, num_actions=ACTIONS)
    keys_of_step = lambda step: jax.random.split(jax.random.fold_in(KEY, step), 8)  # noqa: E731
    whole = list(sampler.batches(keys_of_step, 0, 9))
    assert len(whole) == 9
    assert_close(list(sampler.batches(keys_of_step, 7, 2)), whole[7:])
    own = sampler.batch(keys_of_step(4)[2:5])  # what one host of several reads
    assert_close(own, jax.tree.map(lambda x: x[2:5], whole[4]))


def test_a_learner_trains_alike_on_the_store_and_on_stacked_steps_in_memory(directory):
    model = functools.partial(small_model, observation_shape=(*SIZE, STACK))
    agent = agents.get("bc")(model, positions=4)
    learner = Learner(agent, quick_adamw(), batch_size=4, cache_targets=False)
    steps = joined(map(stacked, frame_episodes()))
    source = window_sampler(steps, window=agent.window, num_actions=ACTIONS)
    sampler = StoreSampler(FrameStore(directory), window=agent.window, num_actions=ACTIONS)
    memory, disk = learner.init(KEY), learner.init(KEY)
    key = jax.device_get(memory.key)
    for step in range(3):
        keys = learner.draw_keys(key, step)
        memory, _ = learner.update(memory, jax.vmap(source.sample)(keys))
        disk, _ = learner.update(disk, sampler.batch(keys))
    assert_close(disk, memory, atol=1e-6)


def test_a_share_of_every_split_is_part_of_a_larger_one(directory):
    whole, half, all_of_it = (FrameStore(directory, fraction=f, seed=3) for f in (1.0, 0.5, 0.9))
    starts = [set(s.starts(np.arange(s.num_starts))[1].tolist()) for s in (half, all_of_it, whole)]
    assert starts[0] <= starts[1] <= starts[2]
    assert [len(s) for s in starts] == [4, 7, 7]  # 2 of 3 and 2 of 4
    assert sum(first < sum(LENGTHS[:3]) for first in starts[0]) == 2
    assert half.checksum.startswith("4 episodes, ")
    assert half.checksum != FrameStore(directory, fraction=0.5, seed=4).checksum
    assert whole.checksum == FrameStore(directory).checksum


def damaged(directory, target, name, change):
    target.mkdir()
    for path in directory.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    (target / name).write_bytes(change((target / name).read_bytes()))
    return target


def test_damage_is_named(directory, tmp_path):
    short = damaged(directory, tmp_path / "a", "frames.zst", lambda data: data[:-1])
    with pytest.raises(ValueError, match=r"a/frames.zst is missing, cut short or damaged: convert the data"):
        FrameStore(short)
    (short / "frames.zst").unlink()
    with pytest.raises(ValueError, match=r"a/frames.zst is missing, cut short or damaged: convert the data"):
        FrameStore(short)
    with pytest.raises(ValueError, match=r"b/steps.bin is missing, cut short or damaged"):
        FrameStore(damaged(directory, tmp_path / "b", "steps.bin", lambda data: data + b"0"))
    flipped = damaged(
        directory, tmp_path / "c", "frames.zst", lambda d: d[:500] + bytes([d[500] ^ 1]) + d[501:]
    )
    store = FrameStore(flipped)
    with pytest.raises(ValueError, match=r"chunk 0 of .*frames.zst is damaged"):
        store.read(np.arange(store.num_starts), WINDOW)
    for version in (b"1", b"9"):
        other = damaged(
            directory,
            tmp_path / version.decode(),
            "store.json",
            lambda data, v=version: data.replace(b'"version": 2', b'"version": ' + v),
        )
        with pytest.raises(ValueError, match=r"has version \d, .* reads 2: convert the data again"):
            FrameStore(other)
    with pytest.raises(ValueError, match=r"is no store of frames .* rosmo data convert"):
        FrameStore(tmp_path)


@pytest.mark.parametrize("name", ["steps.bin", "episodes.bin", "offsets.bin"])
@pytest.mark.parametrize("place", [0, 7, -1])
def test_a_flipped_bit_in_a_table_is_seen_when_it_is_opened(directory, tmp_path, name, place):
    def flip(data):
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed)

    with pytest.raises(ValueError, match=rf"a/{name} is missing, cut short or damaged: convert the data"):
        FrameStore(damaged(directory, tmp_path / "a", name, flip))


def test_a_description_that_is_damaged_or_incomplete_is_named(directory, tmp_path):
    cut = damaged(directory, tmp_path / "cut", "store.json", lambda data: data[:50])
    with pytest.raises(ValueError, match=r"cut/store.json is damaged \(.*\): convert the data again"):
        FrameStore(cut)
    for key in json.loads((directory / "store.json").read_text()).keys() - {"version"}:
        without = damaged(
            directory,
            tmp_path / key,
            "store.json",
            lambda data, key=key: json.dumps(
                {k: v for k, v in json.loads(data).items() if k != key}
            ).encode(),
        )
        with pytest.raises(ValueError, match=rf"{key}/store.json has no {key}: convert the data again"):
            FrameStore(without)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("splits", {"early": 3, "late": 9}),
        ("splits", {"early": 3}),
        ("splits", {"early": 0, "late": "4"}),
        ("chunk", 0),
        ("steps", "many"),
        ("frame", [7, 5, 1]),
        ("metadata", None),
    ],
)
def test_a_value_that_no_store_has_is_named(directory, tmp_path, key, value):
    change = lambda data: json.dumps(json.loads(data) | {key: value}).encode()  # noqa: E731
    with pytest.raises(ValueError, match=rf"store.json is damaged \({key}\): convert the data again"):
        FrameStore(damaged(directory, tmp_path / "a", "store.json", change))


def test_a_store_without_its_description_is_a_damaged_store(directory, tmp_path):
    damaged(directory, tmp_path / "a", "store.json", bytes)
    (tmp_path / "a" / "store.json").unlink()
    with pytest.raises(ValueError, match=r"a/store.json is damaged \(.*No such file.*\): convert the data"):
        load_or_collect("catch", data=str(tmp_path / "a"), root=tmp_path)


def test_what_does_not_belong_is_refused(directory, tmp_path):
    episodes = list(frame_episodes())
    write = lambda *e, **s: write_store(tmp_path / "s", {"train": e}, stack=4, metadata={}, **s)  # noqa: E731
    with pytest.raises(ValueError, match="there is no episode to write"):
        write()
    with pytest.raises(ValueError, match=r"episode 1 has frames of the shape \[2, 2\], unlike the first"):
        write(episodes[0], dataclasses.replace(episodes[1], observation=np.zeros((2, 2, 2), np.uint8)))
    with pytest.raises(ValueError, match=r"episode 0: step 0 has a reward that is not finite"):
        write(dataclasses.replace(episodes[0], reward=np.full(9, np.nan, np.float32)))
    assert not (tmp_path / "s").exists()
    write(episodes[0])
    with pytest.raises(FileExistsError, match="--overwrite"):
        write(episodes[1])
    write(episodes[2], overwrite=True)
    assert FrameStore(tmp_path / "s").num_starts == LENGTHS[2] - 1
    with pytest.raises(ValueError, match=r"has an action outside 0…1: it has 3 actions"):
        StoreSampler(FrameStore(directory), window=WINDOW, num_actions=2)
    assert json.loads((directory / "store.json").read_text())["metadata"] == {"game": "none"}


def test_windows_with_as_many_observations_as_steps_stay_as_they_are():
    steps = random_steps(np.random.default_rng(0), [4], np.array([True]))
    windows = jax.tree.map(lambda x: x[None], steps)
    assert stack_frames(windows) is windows


def test_a_full_disk_is_reported_as_such(tmp_path, full_disk):
    """The second failure, of closing what could not be written, does not hide the first."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 84, 84), np.uint8)  # which does not compress
    episode = dataclasses.replace(list(frame_episodes())[5], observation=noise)
    full_disk()
    with pytest.raises(OSError, match=r"could not write the data set .*/s \(.*File too large"):
        write_store(tmp_path / "s", {"train": [episode]}, stack=4, metadata={})
    assert not list(tmp_path.iterdir())


def test_a_script_that_ends_with_an_open_store_says_nothing(directory):
    code = f"from rosmo.data import FrameStore; store = FrameStore({str(directory)!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
