"""Frames of a large data set in one directory, every frame once, for windows to be read at random.

    store.json     what is there: numbers of steps and episodes, the frames' shape, where the data is from
    frames.zst     all frames in order, compressed sixteen at a time
    offsets.bin    where each of those chunks begins, and where the last ends (int64)
    steps.bin      what else a step holds, a record for each
    episodes.bin   the step that each episode begins with (int64)

Episodes lie one after the other, those of a split together. Frames of Atari games take about a hundredth of
their size this way, and are decompressed at over a hundred thousand a second on one core.
"""

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Integer, UInt8

from rosmo.data.rlds.atomic import disk_errors, replacing
from rosmo.data.rlds.episodes import checked, choose_episodes, to_columns
from rosmo.data.windows import checked_steps
from rosmo.types import Trajectory

INFO = "store.json"
_VERSION = 1
_CHUNK = 16  # frames: about what a window of 5 imagined steps reads
_LEVEL = 3  # of the compression
_STEP = np.dtype(
    [
        ("action", "<i4"),
        ("reward", "<f4"),
        ("discount", "<f4"),
        ("is_first", "?"),
        ("is_last", "?"),
        ("is_terminal", "?"),
    ]
)
_ANY_ACTION = 2**31 - 1


def is_store(directory: Path) -> bool:
    """Whether a directory holds a store of frames."""
    return (directory / INFO).is_file()


def write_store(
    directory: str | Path,
    splits: Mapping[str, Iterable[Trajectory]],
    *,
    stack: int,
    metadata: Mapping[str, str | int | float],
    overwrite: bool = False,
) -> None:
    """Writes episodes `[L+1]` of single frames `[H, W]`, which appear in `directory` whole or not at all.

    Args:
        directory: where the store goes; its parents are made.
        splits: the episodes by split; they are drawn one at a time, and those without an action passed over.
        stack: frames in an observation.
        metadata: how the data came about.
        overwrite: replaces the data set in `directory`, once the new one is complete.
    """
    directory = Path(directory).expanduser().resolve()
    with replacing(directory, overwrite) as temporary, _Writer(temporary) as writer:
        counts = {}
        for name, episodes in splits.items():
            before = len(writer.first)
            for episode in episodes:
                with disk_errors(directory):
                    writer.add(episode)
            counts[name] = len(writer.first) - before
        if not writer.first:
            raise ValueError(f"there is no episode to write to {directory}")
        with disk_errors(directory):
            writer.finish({"splits": counts, "stack": stack, "metadata": dict(metadata)})


class _Writer:
    """Appends episodes to the files of a store."""

    def __init__(self, directory: Path):
        self._zstd = _import().ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._directory = directory
        self.first: list[int] = []
        self._steps = 0
        self._crc = 0
        self._num_actions = 0
        self._offsets = [0]
        self._shape: tuple[int, ...] | None = None
        self._waiting: list[np.ndarray] = []  # frames of a chunk that is not full

    def __enter__(self) -> "_Writer":
        self._frame_file: BinaryIO = open(self._directory / "frames.zst", "xb")
        self._step_file: BinaryIO = open(self._directory / "steps.bin", "xb")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._frame_file.close()
        self._step_file.close()

    def add(self, episode: Trajectory) -> None:
        if len(episode.action) < 2:
            return
        index = len(self.first)
        columns = checked(index, to_columns(index, episode))
        try:
            checked_steps(episode, window=1, num_actions=_ANY_ACTION)
        except ValueError as error:
            raise ValueError(f"episode {index}: {error}") from error
        frames = columns["observation"]
        self._refuse_unlike(index, frames)
        records = np.empty(len(frames), _STEP)
        for field in _STEP.fields or ():
            records[field] = columns[field]
        self._step_file.write(records.tobytes())
        self._crc = zlib.crc32(records.tobytes(), self._crc)
        self._num_actions = max(self._num_actions, int(columns["action"][:-1].max()) + 1)
        self.first.append(self._steps)
        self._steps += len(frames)
        self._waiting.extend(frames)
        while len(self._waiting) >= _CHUNK:
            self._write_chunk()

    def finish(self, about: Mapping[str, Any]) -> None:
        """Writes the last chunk, the tables, and what the store holds."""
        if self._waiting:
            self._write_chunk()
        np.array(self._offsets, np.int64).tofile(self._directory / "offsets.bin")
        np.array(self.first, np.int64).tofile(self._directory / "episodes.bin")
        numbers = {"steps": self._steps, "episodes": len(self.first), "num_actions": self._num_actions}
        shape = {"frame": list(self._shape or ()), "bytes": self._offsets[-1], "crc32": f"{self._crc:08x}"}
        info = {"version": _VERSION, "chunk": _CHUNK, **numbers, **shape, **about}
        (self._directory / INFO).write_text(json.dumps(info, indent=2))

    def _refuse_unlike(self, index: int, frames: np.ndarray) -> None:
        if frames.dtype != np.uint8 or frames.ndim != 3:
            raise ValueError(
                f"episode {index}: a store holds frames of bytes [height, width], got {frames.dtype} of the "
                f"shape {list(frames.shape[1:])}"
            )
        if self._shape not in (None, frames.shape[1:]):
            raise ValueError(
                f"episode {index} has frames of the shape {list(frames.shape[1:])}, unlike the first: "
                f"{list(self._shape or ())}"
            )
        self._shape = frames.shape[1:]

    def _write_chunk(self) -> None:
        chunk = self._zstd.compress(np.stack(self._waiting[:_CHUNK]).tobytes())
        del self._waiting[:_CHUNK]
        self._frame_file.write(chunk)
        self._crc = zlib.crc32(chunk, self._crc)
        self._offsets.append(self._offsets[-1] + len(chunk))


