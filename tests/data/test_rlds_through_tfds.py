"""Data sets on disk, against TFDS itself: it opens ours, and we open what it wrote."""

import os

import numpy as np
import pytest

from rosmo.data import rlds
from tests.recorded import DTYPES, METADATA, episode, run, write


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
