"""Places for what is to be written, and directories and files that appear whole or not at all."""

import contextlib
import fnmatch
import functools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_DESCRIPTIONS = ("dataset_info.json", "store.json")  # of a TFDS data set, and of a store of frames
# All files of either. What else is in a directory is somebody's own.
_OWN = (*_DESCRIPTIONS, "features.json", "metadata.json", "*record*-of-*", "*.labels.txt", "frames.zst")
_OWN += ("steps.bin", "episodes.bin", "offsets.bin")


def refuse_unwritable(path: Path) -> None:
    """Raises a NotADirectoryError where nothing can be made at `path`: ask before the work that makes it."""
    path = path.expanduser().resolve()
    place = next(parent for parent in path.parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise NotADirectoryError(
            f"{path} cannot be made, as {place} is no directory that can be written to: choose another"
        )


def refuse_existing(directory: str | Path, overwrite: bool) -> None:
    """Raises a FileExistsError where `write` would: ask before the work that makes the episodes.

    Args:
        directory: where a data set is to go; a missing or empty directory is free.
        overwrite: allows a data set there, which is then to be replaced, but nothing else.
    """
    directory = Path(directory).expanduser().resolve()
    refuse_unwritable(directory)
    _refuse_links(directory)
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


def refuse_occupied(directory: Path) -> None:
    """Raises a FileExistsError where `appearing` would: ask before the work that fills the directory."""
    refuse_unwritable(directory)
    _refuse_links(directory)
    if not vacant(directory):
        raise FileExistsError(f"{directory} is there already: choose another folder, or move it away")


@contextlib.contextmanager
def appearing(directory: Path) -> Iterator[Path]:
    """Yields an empty directory, to be filled with files and folders, that becomes `directory` at the end."""
    with (
        _written(directory, functools.partial(refuse_occupied, directory), "") as made,
        disk_errors(directory, ""),
    ):
        yield made


@contextlib.contextmanager
def replacing(directory: Path, overwrite: bool) -> Iterator[Path]:
    """Yields an empty directory that takes the place of the data set in `directory` at the end."""
    refuse = functools.partial(refuse_existing, directory, overwrite)
    with _written(directory, refuse, "the data set ") as temporary:
        yield temporary


@contextlib.contextmanager
def _written(directory: Path, refuse: Callable[[], None], what: str) -> Iterator[Path]:
    """Yields an empty directory that takes the place of `directory` when the body succeeds."""
    _refuse_links(directory)
    temporary, previous = siblings(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    lock = _claim(temporary, directory)
    try:
        _recover(previous, directory)
        refuse()
        yield temporary
        with disk_errors(directory, what):
            for path in filter(Path.is_file, temporary.rglob("*")):
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
def replacing_file(path: Path) -> Iterator[Path]:
    """Yields a new, empty file beside `path` that takes its place when the body succeeds.

    What a writer that was stopped left under its name goes first. A link there is removed and not followed.
    """
    temporary = path.with_name(f".incomplete-{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error}): choose another place") from error
    try:
        yield temporary
        os.fsync(file)
        if not _is_at(file, temporary):
            raise RuntimeError(f"another process is writing {path}: wait for it, or choose another place")
        temporary.replace(path)
    finally:
        if _is_at(file, temporary):
            temporary.unlink()
        os.close(file)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file that is there whole or as it was before."""
    with replacing_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def disk_errors(directory: Path, what: str = "the data set ") -> Iterator[None]:
    """Says of a failed write which data set it was, or what else, and that nothing is lost."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # array_record reports a full disk as a RuntimeError
        raise OSError(
            f"could not write {what}{directory} ({error}): nothing of it is kept, and what was there "
            "before is as it was"
        ) from error


def siblings(directory: Path) -> tuple[Path, Path]:
    """Names, on the same file system, what is being written and what is being replaced."""
    return (
        directory.with_name(f".{directory.name}.incomplete"),
        directory.with_name(f".{directory.name}.previous"),
    )


def _refuse_links(directory: Path) -> None:
    for place in siblings(directory):
        if place.is_symlink():  # what it leads to is not ours to empty
            raise FileExistsError(
                f"{place} is a symbolic link where {directory} is to be written by way of: remove the link"
            )


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open is what stands at a path itself, and not behind a link there."""
    return os.path.lexists(path) and os.path.samestat(os.fstat(descriptor), path.lstat())


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
    lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError:
            pass  # a file system without locks
        if not _is_at(lock, temporary):
            raise busy  # the other finished in between, and what we hold is its data set
        for name in os.listdir(lock):  # of what is held, whatever stands at its path by now
            inside = os.stat(name, dir_fd=lock, follow_symlinks=False)
            remove = shutil.rmtree if stat.S_ISDIR(inside.st_mode) else os.unlink
            remove(name, dir_fd=lock)
    except BaseException:
        os.close(lock)
        raise
    return lock
