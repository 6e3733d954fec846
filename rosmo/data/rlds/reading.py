"""Reads the episodes of a TFDS data set in the RLDS format, ours or not."""

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rosmo.data.check import Columns
from rosmo.data.files import siblings, vacant
from rosmo.data.rlds.description import read_object, refuse_bad_description
from rosmo.data.rlds.episodes import choose_episodes, from_record, named
from rosmo.data.rlds.features import import_tfds, step_features
from rosmo.data.rlds.tfrecord import records
from rosmo.types import Trajectory


def read(directory: str | Path, *, split: str = "train", fraction: float = 1.0, seed: int = 0) -> Trajectory:
    """Reads the steps `[N]` of an RLDS data set, ours or not, with episodes one after the other.

    Actions become int32, rewards and discounts float32; observations keep their type, and a dictionary with
    one entry counts as that entry. A missing `discount` is 1, and 0 at a termination. An episode whose last
    step lacks `is_last` was cut off there: that step closes it, so its action and reward go unused.

    Args:
        directory: the directory of one version, or one above it with exactly one version below.
        split: a split of the data set, or an expression of TFDS such as "train[:10%]".
        fraction: the share of the episodes to keep, drawn at random; for one seed, a smaller share is part of
            a larger one.
        seed: chooses the episodes.
    """
    columns: dict[str, list[np.ndarray]] = {}
    for episode in read_episodes(directory, split=split, fraction=fraction, seed=seed):
        for field, column in vars(episode).items():
            if column is not None:
                columns.setdefault(field, []).append(column)
    if not columns:
        raise ValueError(f"the episodes of {directory} have no steps")
    return Trajectory(**{field: np.concatenate(columns.pop(field)) for field in tuple(columns)})


def read_episodes(
    directory: str | Path, *, split: str = "train", fraction: float = 1.0, seed: int = 0
) -> Iterator[Trajectory]:
    """Reads what `read` would, one episode `[L+1]` at a time; what was asked for is checked at once."""
    numbered = numbered_episodes(directory, split=split, fraction=fraction, seed=seed)
    return (episode for _, episode in numbered)


def numbered_episodes(
    directory: str | Path, *, split: str = "train", fraction: float = 1.0, seed: int = 0
) -> Iterator[tuple[int, Trajectory]]:
    """Reads what `read_episodes` would, each with its number in the split."""
    about = info(directory)
    shards = _shards(about, split)
    fields = step_features(about)
    keep = set(choose_episodes(sum(shard.take for shard in shards), fraction, seed).tolist())

    def episodes() -> Iterator[tuple[int, Trajectory]]:
        before = 0
        for shard in shards:
            wanted = [shard.skip + i for i in range(shard.take) if before + i in keep]
            for position, episode in _read_episodes(shard, wanted, about, fields):
                yield before + position - shard.skip, Trajectory(**episode)
            before += shard.take

    return episodes()


def observation_shape(directory: str | Path) -> tuple[int, ...]:
    """Returns the shape of one observation, without reading any."""
    return tuple(step_features(info(directory))["observation"].shape)


def read_metadata(directory: str | Path) -> dict[str, Any]:
    """Reads the metadata that a data set was written with; another's data set may have none.

    No checksum is over `metadata.json`. One is over the first episode: where that carries the environment's
    name too, as those do that `write` has written, the two must agree.
    """
    about = info(directory)
    path = Path(about.data_dir) / "metadata.json"
    metadata = read_object(path)
    if "environment" in metadata:
        shard, carried = _carried_environment(about)
        if carried not in (None, metadata["environment"]):
            raise ValueError(
                f"{path} says that the environment is {metadata['environment']!r}, and the first episode, in "
                f"{shard}, that it is {carried!r}: one of them was changed, so restore it, or write the data "
                "again"
            )
    return metadata


def _carried_environment(about: Any) -> tuple[str, str | None]:
    """Returns the file of the first episode, and the environment's name that the episode carries, if any."""
    text = import_tfds().features.Text
    split = next((split for split in about.splits if about.splits[split].num_examples), None)
    if split is None or not isinstance(dict(about.features.items()).get("environment"), text):
        return "", None
    shard = _shards(about, split)[0]
    with contextlib.closing(_payloads(shard, [shard.skip], about.file_format.value)) as payloads:
        _, payload = next(payloads)
    try:
        return shard.filename, _decoded(payload, about)["environment"].decode()
    except Exception as error:
        raise ValueError(f"episode {shard.skip} of {shard.filename} cannot be decoded: {error}") from error


def info(directory: str | Path) -> Any:
    """Returns what TFDS knows of a data set, with one sentence for whatever is wrong with it."""
    version = _version_directory(Path(directory).expanduser())
    refuse_bad_description(version)
    tfds = import_tfds()
    try:
        return tfds.builder_from_directory(str(version)).info
    except Exception as error:
        raise ValueError(f"TFDS cannot open the data set in {version}: {error}") from error


