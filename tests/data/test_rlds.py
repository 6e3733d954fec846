"""Data sets on disk, against TFDS itself: it opens ours, and we open what it wrote."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow_datasets as tfds

import rosmo
from rosmo import Trajectory
from rosmo.data import rlds, window_sampler
from rosmo.data.rlds import tfrecord, writing

FORMATS = ("array_record", "tfrecord")
METADATA = {"environment": "catch", "noise": 0.1, "seed": 2**40, "greedy": True}
DTYPES = ("bool", "int8", "int64", "uint8", "uint32", "float16", "float32", "float64")


def episode(rng, length, *, terminal=True, shape=(3, 2), dtype="float32", masks=False):
    """An episode of `length` actions and its closing step."""
    step = np.arange(length + 1)
    last = step == length
    return Trajectory(
        observation=(100 * rng.random((length + 1, *shape)) - 50 * (dtype[0] in "if")).astype(dtype),
        action=rng.integers(0, 4, length + 1).astype(np.int32),
        reward=rng.normal(size=length + 1).astype(np.float32),
        discount=rng.random(length + 1).astype(np.float32),
        is_first=step == 0,
        is_last=last,
        is_terminal=last & terminal,
        invalid_actions=rng.random((length + 1, 4)) < 0.5 if masks else None,
    )


@pytest.fixture
def episodes():
    rng = np.random.default_rng(0)
    return [episode(rng, length, terminal=length % 2 == 0, masks=True) for length in (4, 1, 7, 3, 6)]


def write(directory, episodes, **settings):
    rlds.write(directory, episodes, **({"name": "tiny", "metadata": METADATA} | settings))


def joined(episodes):
    fields = [field for field, value in vars(episodes[0]).items() if value is not None]
    return {field: np.concatenate([getattr(e, field) for e in episodes]) for field in fields}


def assert_equal(steps, expected):
    found = {field: value for field, value in vars(steps).items() if value is not None}
    assert found.keys() == expected.keys()
    for field, value in found.items():
        assert value.dtype == expected[field].dtype, field
        np.testing.assert_array_equal(value, expected[field], err_msg=field)


def run(script, *arguments, **settings):
    """Runs a script in a process of its own, outside the repository, and returns what it prints as JSON."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **settings)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


# Round trips


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


# TFDS opens ours


