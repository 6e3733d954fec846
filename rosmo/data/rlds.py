"""RLDS data sets on disk: plain directories of tensorflow-datasets (TFDS), without TensorFlow.

A data set is one record per episode, `{steps: Dataset{observation, action, …}, episode_id, episode_return}`
and the metadata of the run. `tfds.builder_from_directory(directory)` opens it where this library is not
installed: `.as_data_source()` reads "array_record" and `.as_dataset()`, which needs TensorFlow, "tfrecord".
"""

import contextlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rosmo.data import tfrecord
from rosmo.types import Trajectory

FileFormat = Literal["array_record", "tfrecord"]
Columns = dict[str, np.ndarray]  # the fields of a Trajectory, by name

_DTYPES = {  # of every field but the observation, which keeps its own
    "action": np.int32,
    "reward": np.float32,
    "discount": np.float32,
    "is_first": np.bool_,
    "is_last": np.bool_,
    "is_terminal": np.bool_,
    "invalid_actions": np.bool_,
}
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
    _tfds()
    directory = Path(directory).expanduser().resolve()
    with _replacing(directory, overwrite) as temporary:
        columns = (_checked(i, _columns(i, episode)) for i, episode in enumerate(episodes))
        first = next(columns, None)
        if first is None:
            raise ValueError(f"there is no episode to write to {directory}")
        encoding = _encoding(first["observation"], file_format)
        payloads = (
            _serialize(i, episode, metadata, encoding) for i, episode in enumerate(_alike(first, columns))
        )
        lengths, size = _write_shards(temporary, directory, payloads, _shard_opener(file_format))
        features = _features(first, metadata, encoding)
        with _disk_errors(directory):
            _write_info(temporary, name, file_format, features, metadata, lengths, size)


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
    info = _info(directory)
    shards = _shards(info, split)
    fields = _step_features(info)
    keep = set(choose_episodes(sum(shard.take for shard in shards), fraction, seed).tolist())
    columns: dict[str, list[np.ndarray]] = {}
    index = 0
    for shard in shards:
        wanted = [shard.skip + i for i in range(shard.take) if index + i in keep]
        index += shard.take
        for episode in _read_episodes(shard, wanted, info, fields):
            for field, column in _completed(episode).items():
                columns.setdefault(field, []).append(column)
    if not columns:
        raise ValueError(f"the episodes of {info.data_dir} have no steps")
    return Trajectory(**{field: np.concatenate(columns.pop(field)) for field in tuple(columns)})


def read_metadata(directory: str | Path) -> dict[str, Any]:
    """Reads the metadata that a data set was written with; another's data set may have none."""
    return dict((_info(directory).metadata or {}).items())


def choose_episodes(count: int, fraction: float, seed: int) -> np.ndarray:
    """Draws `max(1, round(fraction·count))` of `count` episodes without replacement, in ascending order."""
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    chosen = np.random.default_rng(seed).permutation(count)[: max(1, round(fraction * count))]
    return np.sort(chosen)


def discounts(is_terminal: np.ndarray) -> np.ndarray:
    """Returns the discounts of one episode: 1, and 0 from the action that leads to its termination."""
    return 1 - (is_terminal | np.append(is_terminal[1:], False)).astype(np.float32)


def _tfds() -> Any:
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            f'RLDS data sets need tensorflow-datasets: pip install "rosmo[run]" ({error})'
        ) from error
    return tensorflow_datasets


# Writing


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


def _columns(index: int, episode: Trajectory) -> Columns:
    fields = {field: np.asarray(value) for field, value in vars(episode).items() if value is not None}
    observation, action = fields["observation"].dtype, fields["action"].dtype
    if not np.issubdtype(action, np.integer):
        raise TypeError(f"episode {index}: actions must be integers, got {action}")
    if observation.kind not in "biuf" or observation.itemsize > 8 or observation == np.uint64:
        raise TypeError(
            f"episode {index}: observations of {observation} cannot be stored; convert them to a float, "
            "integer or boolean type of at most 64 bits (not uint64)"
        )
    dtypes = {"observation": observation.newbyteorder("="), **_DTYPES}
    return {field: column.astype(dtypes[field], copy=False) for field, column in fields.items()}


