"""Reads windows at random from the files of a store."""

import json
import os
import weakref
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from rosmo.data.rlds import choose_episodes
from rosmo.data.store.base import FRAMES, INDEX, INFO, STEP, VERSION, import_zstandard, is_store
from rosmo.types import Trajectory

_NUMBERS = ("chunk", "steps", "episodes", "num_actions", "bytes", "stack")


class FrameStore:
    """A store on disk, or the share of its episodes that is to be trained on.

    Reading takes no more memory than what is read, a table of episodes and that of the steps. The latter has
    15 bytes a step and is mapped from disk: it becomes resident, and the system can take it back.
    """

    def __init__(self, directory: str | Path, *, fraction: float = 1.0, seed: int = 0):
        """Opens a store.

        Args:
            directory: of the store.
            fraction: the share of the episodes of every split to use, drawn at random; for one seed, a
                smaller share is part of a larger one.
            seed: chooses the episodes.
        """
        self._zstd = import_zstandard()
        self.path = Path(directory).expanduser()
        self.info = _read_info(self.path)
        self.stack, self._chunk = int(self.info["stack"]), int(self.info["chunk"])
        self._frame = tuple(self.info["frame"])
        self._steps = self._map("steps.bin", STEP, self.info["steps"])
        first = np.asarray(self._map("episodes.bin", INDEX, self.info["episodes"]))
        chunks = -(-self.info["steps"] // self._chunk)
        self._offsets = self._map("offsets.bin", INDEX, chunks + 1)
        frames = self.path / FRAMES
        if not frames.is_file() or frames.stat().st_size != self.info["bytes"]:
            raise ValueError(f"{frames} is missing, cut short or damaged: convert the data again")
        self._file = os.open(frames, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)  # unlike __del__, also while Python is shutting down
        chosen = _chosen(self.info["splits"], fraction, seed)
        self._first = first[chosen]
        self._lengths = np.diff(np.append(first, self.info["steps"]))[chosen]
        self._begins = np.cumsum(self._lengths - 1) - (self._lengths - 1)  # in the order of all starts
        self.num_starts = int((self._lengths - 1).sum())
        self.num_actions = int(self.info["num_actions"])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation: frames, stacked."""
        return (*self._frame, self.stack)

    @property
    def environment(self) -> str | None:
        """Where the data was recorded, if its source said so."""
        return self.info["metadata"].get("environment")

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
        return Trajectory(frames, *(records[field].copy() for field in STEP.names or ()))

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
                    f"chunk {chunk} of {self.path / FRAMES} is damaged ({error}): convert the data again"
                ) from error
            frames = np.frombuffer(pixels, np.uint8).reshape(-1, *self._frame)
            begin = chunk * self._chunk
            part = frames[max(low - begin, 0) : high - begin]
            at = max(begin - low, 0)
            out[at : at + len(part)] = part

    def _map(self, name: str, dtype: np.dtype, count: int) -> np.ndarray:
        path = self.path / name
        whole = path.is_file() and path.stat().st_size == count * dtype.itemsize
        if whole and zlib.crc32((table := np.memmap(path, dtype, "r")).data) == self.info["tables"].get(name):
            return table
        raise ValueError(f"{path} is missing, cut short or damaged: convert the data again")


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
    try:
        info = dict(json.loads((directory / INFO).read_text()))
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise ValueError(f"{directory / INFO} is damaged ({error}): convert the data again") from error
    if info.get("version") != VERSION:
        raise ValueError(
            f"the store {directory} has version {info.get('version')}, and this library reads {VERSION}: "
            "convert the data again"
        )
    keys = (*_NUMBERS, "frame", "crc32", "tables", "splits", "metadata")
    if missing := [key for key in keys if key not in info]:
        raise ValueError(f"{directory / INFO} has no {', '.join(missing)}: convert the data again")
    if wrong := _wrong_values(info):
        raise ValueError(f"{directory / INFO} is damaged ({', '.join(wrong)}): convert the data again")
    return info


def _wrong_values(info: Mapping[str, Any]) -> list[str]:
    """The keys whose values cannot be those of a store."""

    def whole(*numbers: Any, least: int = 1) -> bool:
        return all(type(number) is int and number >= least for number in numbers)

    wrong = [key for key in _NUMBERS if not whole(info[key])]
    wrong += [key for key in ("tables", "splits", "metadata") if not isinstance(info[key], dict)]
    if not (isinstance(info["frame"], list) and len(info["frame"]) == 2 and whole(*info["frame"])):
        wrong.append("frame")
    if not wrong:
        counts = info["splits"].values()
        wrong += [] if whole(*counts, least=0) and sum(counts) == info["episodes"] else ["splits"]
    return wrong
