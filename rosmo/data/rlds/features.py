"""How TFDS describes and stores an episode: its features, and the tf.Example that holds it."""

import zlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rosmo.data.check import DTYPES, NO_CONTINUOUS, Columns

FileFormat = Literal["array_record", "tfrecord"]


def import_tfds() -> Any:
    """Imports TFDS, or names the extra that brings it."""
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            f'RLDS data sets need tensorflow-datasets: pip install "rosmo[run]" ({error})'
        ) from error
    return tensorflow_datasets


def observation_encoding(
    observation: np.ndarray, file_format: FileFormat
) -> Literal["none", "bytes", "zlib"]:
    """Chooses how TFDS stores observations, so that they come back exactly and take little room."""
    # A tf.Example holds float32 and int64 as they are, rounds float64, and spends a varint on each pixel.
    image = observation.dtype in (np.uint8, np.bool_) and observation.ndim > 2
    if not image and observation.dtype not in (np.float16, np.float64):
        return "none"
    return "bytes" if file_format == "array_record" else "zlib"  # array_record compresses its records itself


def episode_features(first: Columns, metadata: Mapping[str, str | int | float], encoding: str) -> Any:
    """Describes episodes like the first to TFDS."""
    features = import_tfds().features
    steps = {
        field: features.Tensor(
            shape=column.shape[1:],
            dtype=column.dtype.type,
            encoding=encoding if field == "observation" else "none",
        )
        for field, column in first.items()
    }
    kinds = {
        str: features.Text(),
        bool: np.bool_,  # before int, which it is too
        int: np.int64,
        float: features.Tensor(shape=(), dtype=np.float64, encoding="bytes"),  # a tf.Example would round it
    }
    settings = {key: next(kinds[k] for k in kinds if isinstance(value, k)) for key, value in metadata.items()}
    return features.FeaturesDict(
        {"steps": features.Dataset(steps), "episode_id": np.int64, "episode_return": np.float32, **settings}
    )


def serialize(
    index: int, columns: Columns, metadata: Mapping[str, str | int | float], encoding: str
) -> bytes:
    """Makes the tf.Example of an episode from whole columns; TFDS's own way goes step by step, 50× slower."""
    from tensorflow_datasets.proto import tf_example_pb2

    values: dict[str, Any] = {f"steps/{field}": column for field, column in columns.items()}
    if encoding != "none":
        pack = zlib.compress if encoding == "zlib" else bytes
        values["steps/observation"] = [pack(step.tobytes()) for step in columns["observation"]]
    values["episode_id"] = np.asarray(index)
    values["episode_return"] = columns["reward"][:-1].sum(dtype=np.float64)
    for key, value in metadata.items():
        if isinstance(value, str):
            values[key] = [value.encode()]
        else:
            values[key] = [np.float64(value).tobytes()] if isinstance(value, float) else np.asarray(value)

    example = tf_example_pb2.Example()  # pyright: ignore[reportAttributeAccessIssue] (made at run time)
    for key, value in values.items():
        feature = example.features.feature[key]
        if isinstance(value, list):
            feature.bytes_list.value.extend(value)
        elif value.dtype.kind == "f":
            feature.float_list.value.extend(value.ravel().tolist())
        else:
            feature.int64_list.value.extend(value.ravel().astype(np.int64).tolist())
    return example.SerializeToString()


def step_features(info: Any) -> dict[str, Any]:
    """Returns the TFDS features of the fields of a Trajectory, once they are seen to fit."""
    features = import_tfds().features
    episode = info.features if isinstance(info.features, features.FeaturesDict) else {}
    step: Any = dict(episode.items()).get("steps")
    step = step.feature if isinstance(step, features.Dataset) else None
    if not isinstance(step, features.FeaturesDict):
        raise ValueError(f"{info.data_dir} is not in the RLDS format: its episodes have no 'steps'")
    fields = {field: step[field] for field in ("observation", *DTYPES) if field in step}
    missing = {"observation", "action", "reward", "is_terminal"} - fields.keys()
    if missing:
        raise ValueError(f"the steps of {info.data_dir} have no {', '.join(sorted(missing))}")
    while isinstance(observation := fields["observation"], features.FeaturesDict):
        if len(observation) != 1:
            entries = ", ".join(sorted(observation))
            raise ValueError(
                f"the observations of {info.data_dir} have the entries {entries}: combine them into one array"
            )
        fields["observation"] = next(iter(observation.values()))
    for field, feature in fields.items():
        _refuse_bad_feature(field, feature, info)
    return fields


def _refuse_bad_feature(field: str, feature: Any, info: Any) -> None:
    if isinstance(feature.get_serialized_info(), Mapping) or np.dtype(feature.np_dtype).kind not in "biuf":
        kind = type(feature).__name__
        raise ValueError(f"{field} in {info.data_dir} is {kind}, and must be an array of numbers")
    kind = f"{np.dtype(feature.np_dtype).name} of shape {list(feature.shape)}"
    if field == "action" and (feature.shape != () or not np.issubdtype(feature.np_dtype, np.integer)):
        hint = f"; {NO_CONTINUOUS}" if np.dtype(feature.np_dtype).kind == "f" else ""
        raise ValueError(
            f"actions in {info.data_dir} are {kind}: only discrete actions, one integer a step, are "
            f"supported{hint}"
        )
    if field not in ("observation", "invalid_actions") and feature.shape != ():
        raise ValueError(f"{field} in {info.data_dir} is {kind}, and must be one number a step")