def _checked(index: int, columns: Columns) -> Columns:
    """Refuses what is not one whole episode."""
    lengths = {field: len(column) if column.ndim else None for field, column in columns.items()}
    count = lengths["action"]
    if not count or columns["action"].ndim != 1 or set(lengths.values()) != {count}:
        raise ValueError(f"episode {index}: every field must have the same steps [L+1], got {lengths}")
    step = np.arange(count)
    for field, right in (("is_first", step == 0), ("is_last", step == count - 1)):
        if (columns[field] != right).any():
            where = "first" if field == "is_first" else "last"
            raise ValueError(f"episode {index}: {field} must be set on its {where} step and no other")
    if columns["is_terminal"][:-1].any():
        raise ValueError(f"episode {index}: is_terminal can be set on its last step only")
    return columns


def _alike(first: Columns, rest: Iterator[Columns]) -> Iterator[Columns]:
    """Yields the first episode and the rest, as long as they have the same kinds of steps."""

    def kinds(columns: Columns) -> dict[str, tuple[list[int], str]]:
        return {field: (list(column.shape[1:]), column.dtype.name) for field, column in columns.items()}

    yield first
    expected = kinds(first)
    for index, columns in enumerate(rest, start=1):
        if (found := kinds(columns)) != expected:
            raise ValueError(f"episode {index} has steps unlike the first: {found} instead of {expected}")
        yield columns


def _encoding(observation: np.ndarray, file_format: FileFormat) -> Literal["none", "bytes", "zlib"]:
    # A tf.Example holds float32 and int64 as they are, rounds float64, and spends a varint on each pixel.
    image = observation.dtype in (np.uint8, np.bool_) and observation.ndim > 2
    if not image and observation.dtype not in (np.float16, np.float64):
        return "none"
    return "bytes" if file_format == "array_record" else "zlib"  # array_record compresses its records itself


def _features(first: Columns, metadata: Mapping[str, str | int | float], encoding: str) -> Any:
    features = _tfds().features
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


def _serialize(
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


def _shard_opener(file_format: FileFormat) -> Callable[[Path], Any]:
    if file_format == "tfrecord":
        return tfrecord.Writer
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
            with _disk_errors(directory):
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
            with _disk_errors(directory):
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
    core = _tfds().core
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


# All or nothing


@contextlib.contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # array_record reports a full disk as a RuntimeError
        raise OSError(
            f"could not write the data set {directory} ({error}): nothing of it is kept, and what was there "
            "before is as it was"
        ) from error


@contextlib.contextmanager
def _replacing(directory: Path, overwrite: bool) -> Iterator[Path]:
    """Yields an empty directory that takes the place of `directory` when the body succeeds."""
    temporary, previous = _siblings(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = _claim(temporary, directory)
    try:
        _recover(previous, directory)
        _refuse_existing(directory, overwrite)
        yield temporary
        with _disk_errors(directory):
            for path in temporary.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            if not _vacant(directory):
                directory.rename(previous)
            temporary.rename(directory)
        shutil.rmtree(previous, ignore_errors=True)
    except BaseException:
        _recover(previous, directory)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _siblings(directory: Path) -> tuple[Path, Path]:
    """Names, on the same file system, what is being written and what is being replaced."""
    return (
        directory.with_name(f".{directory.name}.incomplete"),
        directory.with_name(f".{directory.name}.previous"),
    )


def _vacant(directory: Path) -> bool:
    return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))


def _recover(previous: Path, directory: Path) -> None:
    """Tidies up after a writer that was stopped between the two renames, or just after them."""
    if previous.exists() and _vacant(directory):
        previous.rename(directory)
    shutil.rmtree(previous, ignore_errors=True)


def _refuse_existing(directory: Path, overwrite: bool) -> None:
    if _vacant(directory):
        return
    if not (directory / "dataset_info.json").exists():
        raise FileExistsError(f"{directory} exists and is no data set: choose another directory")
    if not overwrite:
        raise FileExistsError(f"there is a data set in {directory}: pass overwrite=True to replace it")


