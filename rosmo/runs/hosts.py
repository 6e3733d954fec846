"""The processes that train one run together, on JAX's own runtime."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

HEARTBEAT_SECONDS = 20  # a process that was not heard of for so long is lost, and the others end
_GRACE_SECONDS = 10  # for a process that fails to be joined by the others in ending
_LONGEST_WAIT_MS = 24 * 3_600 * 1_000  # while one process collects data or evaluates

Resumes = Callable[[str], None]  # takes the command that goes on with a run


def join(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    """Makes this process one of several, before JAX is used for anything else.

    Args:
        coordinator: "HOST:PORT" of process 0, or "auto" where JAX can ask the cluster (TPU pods, Slurm,
            Kubernetes, Open MPI).
        num_processes: how many there are.
        process_id: which of them this is, from 0.
    """
    automatic = coordinator == "auto"
    host, _, port = coordinator.rpartition(":")
    if not automatic and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"--coordinator must be HOST:PORT or auto, got {coordinator!r}")
    if not automatic and (num_processes is None or process_id is None or not 0 <= process_id < num_processes):
        raise ValueError(
            "--coordinator HOST:PORT needs --num-processes N and --process-id I with I from 0 to N - 1, got "
            f"{num_processes} and {process_id}"
        )
    address = None if automatic else coordinator
    # Without an address of its own to listen on, process 0 would listen on every interface of its machine.
    listen = address if process_id == 0 else None
    if listen:
        _refuse_unusable(host, int(port))
    jax.distributed.initialize(
        address,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        coordinator_bind_address=listen,
    )
    # JAX notes a SIGTERM and goes on; until a run saves and stops at one, it ends the process as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _refuse_unusable(host: str, port: int) -> None:
    """Raises a ValueError where this machine could not listen on an address, or another program does."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as of one that has just ended
            probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"another program listens on {host}:{port} already: end it, or choose another port"
            ) from error
        raise ValueError(
            f"process 0 listens on the address of --coordinator, and {host}:{port} is none of this machine "
            f"({error}): start process 0 on {host}, or name an address of this one"
        ) from error
    if str(place[0]).startswith("127.") and host != "localhost" and not host.startswith("127."):
        print(  # as many systems have it of their own names, in /etc/hosts
            f"rosmo: {host} is {place[0]} on this machine, which no other machine can reach: if there are "
            "others, name an address that they see",
            file=sys.stderr,
        )


# JAX ends a process that lost the first one, or never met it, by SIGABRT, before Python could say a word:
# another process says it then. The last line that it was told of is what to say.
_WATCHER = """
import sys
lines = sys.stdin.read().splitlines()
if lines[-1]:
    print(lines[-1], file=sys.stderr, flush=True)
"""


@contextmanager
def watched(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Iterator[Resumes]:
    """Has what to type said of a process of several that ends without a word.

    What is yielded takes the command that goes on, once there is one: until then all begin again.

    Args:
        coordinator: as `join` is given it, or None for a process alone.
        num_processes: likewise.
        process_id: likewise.
    """
    if coordinator is None:
        yield lambda command: None
        return
    which = "one of several processes" if process_id is None else f"process {process_id} of {num_processes}"
    lost = f"rosmo: {which} was ended, or ended itself because it lost another one or never met it"
    command = [sys.executable, "-S", "-c", _WATCHER]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)
    assert watcher.stdin is not None
    stdin = watcher.stdin

    def say(what: str) -> None:
        print(what, file=stdin, flush=True)

    say(f"{lost}: start all of them again")
    try:
        yield lambda command: say(f"{lost}: start all of them again with {command}")
    finally:  # an exception says its own words
        watcher.communicate("\n")


@contextmanager
def ending_together() -> Iterator[None]:
    """Has a process that fails here end, also where the others do not: they then find that they lost it.

    JAX lets no process end before all do, which one with a mistake of its own would wait for in vain.
    """
    try:
        yield
    except BaseException as error:
        if jax.distributed.is_initialized():
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
            end = threading.Timer(_GRACE_SECONDS, os._exit, (code,))
            end.daemon = True
            end.start()
        raise


def is_first() -> bool:
    """Whether this process writes what is written once."""
    return jax.process_index() == 0


def wait_for_all(reason: str) -> None:
    """Waits until every process has come here, by the coordinator: collectives would give up first."""
    ocp.multihost.get_barrier_sync_fn()(key=f"rosmo_{reason}", timeout_ms=_LONGEST_WAIT_MS)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; all must ask."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.int32(flag))))


def first_alone(work: Callable[[], None], reason: str) -> None:
    """Does something in the first process; the others wait for it, and fail if it does."""
    error = None
    if is_first():
        try:
            work()
        except Exception as caught:
            error = caught
    wait_for_all(reason)
    failed = any_process(error is not None)
    if error is not None:
        raise error
    if failed:
        raise ChildProcessError("process 0 has stopped: its own message says why")
