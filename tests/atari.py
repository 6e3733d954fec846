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

GAME, RUN = "Breakout", "rlu_atari_checkpoints_ordered/Breakout_run_1"


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
# discount alone is 0, and the last action means nothing. Then runs the builder and the unmodified tfds.load,
# and at last converts what tfds.load gives.
BUILD = """
import json, pickle, sys
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.rl_unplugged import rlu_atari_checkpoints_ordered as rlu

directory, name = sys.argv[1:]
game = name.split("/")[1].split("_run_")[0]
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

rlu.RluAtariCheckpointsOrdered._INPUT_FILE_PREFIX = prefix
rlu.RluAtariCheckpointsOrdered._SHARDS = len(checkpoints)
tfds.builder(name, data_dir=f"{directory}/tfds").download_and_prepare()

for i in range(len(checkpoints)):
    dataset = tfds.load(name, data_dir=f"{directory}/tfds", split=f"checkpoint_{i:02d}")
    for j, episode in enumerate(tfds.as_numpy(dataset)):
        steps = list(episode["steps"])
        np.savez(f"{directory}/loaded-{i}-{j}.npz", **{k: np.stack([s[k] for s in steps]) for k in steps[0]})
alone = "rosmo" not in sys.modules

from rosmo import cli

code = cli.main(["data", "convert", f"tfds:{name}", f"{directory}/store", "--data-dir", f"{directory}/tfds"])
print(json.dumps([alone, code]))
"""


def run_python(script, *arguments):
    """Runs a script in a process of its own and returns what it prints last as JSON."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(rosmo.__file__).parents[1]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
