"""Reads windows at random from the files of a store."""

import copy
import math
import os
import weakref
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from rosmo.data.check import Columns, refuse_bad_values, warn_of_closing_rewards
from rosmo.data.rlds import choose_episodes
from rosmo.data.rlds.episodes import named
from rosmo.data.store.base import FRAMES, INDEX, STEP, import_zstandard
from rosmo.data.store.description import read_info
from rosmo.types import Trajectory

_BLOCK = 2**20  # steps that are checked together


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
        self.info = read_info(self.path)
        self.stack, self._chunk = int(self.info["stack"]), int(self.info["chunk"])
        self._frame = tuple(self.info["frame"])
        self._steps = self._map("steps.bin", STEP, self.info["steps"])
        first = np.asarray(self._map("episodes.bin", INDEX, self.info["episodes"]))
        chunks = -(-self.info["steps"] // self._chunk)
        self._offsets = self._map("offsets.bin", INDEX, chunks + 1)
        with named(str(self.path)):
            self._refuse_bad_tables(first)
        frames = self.path / FRAMES
        if not frames.is_file() or frames.stat().st_size != self.info["bytes"]:
            raise ValueError(f"{frames} is missing, cut short or damaged: convert the data again")
        self._file = os.open(frames, os.O_RDONLY)
        self._origin: FrameStore | None = None
        weakref.finalize(self, os.close, self._file)  # unlike __del__, also while Python is shutting down
        chosen = _chosen(self.info["splits"], fraction, seed)
        self._use(first[chosen], np.diff(np.append(first, self.info["steps"]))[chosen])
        self.num_actions = int(self.info["num_actions"])

    def taking(self, episodes: Integer[np.ndarray, "chosen"]) -> "FrameStore":
        """Returns the same store with some of the episodes to use, by their numbers in ascending order."""
        other = copy.copy(self)
        other._origin = self  # whose end closes the file
        other._use(self._first[episodes], self._lengths[episodes])
        return other

    def _use(self, first: np.ndarray, lengths: np.ndarray) -> None:
        self._first, self._lengths = first, lengths
        self._begins = np.cumsum(self._lengths - 1) - (self._lengths - 1)  # in the order of all starts
        self._last = _last_in_a_row(self._first, self._first + self._lengths)
        self.num_starts = int((self._lengths - 1).sum())

    @property
    def num_episodes(self) -> int:
        """How many episodes there are to use."""
        return len(self._first)

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

    def columns(self) -> Columns:
        """Returns what the steps of the episodes to use hold beside their frames, by field."""
        rows = np.repeat(self._first - np.cumsum(self._lengths) + self._lengths, self._lengths)
        records = self._steps[rows + np.arange(len(rows))]
        return {field: np.ascontiguousarray(records[field]) for field in STEP.names or ()}

    def starts(self, index: Integer[np.ndarray, "batch"]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps with an action by their order, and the first steps of their episodes."""
        index = index.astype(np.int64)
        episode = np.searchsorted(self._begins, index, side="right") - 1
        first = self._first[episode]
        return first + index - self._begins[episode], first

    def read(self, index: Integer[np.ndarray, "batch"], window: int) -> Trajectory:
        """Reads windows `[B, window]` that begin with given steps, by their order among those with an action.

        Observations are single frames, `[B, window + stack - 1, H, W]`: those of the window and what the
        first of them is stacked on, which is 0 before the first step of its episode. Past an episode's end
        they go on into the next one, or stay at the closing step if the next is not among those to use.
        """
        start, first = self.starts(index)
        last = self._last[np.searchsorted(self._first, first)]
        records = self._steps[np.minimum(start[:, None] + np.arange(window), last[:, None])]
        before = self.stack - 1
        frames = np.zeros((len(start), window + before, *self._frame), np.uint8)
        zstd = self._zstd.ZstdDecompressor()  # not to be shared between threads
        lows, highs = np.maximum(start - before, first), np.minimum(start + window, last + 1)
        for row, begin, low, high in zip(frames, start, lows, highs, strict=True):
            self._read_frames(int(low), int(high), row[low - (begin - before) :], zstd)
            row[high - (begin - before) :] = row[high - (begin - before) - 1]  # as indices are clipped
        return Trajectory(frames, *(records[field].copy() for field in STEP.names or ()))

    def _read_frames(self, low: int, high: int, out: UInt8[np.ndarray, "..."], zstd: Any) -> None:
        """Decompresses the frames of steps [low, high) into `out`."""
        chunks = range(low // self._chunk, (high - 1) // self._chunk + 1)
        offsets = self._offsets[chunks.start : chunks.stop + 1] - self._offsets[chunks.start]
        data = os.pread(self._file, int(offsets[-1]), int(self._offsets[chunks.start]))
        for i, chunk in enumerate(chunks):
            begin = chunk * self._chunk
            count = min(self._chunk, len(self._steps) - begin)
            try:
                pixels = self._decompressed(data[offsets[i] : offsets[i + 1]], count, zstd)
            except (ValueError, self._zstd.ZstdError) as error:
                raise ValueError(
                    f"chunk {chunk} of {self.path / FRAMES} is damaged ({error}): convert the data again"
                ) from error
            frames = np.frombuffer(pixels, np.uint8).reshape(count, *self._frame)
            part = frames[max(low - begin, 0) : high - begin]
            at = max(begin - low, 0)
            out[at : at + len(part)] = part

    def _decompressed(self, data: bytes, frames: int, zstd: Any) -> bytes:
        """Decompresses so many frames, and nothing that says that it is more or less."""
        size = frames * math.prod(self._frame)
        found = self._zstd.get_frame_parameters(data).content_size  # what memory is taken for
        if found != size:
            raise ValueError(f"it holds {found} bytes where {frames} frames have {size}")
        return zstd.decompress(data, allow_extra_data=False)

    def _refuse_bad_tables(self, first: np.ndarray) -> None:
        """Refuses tables that disagree, and steps that nothing can be trained on, a block at a time."""
        offsets, steps = self._offsets, self._steps
        if offsets[0] != 0 or offsets[-1] != self.info["bytes"] or (np.diff(offsets) <= 0).any():
            raise ValueError("offsets.bin does not divide frames.zst into chunks: convert the data again")
        closing = np.append(first[1:], len(steps)) - 1
        for flag, expected in (("is_first", first), ("is_last", closing)):
            found = np.nonzero(steps[flag])[0]  # of the table itself: a copy of the column is not needed
            if not np.array_equal(found, expected):
                step = np.setxor1d(found, expected)
                where = f"step {step[0]}" if step.size else "its order"
                raise ValueError(
                    f"{flag} in steps.bin and the episodes of episodes.bin differ ({where}): convert the "
                    "data again"
                )
        for begin in range(0, len(steps), _BLOCK):
            block = np.asarray(steps[begin : begin + _BLOCK])
            columns = {field: np.ascontiguousarray(block[field]) for field in STEP.names or ()}
            refuse_bad_values(columns, self.info["num_actions"], first=begin)
        warn_of_closing_rewards(closing, steps["reward"][closing], where=str(self.path))

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


def _last_in_a_row(first: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The last step of the episodes that lie in a row with each, nothing between them."""
    stops = np.append(first[1:] != ends[:-1], True)
    return ends[stops][np.cumsum(stops) - stops] - 1