def test_plain_tfds_opens_array_records(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    script = """
import sys, json
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(sys.argv[1])
source = builder.as_data_source(split="train")
episodes = [{"actions": [int(step["action"]) for step in e["steps"]],
             "observation": next(iter(e["steps"]))["observation"].tolist(),
             "masks": [step["invalid_actions"].tolist() for step in e["steps"]],
             **{key: e[key] for key in ("episode_id", "episode_return", "seed", "greedy")},
             "noise": float(e["noise"]), "environment": e["environment"].decode()} for e in source]
modules = [name for name in ("rosmo", "tensorflow") if name in sys.modules]
print(json.dumps([episodes, dict(builder.info.metadata.items()), builder.info.name, modules]))
"""
    found, metadata, name, modules = run(script, tmp_path / "d", cwd=tmp_path)
    assert (metadata, name, modules) == (METADATA, "tiny", [])
    assert len(found) == len(episodes)
    for i, (e, f) in enumerate(zip(episodes, found, strict=True)):
        assert f["actions"] == e.action.tolist()
        assert f["observation"] == e.observation[0].tolist()
        assert f["masks"] == e.invalid_actions.tolist()
        assert f["episode_id"] == i
        assert f["episode_return"] == pytest.approx(e.reward[:-1].sum())
        assert {key: f[key] for key in METADATA} == METADATA


TENSORFLOW = """
import sys, json
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.rlds import rlds_base

ours, theirs = sys.argv[1:]
found = {}
for path in tf.io.gfile.listdir(ours):
    dataset = tfds.builder_from_directory(f"{ours}/{path}").as_dataset(split="train")
    for e in dataset.take(1):
        steps = list(e["steps"].as_numpy_iterator())
        found[path] = {
            "observation": np.stack([s["observation"] for s in steps]).astype(np.float64).tolist(),
            "dtype": str(steps[0]["observation"].dtype),
            "action": [int(s["action"]) for s in steps],
            "reward": [float(s["reward"]) for s in steps],
            "is_last": [bool(s["is_last"]) for s in steps],
            "metadata": {"environment": e["environment"].numpy().decode(), "noise": float(e["noise"]),
                         "seed": int(e["seed"]), "greedy": bool(e["greedy"])},
        }

class Theirs(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("2.1.0")
    def _info(self):
        return rlds_base.build_info(rlds_base.DatasetConfig(
            name="any", observation_info=tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
            action_info=tf.int64, reward_info=tf.float32, discount_info=tf.float32,
            episode_metadata_info={"episode_id": tf.int64}), self)
    def _split_generators(self, manager):
        return {"train": self._generate_examples(0, 6), "test": self._generate_examples(6, 8)}
    def _generate_examples(self, first, end):
        for i in range(first, end):
            yield i, {"episode_id": i, "steps": [
                {"observation": np.full((8, 8, 1), 10 * i + t, np.uint8), "action": t, "reward": float(i),
                 "discount": float(t < 2), "is_first": t == 0, "is_last": t == 3, "is_terminal": t == 3}
                for t in range(4)]}

builder = Theirs(data_dir=theirs)
builder.download_and_prepare()
order = {split: [int(e["episode_id"]) for e in builder.as_dataset(split=split)]
         for split in ("train", "test")}
print(json.dumps([found, order, "rosmo" in sys.modules]))
"""


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory):
    """One process with TensorFlow, which takes long to import: it opens ours and writes its own."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    rng = np.random.default_rng(3)
    written = {}
    for dtype in DTYPES:
        for shape in ((3,), (4, 3, 1)):
            path = f"{dtype}-{len(shape)}"
            written[path] = episode(rng, 3, dtype=dtype, shape=shape)
            write(ours / path, [written[path]], file_format="tfrecord")
    found, order, imported = run(
        TENSORFLOW, ours, theirs, cwd=ours, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    assert not imported
    return written, found, theirs, order


def test_plain_tfds_with_tensorflow_opens_tfrecords(tensorflow):
    written, found, _, _ = tensorflow
    assert found.keys() == written.keys()
    for path, e in written.items():
        assert found[path]["dtype"] == e.observation.dtype.name
        assert found[path]["observation"] == e.observation.astype(np.float64).tolist()
        for field in ("action", "reward", "is_last"):
            assert found[path][field] == getattr(e, field).tolist()
        assert found[path]["metadata"] == METADATA


# We open theirs


@pytest.mark.parametrize("below", ["", "theirs", "theirs/2.1.0"])
def test_a_data_set_of_a_tfds_builder_is_read(tensorflow, below):
    _, _, directory, order = tensorflow
    for split in ("train", "test"):
        steps = rlds.read(directory / below, split=split)
        ids = np.repeat(order[split], 4)
        t = np.tile(np.arange(4), len(order[split]))
        np.testing.assert_array_equal(
            steps.observation, np.broadcast_to((10 * ids + t)[:, None, None, None], (len(t), 8, 8, 1))
        )
        assert steps.observation.dtype == np.uint8
        assert steps.action.dtype == np.int32
        np.testing.assert_array_equal(steps.action, t)
        np.testing.assert_array_equal(steps.reward, ids)
        np.testing.assert_array_equal(steps.discount, t < 2)
        np.testing.assert_array_equal(steps.is_last, t == 3)
    assert len(rlds.read(directory, split="train+test").action) == 32
    assert rlds.read_metadata(directory) == {}


STEP = {
    "observation": tfds.features.Tensor(shape=(2,), dtype=np.float32),
    "action": np.int64,
    "reward": np.float64,
    "is_terminal": np.bool_,
}


def step_of(t, **fields):
    return {
        "observation": np.full(2, t, np.float32),
        "action": t,
        "reward": t / 2,
        "is_terminal": False,
        **fields,
    }


def foreign(directory, steps, step=STEP, split="train", **episode_fields):
    """Writes episodes with TFDS's own writer, outside this library's conventions."""
    directory.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity(
        name="foreign", version=tfds.core.Version("1.0.0"), data_dir=str(directory), module_name="m"
    )
    features = tfds.features.FeaturesDict({"steps": tfds.features.Dataset(step), **episode_fields})
    info = tfds.core.DatasetInfo(builder=identity, features=features)
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=2, file_format="array_record")
    writer.initialize_splits([split])
    writer.add_examples({split: [{"steps": s} for s in steps]})
    writer.close_all()
    return directory


def test_missing_fields_are_derived(tmp_path):
    terminated = [step_of(t, is_terminal=t == 3) for t in range(4)]
    cut = [step_of(t) for t in range(3)]
    steps = rlds.read(foreign(tmp_path / "d", [terminated, cut, terminated]))
    assert steps.is_first.tolist() == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert steps.is_last.tolist() == [
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert steps.discount.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert (steps.action.dtype, steps.reward.dtype, steps.discount.dtype) == (
        np.int32,
        np.float32,
        np.float32,
    )
    assert steps.reward[:4].tolist() == [0, 0.5, 1, 1.5]
    assert steps.invalid_actions is None


def test_an_episode_that_does_not_end_is_cut_at_its_last_step(tmp_path):
    step = STEP | {"is_first": np.bool_, "is_last": np.bool_}
    steps = [step_of(t, is_first=t == 0, is_last=False) for t in range(3)]
    found = rlds.read(foreign(tmp_path / "d", [steps], step))
    assert found.is_last.tolist() == [False, False, True]
    assert not found.is_terminal.any()


def test_extra_fields_are_ignored_and_one_entry_is_unwrapped(tmp_path):
    step = STEP | {
        "observation": {"camera": {"front": tfds.features.Image(shape=(4, 4, 3), encoding_format="png")}},
        "info": {"lives": np.int64, "note": tfds.features.Text()},
    }
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)

    def png(image):
        file = io.BytesIO()
        PIL.Image.fromarray(image).save(file, "png")
        file.seek(0)
        return file

    steps = [
        step_of(t, observation={"camera": {"front": png(images[t])}}, info={"lives": 3, "note": "ok"})
        for t in range(3)
    ]
    found = rlds.read(foreign(tmp_path / "d", [steps], step))
    assert found.observation.dtype == np.uint8
    np.testing.assert_array_equal(found.observation, images)


@pytest.mark.parametrize(
    ("changed", "values", "message"),
    [
        (
            {"observation": {"a": np.float32, "b": np.float32}},
            {"observation": {"a": 0, "b": 0}},
            "entries a, b: combine",
        ),
        (
            {"observation": tfds.features.Text()},
            {"observation": "x"},
            "observation in .* is Text, and must be an array of numbers",
        ),
        ({"action": np.float32}, {"action": 0.0}, r"float32 of shape \[\]: only discrete actions"),
        (
            {"action": tfds.features.Tensor(shape=(2,), dtype=np.int64)},
            {"action": np.zeros(2, int)},
            r"int64 of shape \[2\]: only discrete actions",
        ),
        (
            {"action": {"x": np.int64}},
            {"action": {"x": 0}},
            "action in .* is FeaturesDict, and must be an array of numbers",
        ),
        (
            {"reward": tfds.features.Tensor(shape=(1,), dtype=np.float32)},
            {"reward": np.zeros(1, np.float32)},
            r"reward in .* is float32 of shape \[1\], and must be one number a step",
        ),
    ],
)
def test_steps_that_do_not_fit_are_refused(tmp_path, changed, values, message):
    directory = foreign(tmp_path / "d", [[step_of(0, **values)]], STEP | changed)
    with pytest.raises(ValueError, match=message):
        rlds.read(directory)


def test_steps_that_lack_a_field_are_refused(tmp_path):
    step = {field: feature for field, feature in STEP.items() if field != "reward"}
    steps = [{field: value for field, value in step_of(0).items() if field != "reward"}]
    with pytest.raises(ValueError, match="have no reward"):
        rlds.read(foreign(tmp_path / "d", [steps], step))


def test_a_data_set_without_steps_is_refused(tmp_path):
    write(tmp_path / "d", [episode(np.random.default_rng(0), 2)])
    features = json.loads((tmp_path / "d" / "features.json").read_text())
    features["featuresDict"]["features"].pop("steps")
    (tmp_path / "d" / "features.json").write_text(json.dumps(features))
    with pytest.raises(ValueError, match="not in the RLDS format"):
        rlds.read(tmp_path / "d")


# Fractions


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
    with pytest.raises(ValueError, match="fraction must be above 0 and at most 1"):
        rlds.read(tmp_path / "d", fraction=fraction)


# What cannot be read


def test_directories_without_a_data_set_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no directory .*/missing"):
        rlds.read(tmp_path / "missing")
    with pytest.raises(ValueError, match="is empty: write a data set there first"):
        rlds.read(tmp_path)
    (tmp_path / "notes.txt").write_text("no data")
    with pytest.raises(ValueError, match="is no TFDS data set"):
        rlds.read_metadata(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=f"TFDS cannot open the data set in {tmp_path}"):
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


# What cannot be written


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"name": "a-b"}, ValueError, "name must be letters, digits and underscores"),
        ({"metadata": {"steps": 1}}, ValueError, "metadata key 'steps'"),
        ({"metadata": {"a/b": 1}}, ValueError, "metadata key 'a/b'"),
    ],
)
def test_bad_names_are_refused(tmp_path, episodes, settings, error, message):
    with pytest.raises(error, match=message):
        write(tmp_path / "d", episodes, **settings)
    assert not list(tmp_path.iterdir())


def one_step_short(e):
    return dataclasses.replace(e, observation=e.observation[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e: dataclasses.replace(e, is_last=e.is_first),
            "episode 1: is_last must be set on its last step",
        ),
        (
            lambda e: dataclasses.replace(e, is_first=e.is_last),
            "episode 1: is_first must be set on its first step",
        ),
        (
            lambda e: dataclasses.replace(e, is_terminal=e.is_first),
            "episode 1: is_terminal can be set on its last",
        ),
        (one_step_short, r"episode 1: every field must have the same steps \[L\+1\]"),
        (lambda e: dataclasses.replace(e, invalid_actions=None), "episode 1 has steps unlike the first"),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.float64)),
            "episode 1 has steps unlike the first: .*float64.* instead of",
        ),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.complex64)),
            "episode 1: observations of complex64 cannot be stored",
        ),
        (
            lambda e: dataclasses.replace(e, observation=e.observation.astype(np.uint64)),
            "episode 1: observations of uint64 cannot be stored",
        ),
    ],
)
def test_bad_episodes_are_refused_and_leave_nothing(tmp_path, episodes, change, message):
    episodes[1] = change(episodes[1])
    with pytest.raises((ValueError, TypeError), match=message):
        write(tmp_path / "d", episodes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "file_format"), [("tensorflow_datasets", "array_record"), ("google_crc32c", "tfrecord")]
)
def test_a_missing_package_names_its_extra(tmp_path, episodes, package, file_format, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "rosmo\[run\]"'):
        write(tmp_path / "d", episodes, file_format=file_format)
    assert not list(tmp_path.iterdir())


def test_no_episodes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no episode to write"):
        write(tmp_path / "d", [])
    assert not list(tmp_path.iterdir())


# All or nothing


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_data_set_is_replaced_only_when_asked(tmp_path, episodes):
    (tmp_path / "d").mkdir()  # an empty directory is in nobody's way
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    with pytest.raises(FileExistsError, match="there is a data set in"):
        write(tmp_path / "d", episodes[:2])
    assert contents(tmp_path / "d") == before
    write(tmp_path / "d", episodes[:2], file_format="tfrecord", overwrite=True)
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))
    assert os.listdir(tmp_path) == ["d"]


def test_what_is_no_data_set_is_never_replaced(tmp_path, episodes):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="exists and is no data set"):
        write(tmp_path / "home", episodes, overwrite=True)
    assert os.listdir(tmp_path / "home") == ["thesis.tex"]
    assert os.listdir(tmp_path) == ["home"]


def test_one_can_ask_before_the_work_whether_a_directory_is_free(tmp_path, episodes, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("home", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    write(tmp_path / "d", episodes)
    for free in (tmp_path / "missing", str(tmp_path / "empty")):
        rlds.refuse_existing(free, False)
    rlds.refuse_existing("~/d", True)
    with pytest.raises(FileExistsError, match="there is a data set in"):
        rlds.refuse_existing("~/d", False)
    with pytest.raises(FileExistsError, match="exists and is no data set"):
        rlds.refuse_existing(tmp_path / "home", True)


@pytest.mark.parametrize("error", [RuntimeError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("file_format", FORMATS)
def test_an_interrupted_source_leaves_what_there_was(tmp_path, episodes, file_format, error):
    def interrupted():
        yield from episodes[:3]
        raise error("the source's own words")

    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    with pytest.raises(error, match=r"^the source's own words"):
        write(tmp_path / "d", interrupted(), file_format=file_format, overwrite=True)
    with pytest.raises(error):
        write(tmp_path / "new", interrupted(), file_format=file_format)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_full_disk_leaves_what_there_was(tmp_path, episodes, file_format, full_disk):
    rng = np.random.default_rng(7)
    large = [episode(rng, 99, shape=(8, 8, 8), dtype="float64") for _ in range(3)]
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    full_disk()
    with pytest.raises(OSError, match=r"could not write the data set .*/d \(.*File too large.*as it was"):
        write(tmp_path / "d", large, file_format=file_format, overwrite=True)
    with pytest.raises(OSError, match="could not write the data set"):
        write(tmp_path / "new", large, file_format=file_format)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


def test_a_failing_last_rename_puts_back_what_there_was(tmp_path, episodes, monkeypatch):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    rename = Path.rename

    def failing(self, target):
        if "incomplete" in self.name:
            raise OSError("no such luck")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no such luck"):
        write(tmp_path / "d", episodes[:2], overwrite=True)
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


KILLED = """
import sys, numpy as np
from rosmo import Trajectory
from rosmo.data import rlds
step = np.arange(4)
def endless():
    rng = np.random.default_rng(0)
    for i in range(10**9):
        yield Trajectory(rng.random((4, 1000)), step.astype(np.int32), np.ones(4, np.float32),
                         np.ones(4, np.float32), step == 0, step == 3, step == 3)
        if i == 100:
            print("writing", flush=True)
