"""What the files of a store hold."""

from pathlib import Path
from typing import Any

import numpy as np

INFO, FRAMES = "store.json", "frames.zst"
VERSION = 3
READABLE = (2, VERSION)  # the second's description has no checksum of itself
TABLES = ("steps.bin", "episodes.bin", "offsets.bin")
CHUNK = 16  # frames: about what a window of 5 imagined steps reads
STEP = np.dtype(
    [
        ("action", "<i4"),
        ("reward", "<f4"),
        ("discount", "<f4"),
        ("is_first", "?"),
        ("is_last", "?"),
        ("is_terminal", "?"),
    ]
)
ANY_ACTION = 2**31 - 1  # stands for the number of actions where it is not known
INDEX = np.dtype("<i8")  # of steps, and of bytes


def is_store(directory: Path) -> bool:
    """Whether a directory holds a store of frames, whole or damaged."""
    return any((directory / name).is_file() for name in (INFO, FRAMES))


def import_zstandard() -> Any:
    """Imports what frames are compressed with, or names the extra that brings it."""
    try:
        import zstandard
    except ImportError as error:
        raise ImportError('a store of frames needs zstandard: pip install "rosmo[atari]"') from error
    return zstandard
