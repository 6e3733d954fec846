"""The processes that train one run together, on JAX's own runtime."""

import os
import signal
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
    jax.distributed.initialize(
        address, num_processes, process_id, heartbeat_timeout_seconds=HEARTBEAT_SECONDS
    )
    # JAX notes a SIGTERM and goes on; until a run saves and stops at one, it ends the process as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


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
