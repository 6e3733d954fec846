"""Directories that appear whole or not at all, whatever stops their writer."""

import contextlib
import fnmatch
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rosmo.disk import refuse_unwritable

_DESCRIPTIONS = ("dataset_info.json", "store.json")  # of a TFDS data set, and of a store of frames
# All files of either. What else is in a directory is somebody's own.
_OWN = (*_DESCRIPTIONS, "features.json", "metadata.json", "*record*-of-*", "*.labels.txt", "frames.zst")
_OWN += ("steps.bin", "episodes.bin", "offsets.bin")


def refuse_existing(directory: str | Path, overwrite: bool) -> None:
    """Raises a FileExistsError where `write` would: ask before the work that makes the episodes.

    Args:
        directory: where a data set is to go; a missing or empty directory is free.
        overwrite: allows a data set there, which is then to be replaced, but nothing else.
    """
    directory = Path(directory).expanduser().resolve()
    refuse_unwritable(directory)
    if vacant(directory):
        return
    if not any((directory / name).exists() for name in _DESCRIPTIONS):
        raise FileExistsError(f"{directory} exists and is no data set: choose another directory")
    if not overwrite:
        raise FileExistsError(
            f"there is a data set in {directory}: overwrite=True (--overwrite) would replace it"
        )
    foreign = sorted(path.name for path in directory.iterdir() if not _is_own(path))
    if foreign:
        raise FileExistsError(
            f"{directory} has more in it than a data set, which replacing it would delete "
            f"({', '.join(foreign)}): move that away, or choose another directory"
        )


@contextlib.contextmanager
def replacing(directory: Path, overwrite: bool) -> Iterator[Path]:
    """Yields an empty directory that takes the place of `directory` when the body succeeds."""
    temporary, previous = siblings(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = _claim(temporary, directory)
    try:
        _recover(previous, directory)
        refuse_existing(directory, overwrite)
        yield temporary
        with disk_errors(directory):
            for path in temporary.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            if not vacant(directory):
                directory.rename(previous)
            temporary.rename(directory)
        shutil.rmtree(previous, ignore_errors=True)
    except BaseException:
        _recover(previous, directory)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(lock)


@contextlib.contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Says of a failed write which data set it was, and that nothing is lost."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # array_record reports a full disk as a RuntimeError
        raise OSError(
            f"could not write the data set {directory} ({error}): nothing of it is kept, and what was there "
            "before is as it was"
        ) from error


def siblings(directory: Path) -> tuple[Path, Path]:
    """Names, on the same file system, what is being written and what is being replaced."""
    return (
        directory.with_name(f".{directory.name}.incomplete"),
        directory.with_name(f".{directory.name}.previous"),
    )


def vacant(directory: Path) -> bool:
    """Tells whether nothing is there, or an empty directory."""
    return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))


def _is_own(path: Path) -> bool:
    """Whether a file is one of those that data sets consist of."""
    return path.is_file() and any(fnmatch.fnmatch(path.name, pattern) for pattern in _OWN)


def _recover(previous: Path, directory: Path) -> None:
    """Tidies up after a writer that was stopped between the two renames, or just after them."""
    if previous.exists() and vacant(directory):
        previous.rename(directory)
    shutil.rmtree(previous, ignore_errors=True)


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
