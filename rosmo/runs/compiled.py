"""Compiled programs that a later command need not compile again, in the user's cache directory.

JAX writes an entry in place, so that a killed process leaves a part of one, which every later process would
warn of. Here each process has a directory of its own, with links to what earlier ones left, and what it adds
is linked back when it ends: a part of an entry is never seen by another process.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax

from rosmo import __version__

SWITCH = "ROSMO_COMPILED"  # a directory to use in place of the user's cache directory, or "off"
LARGEST = 2**30  # bytes of all entries; beyond it the oldest go

_LEAST_SECONDS = 0.2  # of a compilation whose result is kept


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Has JAX keep what it compiles, unless that is switched off or JAX was told of a place already."""
    place = _place()
    if place is None or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # nobody asked for a cache: where none can be, there is none
            own = _begin(place, stack)
            stack.callback(_end, own, place)
            jax.config.update("jax_compilation_cache_dir", str(own))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
            # XLA's own caches would put the directory's name into every program, and so into its key.
            jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
        yield


def _place() -> Path | None:
    """Where entries are kept: apart for each kind of processor and each version, whose programs differ."""
    chosen = os.environ.get(SWITCH, "")
    if chosen == "off":
        return None
    root = Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rosmo")
    return root / f"compiled-{__version__}-jax{jax.__version__}-{_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:12]


def _begin(place: Path, stack: contextlib.ExitStack) -> Path:
    """Makes the directory of this process, with links to all entries, and clears up after others."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in place.glob("process-*"):
            if _is_abandoned(left):
                shutil.rmtree(left, ignore_errors=True)
        _bound(place, LARGEST)
        own = Path(tempfile.mkdtemp(prefix="process-", dir=place))
        fcntl.flock(stack.enter_context((own / ".lock").open("w")), fcntl.LOCK_EX)
        for entry in place.glob("*-cache"):
            _link(entry, own / entry.name)
    return own


def _is_abandoned(directory: Path) -> bool:
    """Whether the process that a directory belonged to is gone: its lock went with it."""
    try:
        with (directory / ".lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def _end(own: Path, place: Path) -> None:
    """Gives back what this process has added, and removes its directory."""
    jax.config.update("jax_compilation_cache_dir", None)
    with contextlib.suppress(OSError):
        for entry in own.glob("*-cache"):
            with contextlib.suppress(FileExistsError):
                _link(entry, place / entry.name)
    shutil.rmtree(own, ignore_errors=True)


def _bound(place: Path, largest: int) -> None:
    entries = sorted((entry.stat().st_mtime, entry) for entry in place.glob("*-cache"))
    size = sum(entry.stat().st_size for _, entry in entries)
    for _, entry in entries:
        if size <= largest:
            return
        size -= entry.stat().st_size
        entry.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Has two names for one file; a copy, appearing whole, where the file system has no such links."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        partial = target.with_name(f".{target.name}-{os.getpid()}")
        shutil.copyfile(source, partial)
        partial.rename(target)