class FrameStore:
    """A store on disk, or the share of its episodes that is to be trained on.

    Reading takes no more memory than what is read: nothing is kept but a table of episodes.
    """

    def __init__(self, directory: str | Path, *, fraction: float = 1.0, seed: int = 0):
        """Opens a store.

        Args:
            directory: of the store.
            fraction: the share of the episodes of every split to use, drawn at random; for one seed, a
                smaller share is part of a larger one.
            seed: chooses the episodes.
        """
        self._zstd = _import()
        self.path = Path(directory).expanduser()
        self.info = _read_info(self.path)
        self.stack, self._chunk = int(self.info["stack"]), int(self.info["chunk"])
        self._frame = tuple(self.info["frame"])
        self._steps = self._map("steps.bin", _STEP, self.info["steps"])
        first = np.asarray(self._map("episodes.bin", np.dtype("<i8"), self.info["episodes"]))
        chunks = -(-self.info["steps"] // self._chunk)
        self._offsets = self._map("offsets.bin", np.dtype("<i8"), chunks + 1)
        self._file = os.open(self.path / "frames.zst", os.O_RDONLY)
        if os.fstat(self._file).st_size != self.info["bytes"]:
            raise ValueError(f"{self.path / 'frames.zst'} is cut short or damaged: convert the data again")
        chosen = _chosen(self.info["splits"], fraction, seed)
        self._first = first[chosen]
        self._lengths = np.diff(np.append(first, self.info["steps"]))[chosen]
        self._begins = np.cumsum(self._lengths - 1) - (self._lengths - 1)  # in the order of all starts
        self.num_starts = int((self._lengths - 1).sum())
        self.num_actions = int(self.info["num_actions"])

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation: frames, stacked."""
        return (*self._frame, self.stack)

    @property
    def checksum(self) -> str:
        """A short text that other data would not have."""
        crc = int(self.info["crc32"], 16)
        if len(self._first) < self.info["episodes"]:
            crc = zlib.crc32(self._first.tobytes(), crc)
        return f"{len(self._first)} episodes, {self._lengths.sum()} steps, crc32 {crc:08x}"

    def starts(self, index: Integer[np.ndarray, "batch"]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps with an action by their order, and the first steps of their episodes."""
        index = index.astype(np.int64)
        episode = np.searchsorted(self._begins, index, side="right") - 1
        first = self._first[episode]
        return first + index - self._begins[episode], first

    def read(self, index: Integer[np.ndarray, "batch"], window: int) -> Trajectory:
        """Reads windows `[B, window]` that begin with given steps, by their order among those with an action.

        Observations are single frames, `[B, window + stack - 1, H, W]`: those of the window and what the
        first of them is stacked on, which is 0 before the first step of its episode.
        """
        start, first = self.starts(index)
        last = len(self._steps) - 1
        records = self._steps[np.minimum(start[:, None] + np.arange(window), last)]
        before = self.stack - 1
        frames = np.zeros((len(start), window + before, *self._frame), np.uint8)
        zstd = self._zstd.ZstdDecompressor()  # not to be shared between threads
        for row, begin, low in zip(frames, start, np.maximum(start - before, first), strict=True):
            high = min(begin + window, last + 1)
            self._read_frames(int(low), int(high), row[low - (begin - before) :], zstd)
            row[high - (begin - before) :] = row[high - (begin - before) - 1]  # as indices are clipped
        return Trajectory(frames, *(records[field].copy() for field in _STEP.names or ()))

    def _read_frames(self, low: int, high: int, out: UInt8[np.ndarray, "..."], zstd: Any) -> None:
        """Decompresses the frames of steps [low, high) into `out`."""
        chunks = range(low // self._chunk, (high - 1) // self._chunk + 1)
        offsets = self._offsets[chunks.start : chunks.stop + 1] - self._offsets[chunks.start]
        data = os.pread(self._file, int(offsets[-1]), int(self._offsets[chunks.start]))
        for i, chunk in enumerate(chunks):
            try:
                pixels = zstd.decompress(data[offsets[i] : offsets[i + 1]])
            except self._zstd.ZstdError as error:
                raise ValueError(
                    f"chunk {chunk} of {self.path / 'frames.zst'} is damaged ({error}): convert the "
                    "data again"
                ) from error
            frames = np.frombuffer(pixels, np.uint8).reshape(-1, *self._frame)
            begin = chunk * self._chunk
            part = frames[max(low - begin, 0) : high - begin]
            at = max(begin - low, 0)
            out[at : at + len(part)] = part

    def _map(self, name: str, dtype: np.dtype, count: int) -> np.ndarray:
        path = self.path / name
        if not path.is_file() or path.stat().st_size != count * dtype.itemsize:
            raise ValueError(f"{path} is missing, cut short or damaged: convert the data again")
        return np.memmap(path, dtype, "r")


def _chosen(splits: Mapping[str, int], fraction: float, seed: int) -> np.ndarray:
    """The positions of the episodes to use: the same share of every split."""
    ends = np.cumsum(list(splits.values()))
    parts = [
        end - count + choose_episodes(count, fraction, seed)
        for end, count in zip(ends, splits.values(), strict=True)
        if count
    ]
    return np.concatenate(parts)


def _read_info(directory: Path) -> dict[str, Any]:
    if not is_store(directory):
        raise ValueError(
            f"{directory} is no store of frames (it has no {INFO}): make one by rosmo data convert"
        )
    info = json.loads((directory / INFO).read_text())
    if info.get("version") != _VERSION:
        raise ValueError(
            f"the store {directory} has version {info.get('version')}, and this library reads {_VERSION}: "
            "convert the data again"
        )
    return info


def _import() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise ImportError('a store of frames needs zstandard: pip install "rosmo[atari]"') from error
    return zstandard
