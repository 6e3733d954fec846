"""Episodes for the tests of what is on disk, and what writes them: this library, or TFDS by itself."""

import json
import subprocess
import sys

import numpy as np
import tensorflow_datasets as tfds

from rosmo import Trajectory
from rosmo.data import rlds

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
        reward=np.where(last, 0, rng.normal(size=length + 1)).astype(np.float32),
        discount=rng.random(length + 1).astype(np.float32),
        is_first=step == 0,
        is_last=last,
        is_terminal=last & terminal,
        invalid_actions=rng.random((length + 1, 4)) < 0.5 if masks else None,
    )


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
    result = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False, **settings)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


STEP = {
    "observation": tfds.features.Tensor(shape=(2,), dtype=np.float32),
    "action": np.int64,
    "reward": np.float64,
    "is_terminal": np.bool_,
}


EXACT = tfds.features.Tensor(shape=(), dtype=np.float64, encoding="bytes")


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
