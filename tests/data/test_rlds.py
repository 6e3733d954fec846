"""Data sets on disk: what was written is read, all of it or a share of its episodes."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import rosmo
from rosmo.data import rlds, window_sampler
from rosmo.data.rlds import writing
from tests.recorded import DTYPES, FORMATS, METADATA, assert_equal, episode, joined, run, write


@pytest.mark.parametrize("file_format", FORMATS)
def test_what_was_written_is_read(tmp_path, episodes, file_format):
    write(tmp_path / "a" / "b", episodes, file_format=file_format)
    steps = rlds.read(tmp_path / "a" / "b")
    assert_equal(steps, joined(episodes))
    assert_equal(rlds.read(tmp_path / "a" / "b", split="train[1:4]"), joined(episodes[1:4]))
    assert rlds.read_metadata(tmp_path / "a" / "b") == METADATA
    assert os.listdir(tmp_path / "a") == ["b"]


@pytest.mark.parametrize("dtype", [*DTYPES, ">f8"])
@pytest.mark.parametrize("shape", [(), (5,), (4, 3, 1)])
@pytest.mark.parametrize("file_format", FORMATS)
def test_observations_of_every_kind_come_back_exactly(tmp_path, file_format, shape, dtype):
    rng = np.random.default_rng(1)
    written = [episode(rng, length, shape=shape, dtype=dtype) for length in (2, 5)]
    write(tmp_path / "d", written, file_format=file_format)
    expected = joined(written)
    expected["observation"] = expected["observation"].astype(np.dtype(dtype).newbyteorder("="))
    assert_equal(rlds.read(tmp_path / "d"), expected)


def test_values_become_the_types_of_a_trajectory(tmp_path, episodes):
    wide = [
        dataclasses.replace(e, action=e.action.astype(np.int64), reward=e.reward.astype(np.float64))
        for e in episodes
    ]
    write(tmp_path / "d", wide)
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes))


@pytest.mark.parametrize("file_format", FORMATS)
def test_many_shards_are_read_in_order(tmp_path, episodes, file_format, monkeypatch):
    monkeypatch.setattr(writing, "_SHARD_BYTES", 1)
    write(tmp_path / "d", iter(episodes), file_format=file_format)
    shards = sorted(path.name for path in (tmp_path / "d").glob("tiny-*"))
    assert shards == [f"tiny-train.{file_format}-0000{i}-of-00005" for i in range(5)]
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes))
    assert_equal(rlds.read(tmp_path / "d", split="train[1:4]"), joined(episodes[1:4]))


def test_the_steps_fit_the_sampler(tmp_path):
    rng = np.random.default_rng(2)
    write(tmp_path / "d", [episode(rng, 3), episode(rng, 5, terminal=False)])
    sampler = window_sampler(rlds.read(tmp_path / "d"), window=3, num_actions=4)
    assert len(sampler.starts) == 8


def test_nothing_here_imports_tensorflow(tmp_path):
    script = """
import sys, json, numpy as np
from rosmo import Trajectory
from rosmo.data import rlds
step = np.arange(4)
steps = Trajectory(np.ones((4, 2, 2), np.uint8), step.astype(np.int32), np.ones(4, np.float32),
                   np.ones(4, np.float32), step == 0, step == 3, step == 3)
for file_format in ("array_record", "tfrecord"):
    directory = f"{sys.argv[1]}/{file_format}"
    rlds.write(directory, [steps], name="tiny", metadata={"seed": 1}, file_format=file_format)
    assert rlds.read(directory).action.tolist() == [0, 1, 2, 3]
    assert rlds.read_metadata(directory) == {"seed": 1}
print(json.dumps("tensorflow" in sys.modules))
"""
    assert (
        run(script, tmp_path, env=os.environ | {"PYTHONPATH": str(Path(rosmo.__file__).parents[1])}) is False
    )


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_fraction_keeps_whole_episodes_in_order(tmp_path, file_format, monkeypatch):
    monkeypatch.setattr(writing, "_SHARD_BYTES", 2000)
    rng = np.random.default_rng(4)
    episodes = [dataclasses.replace(episode(rng, 2), reward=np.full(3, i, np.float32)) for i in range(20)]
    write(tmp_path / "d", episodes, file_format=file_format)
    previous: set[float] = set()
    for fraction, count in ((0.001, 1), (0.1, 2), (0.33, 7), (0.5, 10), (1.0, 20)):
        steps = rlds.read(tmp_path / "d", fraction=fraction, seed=5)
        ids = steps.reward[::3]
        assert len(ids) == count
        assert (np.diff(ids) > 0).all()
        assert_equal(steps, joined([episodes[int(i)] for i in ids]))
        assert previous < set(ids.tolist())
        previous = set(ids.tolist())
    halves = [tuple(rlds.read(tmp_path / "d", fraction=0.5, seed=seed).reward) for seed in range(4)]
    assert len(set(halves)) == 4


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_a_fraction_outside_its_range_is_refused(tmp_path, episodes, fraction):
    write(tmp_path / "d", episodes)
    with pytest.raises(ValueError, match="fraction must be a finite number above 0 and at most 1"):
        rlds.read(tmp_path / "d", fraction=fraction)
