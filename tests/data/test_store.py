"""The store of frames: it draws what the device draws, trains as memory does, and names its damage."""

import dataclasses
import functools
import json
import subprocess
import sys
import tracemalloc
import zlib

import jax
import numpy as np
import pytest
import zstandard

from rosmo import Learner, agents
from rosmo.data import FrameStore, StoreSampler, window_sampler, write_store
from rosmo.data.stacking import stack_frames
from rosmo.data.store import reading
from rosmo.data.store.base import INDEX, STEP
from rosmo.data.store.description import checksum_of
from rosmo.runs.datasets import load_or_collect
from tests.learner.test_learner import KEY, assert_close, quick_adamw
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


def described(data, **changes):
    """A description with other values and the checksum that goes with them."""
    info = json.loads(data) | changes
    return json.dumps(info | {"checksum": checksum_of(info)}).encode()


def with_table(directory, target, name, change):
    """A store with another table, and the checksum that goes with it."""
    copy = damaged(directory, target, name, lambda data: change(bytearray(data)))
    crc = zlib.crc32((copy / name).read_bytes())
    info = (copy / "store.json").read_bytes()
    tables = json.loads(info)["tables"] | {name: crc}
    (copy / "store.json").write_bytes(described(info, tables=tables))
    return copy


@pytest.mark.parametrize(("field", "value"), [("metadata", {"environment": "x"}), ("num_actions", 9)])
def test_a_changed_description_is_noticed(directory, tmp_path, field, value):
    change = lambda data: json.dumps(json.loads(data) | {field: value}).encode()  # noqa: E731
    with pytest.raises(ValueError, match=r"a/store.json is not as it was written .*: restore it, or convert"):
        FrameStore(damaged(directory, tmp_path / "a", "store.json", change))


def test_a_store_of_the_version_before_opens(directory, tmp_path):
    def older(data):
        info = json.loads(data) | {"version": 2}
        del info["checksum"]
        return json.dumps(info).encode()

    store = FrameStore(damaged(directory, tmp_path / "a", "store.json", older))
    assert store.checksum == FrameStore(directory).checksum


@pytest.mark.parametrize(
    ("field", "step", "value", "message"),
    [
        ("is_first", 0, False, r"is_first in steps.bin and the episodes of episodes.bin differ \(step 0\)"),
        ("is_first", 20, True, r"is_first in .* differ \(step 20\)"),
        ("is_last", 20, True, r"is_last in .* differ \(step 20\)"),
        ("is_last", sum(LENGTHS) - 1, False, r"is_last in .* differ \(step 105\)"),
        ("reward", 20, np.nan, "step 20 has a reward that is not finite"),
        ("action", 20, ACTIONS, "step 20 has an action outside 0…2"),
    ],
)
def test_steps_that_cannot_be_trained_on_are_named(
    directory, tmp_path, field, step, value, message, monkeypatch
):
    def change(data):
        np.frombuffer(data, STEP)[field][step] = value
        return bytes(data)

    wrong = with_table(directory, tmp_path / "a", "steps.bin", change)
    for block in (reading._BLOCK, 16):
        monkeypatch.setattr(reading, "_BLOCK", block)
        with pytest.raises(ValueError, match=rf"/a: {message}"):
            FrameStore(wrong)


@pytest.mark.parametrize(
    "begins", [(0, 11, 9), (0, 9, 12), (1, 9, 11), (0, 9, 9), (0, 9, 10**9), (-1, 9, 11)]
)
def test_episodes_that_are_not_those_of_the_steps_are_refused(directory, tmp_path, begins):
    def change(data):
        np.frombuffer(data, INDEX)[:3] = begins
        return bytes(data)

    with pytest.raises(
        ValueError, match=r"/a: is_first in steps.bin and the episodes of episodes.bin differ"
    ):
        FrameStore(with_table(directory, tmp_path / "a", "episodes.bin", change))


@pytest.mark.parametrize(("place", "value"), [(0, 1), (1, -1), (2, 0), (-1, 2**40)])
def test_offsets_that_divide_other_frames_are_refused(directory, tmp_path, place, value):
    def change(data):
        np.frombuffer(data, INDEX)[place] = value
        return bytes(data)

    with pytest.raises(ValueError, match=r"/a: offsets.bin does not divide frames.zst into chunks"):
        FrameStore(with_table(directory, tmp_path / "a", "offsets.bin", change))


@pytest.mark.parametrize(
    ("frames", "more", "message"),
    [
        (3, b"", "it holds 105 bytes where 16 frames have 560"),
        (17, b"", "it holds 595 bytes where 16 frames have 560"),
        (2**20, b"", "it holds 36700160 bytes where 16 frames have 560"),
        (16, b"more", "4 bytes of unused data"),
        (None, b"", f"it holds {zstandard.CONTENTSIZE_UNKNOWN} bytes where"),
    ],
)
def test_a_chunk_holds_its_frames_and_no_more(directory, tmp_path, frames, more, message):
    """It says what it would take in memory, and that is looked at before it does."""
    offsets = np.fromfile(directory / "offsets.bin", INDEX)
    whole = (directory / "frames.zst").read_bytes()
    pixels = bytes((frames or 2**20) * SIZE[0] * SIZE[1])
    chunk = zstandard.ZstdCompressor(write_content_size=frames is not None).compress(pixels) + more
    data = chunk + whole[offsets[1] :]
    moved = np.append(0, offsets[1:] + len(chunk) - offsets[1])
    copy = with_table(directory, tmp_path / "a", "offsets.bin", lambda _: moved.tobytes())
    (copy / "frames.zst").write_bytes(data)
    info = (copy / "store.json").read_bytes()
    (copy / "store.json").write_bytes(described(info, bytes=len(data)))
    store = FrameStore(copy)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"chunk 0 of .*a/frames.zst is damaged \(.*{message}"):
            store.read(np.arange(1), WINDOW)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_rewards_on_closing_steps_are_warned_of(directory, tmp_path):
    def change(data):
        np.frombuffer(data, STEP)["reward"][[8, 105]] = 1
        return bytes(data)

    lossy = with_table(directory, tmp_path / "a", "steps.bin", change)
    with pytest.warns(
        UserWarning, match=r"/a has a reward other than 0 on 2 of its 7 closing .* on step 8, "
    ):
        FrameStore(lossy)


def test_a_link_where_a_writer_works_is_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    (tmp_path / ".s.incomplete").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError, match=r"/\.s\.incomplete is a symbolic link"):
        write_store(tmp_path / "s", {"train": frame_episodes()}, stack=STACK, metadata={})
    assert (tmp_path / "mine" / "thesis.tex").exists()


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
            lambda data, v=version: data.replace(b'"version": 3', b'"version": ' + v),
        )
        with pytest.raises(ValueError, match=r"has version \d, .* reads 2 and 3: convert the data again"):
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
    change = lambda data: described(data, **{key: value})  # noqa: E731
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
    masked = dataclasses.replace(episodes[0], invalid_actions=np.zeros((9, ACTIONS), bool))
    with pytest.raises(ValueError, match="episode 0: a store of frames has no invalid_actions"):
        write(masked)
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
