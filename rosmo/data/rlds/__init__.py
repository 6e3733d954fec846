"""RLDS data sets on disk: plain directories of tensorflow-datasets (TFDS), without TensorFlow.

A data set is one record per episode, `{steps: Dataset{observation, action, …}, episode_id, episode_return}`
and the metadata of the run. `tfds.builder_from_directory(directory)` opens it where this library is not
installed: `.as_data_source()` reads "array_record" and `.as_dataset()`, which needs TensorFlow, "tfrecord".
"""

from rosmo.data.files import refuse_existing
from rosmo.data.rlds.episodes import choose_episodes, discounts
from rosmo.data.rlds.features import FileFormat
from rosmo.data.rlds.reading import (
    info,
    numbered_episodes,
    observation_shape,
    read,
    read_episodes,
    read_metadata,
)
from rosmo.data.rlds.writing import write

__all__ = [
    "FileFormat",
    "choose_episodes",
    "discounts",
    "info",
    "numbered_episodes",
    "observation_shape",
    "read",
    "read_episodes",
    "read_metadata",
    "refuse_existing",
    "write",
]
