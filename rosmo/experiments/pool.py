"""Several runs at once, each in a process of its own on a core of its own.

One single-threaded process per core is faster than all seeds vmapped in one program (docs/benchmarks.md).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rosmo.experiments.workload import Workload
from rosmo.runs.folder import RunFolder
from rosmo.runs.progress import show

_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0

# A run goes to its core before JAX counts the cores, and ends when its standard input does, which is when the
# parent is gone, however that came about: a restarted parent finds no run still in use.
_WORKER = """
import os, sys, threading
os.sched_setaffinity(0, [int(sys.argv.pop(1))])
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
from rosmo.cli import main
sys.exit(main())
"""


def train_all(
    updates: Mapping[RunFolder, int], label: str, resume_with: str, extra: Sequence[str] = ()
) -> None:
    """Trains what is left of every run.

    A run that fails does not stop the others; Ctrl-C stops all, each with its state saved. What one run has
    compiled, the others need not compile again.

    Args:
        updates: runs that were begun, and how many updates each takes in all.
        label: what the progress display calls them.
        resume_with: the command that goes on after a stop.
        extra: further arguments of the command that trains a run.
    """
    folders = list(updates)
    # Beside the runs: whoever goes on after a kill has it, and in the end it is removed.
    compiled = Path(os.path.commonpath([folder.path.resolve() for folder in folders])) / ".compiled"
    work = Workload(updates)
    waiting = [folder for folder in folders if not folder.finished()]
    running: dict[int, tuple[RunFolder, subprocess.Popen]] = {}
    failures: list[str] = []
    progress = show(work.total, label, unit="updates", done=work.done)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # it stops the runs as Ctrl-C does
    try:
        while waiting or running:
            cores = sorted(os.sched_getaffinity(0))
            for core in [core for core in cores if core not in running][: len(waiting)]:
                running[core] = _start(waiting.pop(0), core, str(compiled), extra)
            time.sleep(_POLL_SECONDS)
            ended = [core for core, (_, process) in running.items() if process.poll() is not None]
            taken = work.look(folder for folder, _ in running.values())
            left = len(waiting) + len(running) - len(ended)
            progress.advance(taken, f"{left} run{'s' * (left != 1)} left", work.seconds_left(len(cores)))
            for core in ended:
                folder, process = running.pop(core)
                if process.stdin:
                    process.stdin.close()
                failures += _failure(folder, process.returncode)
    except BaseException as error:
        _stop([process for _, process in running.values()])
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"stopped, what was saved is kept; go on with: {resume_with}") from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.close()
        shutil.rmtree(compiled, ignore_errors=True)
    if failures:
        raise ChildProcessError(f"{len(failures)} of {len(folders)} runs failed; the first: {failures[0]}")


def _start(
    folder: RunFolder, core: int, compiled: str, extra: Sequence[str]
) -> tuple[RunFolder, subprocess.Popen]:
    command = [sys.executable, "-c", _WORKER, str(core), "train", "--resume", str(folder.path), *extra]
    folder.refuse_links()
    with folder.log.open("ab") as log:
        # A session of its own: Ctrl-C reaches the parent, which stops the runs and waits for them.
        pipes = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
        environment = {"JAX_COMPILATION_CACHE_DIR": compiled} | os.environ
        return folder, subprocess.Popen(command, env=environment, **pipes, start_new_session=True)


def _stop(processes: list[subprocess.Popen]) -> None:
    """Asks the runs to save and stop, again if they do not, and then makes them."""
    print(f"waiting for {len(processes)} runs to save", file=sys.stderr, flush=True)
    for order in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        for process in processes:
            process.send_signal(order)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.1)


def _failure(folder: RunFolder, code: int) -> list[str]:
    """Says at once, hours before the others may be done, what became of a run that failed."""
    if not code:
        return []
    last = folder.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
    end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    message = f"{folder.path} {end}: {last[0]} (all of it in {folder.log})"
    print(message, file=sys.stderr, flush=True)
    return [message]
