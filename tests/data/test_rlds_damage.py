"""Data sets on disk that cannot be read."""

import json

import numpy as np
import pytest

from rosmo.data import rlds
from rosmo.data.rlds import tfrecord, writing
from tests.recorded import FORMATS, assert_equal, episode, foreign, joined, write


def test_directories_without_a_data_set_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no directory .*/missing"):
        rlds.read(tmp_path / "missing")
    with pytest.raises(ValueError, match="is empty: write a data set there first"):
        rlds.read(tmp_path)
    (tmp_path / "notes.txt").write_text("no data")
    with pytest.raises(ValueError, match="is no TFDS data set"):
        rlds.read_metadata(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=f"{tmp_path}/dataset_info.json is damaged .*: restore it"):
        rlds.read(tmp_path)


def test_several_versions_want_a_choice(tmp_path, episodes):
    write(tmp_path / "d" / "config" / "1.0.0", episodes)
    assert len(rlds.read(tmp_path).action) == len(rlds.read(tmp_path / "d").action) == 26
    write(tmp_path / "d" / "2.0.0", episodes[:1])
    with pytest.raises(ValueError, match=r"several data sets in .*d/2\.0\.0, .*d/config/1\.0\.0"):
        rlds.read(tmp_path)


def test_an_unknown_split_lists_those_there_are(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    for split in ("test", "train[", "train[:200]x"):
        with pytest.raises(ValueError, match=r"there is no split .* there are: train"):
            rlds.read(tmp_path / "d", split=split)


def test_a_split_without_episodes_is_refused(tmp_path, episodes):
    with pytest.raises(ValueError, match=r"split 'train' of .* has no episodes"):
        rlds.read(foreign(tmp_path / "e", []))
    write(tmp_path / "d", episodes)
    for split in ("train[:0]", "train[80%:20%]"):
        with pytest.raises(ValueError, match="has no episodes"):
            rlds.read(tmp_path / "d", split=split)
    with pytest.raises(ValueError, match="have no steps"):
        rlds.read(foreign(tmp_path / "f", [[]]))


def damage(data, how):
    middle = len(data) // 2
    return {
        "half": data[:middle],
        "nothing": b"",
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "garbage": bytes(len(data)),
        "cut": data[:-3],
    }[how]


@pytest.mark.parametrize("how", ["half", "nothing", "flipped", "garbage", "cut", "missing"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_damaged_shard_is_named(tmp_path, file_format, how, monkeypatch):
    monkeypatch.setattr(writing, "_SHARD_BYTES", 150_000)
    rng = np.random.default_rng(6)
    noise = [episode(rng, 99, shape=(8, 8, 8), dtype="float64") for _ in range(4)]  # does not compress
    write(tmp_path / "d", noise, file_format=file_format)
    shards = sorted((tmp_path / "d").glob("tiny-*"))
    assert len(shards) == 4
    if how == "missing":
        shards[1].unlink()
    else:
        shards[1].write_bytes(damage(shards[1].read_bytes(), how))
    with pytest.raises((ValueError, FileNotFoundError), match=f"{shards[1].name} .*(restore|rewrite)"):
        rlds.read(tmp_path / "d")
    assert_equal(rlds.read(tmp_path / "d", split="train[2:]"), joined(noise[2:]))


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_shard_with_other_records_is_named(tmp_path, episodes, file_format):
    write(tmp_path / "d", episodes, file_format=file_format)
    write(tmp_path / "e", episodes[:2], file_format=file_format)
    (shard,) = (tmp_path / "e").glob("tiny-*")
    (target,) = (tmp_path / "d").glob("tiny-*")
    shard.replace(target)
    with pytest.raises(ValueError, match=f"{target.name} holds 2 episodes instead of 5"):
        rlds.read(tmp_path / "d")


def test_a_record_that_is_no_episode_is_named(tmp_path, episodes):
    write(tmp_path / "d", episodes[:1], file_format="tfrecord")
    (shard,) = (tmp_path / "d").glob("tiny-*")
    shard.unlink()
    writer = tfrecord.Writer(shard)
    writer.write(b"anything")
    writer.close()
    with pytest.raises(ValueError, match=f"episode 0 of .*{shard.name} cannot be decoded"):
        rlds.read(tmp_path / "d")


def test_other_file_formats_are_refused(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    info = json.loads((tmp_path / "d" / "dataset_info.json").read_text())
    (tmp_path / "d" / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "riegeli"}))
    with pytest.raises(ValueError, match="is stored as riegeli: only array_record and tfrecord"):
        rlds.read(tmp_path / "d")
