"""Episodes of real emulator frames, and RL Unplugged's own builder run on them."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image

import rosmo
from rosmo import Trajectory, envs
from tests.limits import HUNG

RUN, WHOLE = "rlu_atari_checkpoints_ordered/Breakout_run_1", "rlu_atari/Breakout_run_1"


def play(seed, *, max_frames=400, game="breakout"):
    """An episode of random play, cut off early or to its end, with the emulator's stacked observations."""
    environment = envs.Atari(game, seed, max_frames=max_frames)
    rng = np.random.default_rng(seed)
    steps = [environment.reset()]
    actions = []
    while not steps[-1].last():
        actions.append(int(rng.integers(len(environment.actions))))
        steps.append(environment.step(actions[-1]))
    step = np.arange(len(steps))
    return Trajectory(
        observation=np.stack([s.observation for s in steps]),
        action=np.array([*actions, 0], np.int32),
        reward=np.array([s.reward for s in steps[1:]] + [0], np.float32),
        discount=np.array([s.discount for s in steps[1:]] + [0], np.float32),
        is_first=step == 0,
        is_last=step == step[-1],
        is_terminal=(step == step[-1]) & (steps[-1].discount == 0),
    )


def png(frame):
    """A frame as the data sets hold it."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(frame).save(buffer, "PNG")
    return buffer.getvalue()


# Writes the raw files that the builder downloads, as RL Unplugged has them: at a termination the last
# discount alone is 0, and the last action means nothing. Then runs both builders and the unmodified
# tfds.load, and at last converts what tfds.load gives. The files of rlu_atari are read one after the other,
# which its builder leaves to Apache Beam, and written as two shards.
BUILD = """
import itertools, json, pickle, sys
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import rlu_atari, rlu_atari_checkpoints_ordered

directory, ordered, whole = sys.argv[1:]
game = ordered.split("/")[1].split("_run_")[0]
with open(f"{directory}/raw.pickle", "rb") as file:
    checkpoints = pickle.load(file)

def feature(value):
    if isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    if isinstance(value[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

prefix = f"{directory}/raw"
tf.io.gfile.makedirs(f"{prefix}/{game}")
for i, episodes in enumerate(checkpoints):
    path = f"{prefix}/{game}/run_1-{i:05d}-of-{len(checkpoints):05d}"
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
        for episode in episodes:
            features = tf.train.Features(feature={key: feature(value) for key, value in episode.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())

for builder in (rlu_atari.RluAtari, rlu_atari_checkpoints_ordered.RluAtariCheckpointsOrdered):
    builder._INPUT_FILE_PREFIX = prefix
    builder._SHARDS = len(checkpoints)
rlu_atari.RluAtari._generate_examples = lambda self, paths: itertools.chain.from_iterable(
    map(self.generate_examples_one_file, paths["file_paths"])
)
tfds.builder(ordered, data_dir=f"{directory}/tfds").download_and_prepare()
two = tfds.download.DownloadConfig(num_shards=2)
tfds.builder(whole, data_dir=f"{directory}/tfds").download_and_prepare(download_config=two)

in_order = tfds.ReadConfig(interleave_cycle_length=1)
for name, splits in ((ordered, [f"checkpoint_{i:02d}" for i in range(len(checkpoints))]), (whole, ["train"])):
    for split in splits:
        dataset = tfds.load(name, data_dir=f"{directory}/tfds", split=split, read_config=in_order)
        for i, episode in enumerate(tfds.as_numpy(dataset)):
            steps = list(episode["steps"])
            columns = {key: np.stack([step[key] for step in steps]) for key in steps[0]}
            np.savez(f"{directory}/loaded-{split}-{i}.npz", **columns)
alone = "rosmo" not in sys.modules

from rosmo import cli

def convert(name, *more):
    target = f"{directory}/store-{name.split('/')[0]}"
    return cli.main(["data", "convert", f"tfds:{name}", target, "--data-dir", f"{directory}/tfds", *more])

print(json.dumps([alone, convert(ordered), convert(whole), convert(whole, "--split", "none", "--overwrite")]))
"""


def run_python(script, *arguments):
    """Runs a script in a process of its own and returns what it prints last as JSON."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(rosmo.__file__).parents[1]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=HUNG, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