rlds.write(sys.argv[1], endless(), name="tiny", metadata={}, file_format=sys.argv[2], overwrite=True)
"""


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_killed_writer_leaves_nothing_that_loads(tmp_path, episodes, file_format):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    environment = os.environ | {"PYTHONPATH": str(Path(rosmo.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "d"), file_format]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with pytest.raises(RuntimeError, match="another process is writing"):
            write(tmp_path / "d", episodes[:2], overwrite=True)
        writer.send_signal(signal.SIGKILL)
    assert sorted(os.listdir(tmp_path)) == [".d.incomplete", "d"]
    assert contents(tmp_path / "d") == before
    assert_equal(rlds.read(tmp_path), joined(episodes))  # the only one below
    with pytest.raises(ValueError, match="is no TFDS data set"):
        rlds.read(tmp_path / ".d.incomplete")
    (tmp_path / ".d.incomplete" / "shard-9").touch()
    write(tmp_path / "d", episodes[:2], overwrite=True, file_format=file_format)
    assert os.listdir(tmp_path) == ["d"]
    assert not list((tmp_path / "d").glob("shard-*"))
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))


def test_what_writers_left_is_not_taken_for_a_data_set(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    for name in (".d.incomplete", ".d.previous", "2.0.0.incompleteXYZ"):
        shutil.copytree(tmp_path / "d", tmp_path / name)
    assert_equal(rlds.read(tmp_path), joined(episodes))


def test_a_writer_killed_between_its_renames_loses_nothing(tmp_path, episodes):
    write(tmp_path / "d", episodes)
    before = contents(tmp_path / "d")
    (tmp_path / "d").rename(tmp_path / ".d.previous")
    with pytest.raises(FileNotFoundError, match=r"rename .*/\.d\.previous to get it back"):
        rlds.read(tmp_path / "d")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(tmp_path / "d", episodes[:2])
    assert contents(tmp_path / "d") == before
    assert os.listdir(tmp_path) == ["d"]


def test_two_writers_do_not_mix(tmp_path, episodes):
    def meddling():
        yield episodes[0]
        with pytest.raises(RuntimeError, match=r"another process is writing .*/d: wait for it"):
            write(tmp_path / "d", episodes)
        yield episodes[1]

    write(tmp_path / "d", meddling())
    assert_equal(rlds.read(tmp_path / "d"), joined(episodes[:2]))