def _version_directory(directory: Path) -> Path:
    """Finds the directory that holds `dataset_info.json`: this one, or the only one below it."""
    if not directory.is_dir():
        previous = siblings(directory.resolve())[1]
        kept = f" (a writer was killed while replacing it; rename {previous} to get it back)"
        raise FileNotFoundError(f"there is no directory {directory}{kept if previous.exists() else ''}")
    if (directory / "dataset_info.json").exists():
        return directory
    below = ("*", "*/*", "*/*/*")  # versions, configs, and data sets of these
    found = sorted(path.parent for level in below for path in directory.glob(f"{level}/dataset_info.json"))
    # Writers, ours and TFDS's own, leave what they did not finish under such names.
    found = [path for path in found if "incomplete" not in path.name and not path.name.startswith(".")]
    if len(found) > 1:
        choices = ", ".join(str(path) for path in found)
        raise ValueError(f"there are several data sets in {directory}; choose one of: {choices}")
    if found:
        return found[0]
    fault = "is empty" if vacant(directory) else "is no TFDS data set (it has no dataset_info.json)"
    raise ValueError(f"{directory} {fault}: write a data set there first, or name the directory of one")


def _shards(info: Any, split: str) -> list[Any]:
    """Returns what to read of which file, for a split that has episodes."""
    if info.file_format.value not in ("array_record", "tfrecord"):
        found = info.file_format.value
        raise ValueError(
            f"{info.data_dir} is stored as {found}: only array_record and tfrecord are supported"
        )
    try:
        shards = info.splits[split].file_instructions
    except (KeyError, ValueError) as error:
        if split in info.splits:
            raise ValueError(f"the files of {split!r} in {info.data_dir} have no names: {error}") from error
        names = ", ".join(info.splits) or "none"
        raise ValueError(f"there is no split {split!r} in {info.data_dir}; there are: {names}") from error
    shards = [shard for shard in shards if shard.take > 0]
    if not shards:
        raise ValueError(f"split {split!r} of {info.data_dir} has no episodes")
    for shard in shards:
        if not os.path.exists(shard.filename):
            raise FileNotFoundError(f"the shard {shard.filename} is missing: restore it")
    return shards


def _read_episodes(
    shard: Any, wanted: list[int], info: Any, fields: dict[str, Any]
) -> Iterator[tuple[int, Columns]]:
    """Yields the wanted episodes of one file with their positions, by field; an error names the file."""
    for position, payload in _payloads(shard, wanted, info.file_format.value):
        try:
            steps = _decoded(payload, info)["steps"]
            while isinstance(steps["observation"], Mapping):
                (steps["observation"],) = steps["observation"].values()
            columns = {field: _decode(feature, steps[field]) for field, feature in fields.items()}
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"episode {position} of {shard.filename} cannot be decoded: {error}") from error
        if len(columns["action"]):
            with named(f"episode {position} of {shard.filename}"):
                episode = from_record(columns)
            yield position, episode


def _decoded(payload: bytes, info: Any) -> dict[str, Any]:
    """Returns a record, with its steps as whole columns that are not decoded: one at a time is slow."""
    return info.features.deserialize_example_np(
        payload, decoders={"steps": import_tfds().decode.SkipDecoding()}
    )


def _decode(feature: Any, raw: Any) -> np.ndarray:
    if feature.get_serialized_info().np_dtype != feature.np_dtype:
        raw = [feature.decode_example_np(step) for step in raw]
    return np.asarray(raw, feature.np_dtype)


def _payloads(shard: Any, wanted: list[int], file_format: str) -> Generator[tuple[int, bytes]]:
    """Yields the wanted records of one file with their positions, once it is seen to be whole."""
    if not wanted:
        return
    read = _tfrecord_payloads if file_format == "tfrecord" else _array_record_payloads
    yield from read(shard.filename, wanted, shard.examples_in_shard)


def _tfrecord_payloads(path: str, wanted: list[int], expected: int) -> Iterator[tuple[int, bytes]]:
    chosen = set(wanted)
    count = 0
    for position, payload in enumerate(records(path)):
        count += 1
        if position in chosen:
            yield position, payload
    _refuse_short(path, count, expected)


def _array_record_payloads(path: str, wanted: list[int], expected: int) -> Iterator[tuple[int, bytes]]:
    from array_record.python import array_record_data_source

    try:
        with array_record_data_source.ArrayRecordDataSource(path) as source:
            _refuse_short(path, len(source), expected)
            for position in wanted:
                yield position, source[position]
    except RuntimeError as error:
        raise ValueError(f"{path} is cut short or damaged ({error}): restore or rewrite it") from error


def _refuse_short(path: str, count: int, expected: int) -> None:
    if count != expected:
        raise ValueError(f"{path} holds {count} episodes instead of {expected}: restore or rewrite it")