def _claim(temporary: Path, directory: Path) -> int:
    """Makes `temporary` ours and empty. The lock on it ends with its process, however that ends."""
    import fcntl  # Unix only, unlike reading

    busy = RuntimeError(f"another process is writing {directory}: wait for it, or choose another directory")
    temporary.mkdir(exist_ok=True)
    lock = os.open(temporary, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError:
            pass  # a file system without locks
        if not temporary.exists() or not os.path.samestat(os.fstat(lock), temporary.stat()):
            raise busy  # the other finished in between, and what we hold is its data set
        for path in temporary.iterdir():
            path.unlink()
    except BaseException:
        os.close(lock)
        raise
    return lock


# Reading


def _info(directory: str | Path) -> Any:
    """Opens a data set as TFDS does, with one sentence for whatever is wrong with it."""
    version = _version_directory(Path(directory).expanduser())
    tfds = _tfds()
    try:
        return tfds.builder_from_directory(str(version)).info
    except Exception as error:
        raise ValueError(f"TFDS cannot open the data set in {version}: {error}") from error


def _version_directory(directory: Path) -> Path:
    """Finds the directory that holds `dataset_info.json`: this one, or the only one below it."""
    if not directory.is_dir():
        previous = _siblings(directory.resolve())[1]
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
    fault = "is empty" if _vacant(directory) else "is no TFDS data set (it has no dataset_info.json)"
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
        names = ", ".join(info.splits) or "none"
        raise ValueError(f"there is no split {split!r} in {info.data_dir}; there are: {names}") from error
    shards = [shard for shard in shards if shard.take > 0]
    if not shards:
        raise ValueError(f"split {split!r} of {info.data_dir} has no episodes")
    return shards


def _step_features(info: Any) -> dict[str, Any]:
    """Returns the TFDS features of the fields of a Trajectory, once they are seen to fit."""
    features = _tfds().features
    episode = info.features if isinstance(info.features, features.FeaturesDict) else {}
    step: Any = dict(episode.items()).get("steps")
    step = step.feature if isinstance(step, features.Dataset) else None
    if not isinstance(step, features.FeaturesDict):
        raise ValueError(f"{info.data_dir} is not in the RLDS format: its episodes have no 'steps'")
    fields = {field: step[field] for field in ("observation", *_DTYPES) if field in step}
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
        raise ValueError(
            f"actions in {info.data_dir} are {kind}: only discrete actions, one integer a step, are supported"
        )
    if field not in ("observation", "invalid_actions") and feature.shape != ():
        raise ValueError(f"{field} in {info.data_dir} is {kind}, and must be one number a step")


def _read_episodes(shard: Any, wanted: list[int], info: Any, fields: dict[str, Any]) -> Iterator[Columns]:
    """Yields the wanted episodes of one file, by field; an error names the file."""
    skip_decoding = {"steps": _tfds().decode.SkipDecoding()}  # whole columns; one step at a time is slow
    for position, payload in _payloads(shard, wanted, info.file_format.value):
        try:
            steps = info.features.deserialize_example_np(payload, decoders=skip_decoding)["steps"]
            while isinstance(steps["observation"], Mapping):
                (steps["observation"],) = steps["observation"].values()
            columns = {field: _decode(field, feature, steps[field]) for field, feature in fields.items()}
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"episode {position} of {shard.filename} cannot be decoded: {error}") from error
        if len(columns["action"]):
            yield columns


def _decode(field: str, feature: Any, raw: Any) -> np.ndarray:
    if feature.get_serialized_info().np_dtype != feature.np_dtype:
        raw = [feature.decode_example_np(step) for step in raw]
    return np.asarray(raw, _DTYPES.get(field, feature.np_dtype))


def _payloads(shard: Any, wanted: list[int], file_format: str) -> Iterator[tuple[int, bytes]]:
    """Yields the wanted records of one file with their positions, once it is seen to be whole."""
    if not wanted:
        return
    if not os.path.exists(shard.filename):
        raise FileNotFoundError(f"the shard {shard.filename} is missing: restore it")
    read = _tfrecord_payloads if file_format == "tfrecord" else _array_record_payloads
    yield from read(shard.filename, wanted, shard.examples_in_shard)


def _tfrecord_payloads(path: str, wanted: list[int], expected: int) -> Iterator[tuple[int, bytes]]:
    chosen = set(wanted)
    count = 0
    for position, payload in enumerate(tfrecord.records(path)):
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


def _completed(columns: Columns) -> Columns:
    """Adds what an episode leaves out, and closes it on its last step."""
    count = len(columns["action"])
    last = np.arange(count) == count - 1
    columns["is_last"] = columns.get("is_last", last) | last
    if "is_first" not in columns:
        columns["is_first"] = np.append(True, columns["is_last"][:-1])[:count]
    if "discount" not in columns:
        columns["discount"] = discounts(columns["is_terminal"])
    return columns
