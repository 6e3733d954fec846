"""Writes episodes as the shards and the description of a TFDS data set."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rosmo.data.files import disk_errors, replacing
from rosmo.data.rlds.episodes import alike, to_columns
from rosmo.data.rlds.features import (
    FileFormat,
    episode_features,
    import_tfds,
    observation_encoding,
    serialize,
)
from rosmo.data.rlds.tfrecord import Writer
from rosmo.types import Trajectory

_EPISODE_FIELDS = ("steps", "episode_id", "episode_return")
_SHARD_BYTES = 256 * 2**20


def write(
    directory: str | Path,
    episodes: Iterable[Trajectory],
    *,
    name: str,
    metadata: Mapping[str, str | int | float],
    file_format: FileFormat = "array_record",
    overwrite: bool = False,
) -> None:
    """Writes episodes as a data set, which appears in `directory` whole or not at all.

    Args:
        directory: where the data set goes; its parents are made.
        episodes: one Trajectory `[L+1]` for each episode; they are drawn one at a time.
        name: the data set's name in TFDS.
        metadata: how the data came about (environment, noise, seed, the agent's settings). It becomes the
            TFDS metadata of the data set, and every episode carries it too, as RLDS has it.
        file_format: "array_record" for readers without TensorFlow, "tfrecord" for those with it.
        overwrite: replaces the data set in `directory`, once the new one is complete.
    """
    _refuse_bad_names(name, metadata, file_format)
    import_tfds()
    directory = Path(directory).expanduser().resolve()
    with replacing(directory, overwrite) as temporary:
        columns = (to_columns(i, episode) for i, episode in enumerate(episodes))
        first = next(columns, None)
        if first is None:
            raise ValueError(f"there is no episode to write to {directory}")
        encoding = observation_encoding(first["observation"], file_format)
        payloads = (
            serialize(i, episode, metadata, encoding) for i, episode in enumerate(alike(first, columns))
        )
        lengths, size = _write_shards(temporary, directory, payloads, _shard_opener(file_format))
        features = episode_features(first, metadata, encoding)
        with disk_errors(directory):
            _write_info(temporary, name, file_format, features, metadata, lengths, size)


def _refuse_bad_names(name: str, metadata: Mapping[str, str | int | float], file_format: str) -> None:
    if not name.isidentifier():
        raise ValueError(f"name must be letters, digits and underscores, as in 'bsuite_catch'; got {name!r}")
    if file_format not in ("array_record", "tfrecord"):
        raise ValueError(f"file_format must be 'array_record' or 'tfrecord', got {file_format!r}")
    for key, value in metadata.items():
        if not isinstance(key, str) or "/" in key or key in _EPISODE_FIELDS:
            raise ValueError(f"metadata key {key!r} must be text without '/' and none of {_EPISODE_FIELDS}")
        if not isinstance(value, str | int | float):
            raise TypeError(f"metadata {key!r} must be text or a number, got {type(value).__name__}")


def _shard_opener(file_format: FileFormat) -> Callable[[Path], Any]:
    if file_format == "tfrecord":
        return Writer
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    return lambda path: array_record_module.ArrayRecordWriter(str(path), "group_size:1")


def _write_shards(
    temporary: Path, directory: Path, payloads: Iterable[bytes], open_shard: Callable[[Path], Any]
) -> tuple[list[int], int]:
    """Writes `shard-0`, `shard-1`, … and returns the records in each and the bytes in all."""
    lengths: list[int] = []
    size = filled = 0
    shard = None
    try:
        for payload in payloads:
            with disk_errors(directory):
                if shard is None or filled >= _SHARD_BYTES:
                    if shard is not None:
                        shard.close()
                    shard = open_shard(temporary / f"shard-{len(lengths)}")
                    lengths.append(0)
                    filled = 0
                shard.write(payload)
            lengths[-1] += 1
            filled += len(payload)
            size += len(payload)
    finally:
        if shard is not None:
            with disk_errors(directory):
                shard.close()
    return lengths, size


def _write_info(
    directory: Path,
    name: str,
    file_format: FileFormat,
    features: Any,
    metadata: Mapping[str, str | int | float],
    lengths: list[int],
    size: int,
) -> None:
    """Gives the shards the names that TFDS expects and describes them."""
    core = import_tfds().core
    template = core.ShardedFileTemplate(
        data_dir=directory, dataset_name=name, split="train", filetype_suffix=file_format
    )
    for i in range(len(lengths)):
        path = template.sharded_filepath(shard_index=i, num_shards=len(lengths))
        os.rename(directory / f"shard-{i}", path)
    split = core.SplitInfo(name="train", shard_lengths=lengths, num_bytes=size, filename_template=template)
    identity = core.DatasetIdentity(
        name=name, version=core.Version("1.0.0"), data_dir=str(directory), module_name=""
    )
    info = core.DatasetInfo(
        builder=identity,
        description="Episodes of reinforcement learning in the RLDS format.",
        features=features,
        metadata=core.MetadataDict(metadata),
    )
    info.set_file_format(file_format)
    info.set_splits(core.SplitDict([split]))
    info.write_to_directory(directory)
