"""Writes episodes as the files of a store."""

import contextlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rosmo.data.check import refuse_bad_values
from rosmo.data.files import disk_errors, replacing
from rosmo.data.rlds.episodes import named, to_columns
from rosmo.data.store.base import (
    ANY_ACTION,
    CHUNK,
    FRAMES,
    INDEX,
    INFO,
    STEP,
    TABLES,
    VERSION,
    import_zstandard,
)
from rosmo.data.store.description import checksum_of
from rosmo.types import Trajectory

_LEVEL = 3  # of the compression


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
        self._zstd = import_zstandard().ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._directory = directory
        self.first: list[int] = []
        self._steps = 0
        self._crc = 0
        self._num_actions = 0
        self._offsets = [0]
        self._shape: tuple[int, ...] | None = None
        self._waiting: list[np.ndarray] = []  # frames of a chunk that is not full

    def __enter__(self) -> "_Writer":
        self._frame_file: BinaryIO = open(self._directory / FRAMES, "xb")
        self._step_file: BinaryIO = open(self._directory / "steps.bin", "xb")
        return self

    def __exit__(self, *exception: Any) -> None:
        for file in (self._frame_file, self._step_file):
            with contextlib.suppress(OSError):  # `finish` has flushed them; what failed before is reported
                file.close()

    def add(self, episode: Trajectory) -> None:
        if len(episode.action) < 2:
            return
        index = len(self.first)
        columns = to_columns(index, episode)
        with named(f"episode {index}"):
            if "invalid_actions" in columns:
                raise ValueError("a store of frames has no invalid_actions: leave them out")
            refuse_bad_values(columns, ANY_ACTION)
        frames = columns["observation"]
        self._refuse_unlike(index, frames)
        records = np.empty(len(frames), STEP)
        for field in STEP.fields or ():
            records[field] = columns[field]
        self._step_file.write(records.tobytes())
        self._crc = zlib.crc32(records.tobytes(), self._crc)
        self._num_actions = max(self._num_actions, int(columns["action"][:-1].max()) + 1)
        self.first.append(self._steps)
        self._steps += len(frames)
        self._waiting.extend(frames)
        while len(self._waiting) >= CHUNK:
            self._write_chunk()

    def finish(self, about: Mapping[str, Any]) -> None:
        """Writes the last chunk, the tables, and what the store holds."""
        if self._waiting:
            self._write_chunk()
        np.array(self._offsets, INDEX).tofile(self._directory / "offsets.bin")
        np.array(self.first, INDEX).tofile(self._directory / "episodes.bin")
        self._frame_file.flush()
        self._step_file.flush()
        tables = {name: zlib.crc32(np.memmap(self._directory / name, np.uint8, "r").data) for name in TABLES}
        numbers = {"steps": self._steps, "episodes": len(self.first), "num_actions": self._num_actions}
        shape = {"frame": list(self._shape or ()), "bytes": self._offsets[-1], "crc32": f"{self._crc:08x}"}
        info = {"version": VERSION, "chunk": CHUNK, **numbers, **shape, "tables": tables, **about}
        info["checksum"] = checksum_of(info)
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
        chunk = self._zstd.compress(np.stack(self._waiting[:CHUNK]).tobytes())
        del self._waiting[:CHUNK]
        self._frame_file.write(chunk)
        self._crc = zlib.crc32(chunk, self._crc)
        self._offsets.append(self._offsets[-1] + len(chunk))
