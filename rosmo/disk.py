"""Whether there is a place for what is to be written."""

import os
from pathlib import Path


def refuse_unwritable(path: Path) -> None:
    """Raises a NotADirectoryError where nothing can be made at `path`: ask before the work that makes it."""
    path = path.expanduser().resolve()
    place = next(parent for parent in path.parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise NotADirectoryError(
            f"{path} cannot be made, as {place} is no directory that can be written to: choose another"
        )
