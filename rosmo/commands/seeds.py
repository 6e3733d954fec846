"""Several seeds of one run, each in a process of its own on a core of its own.

One single-threaded process per core is faster than all seeds vmapped in one program.
"""

import os
import signal
import subprocess
import sys
import time

from rosmo.commands.runs import open_run, seed_folders
from rosmo.progress import show
from rosmo.run import RunFolder

_POLL_SECONDS = 1.0


def train_all(folder: RunFolder) -> None:
    """Trains what is left of every seed; stops all of them when asked to."""
    training, _ = open_run(folder)
    folders = seed_folders(folder)
    cores = sorted(os.sched_getaffinity(0))
    waiting, running = list(folders), {}
    total = training.num_updates * len(folders)
    done = _done(folders)
    progress = show(total, f"{len(folders)} seeds of {training.environment}", unit="updates", done=done)
    try:
        while waiting or running:
            for core in [core for core in cores if core not in running][: len(waiting)]:
                running[core] = _start(waiting.pop(0), core)
            time.sleep(_POLL_SECONDS)
            now = _done(folders)
            if now > done:
                progress.advance(now - done)
                done = now
            for core, (each, process) in list(running.items()):
                if process.poll() is not None:
                    del running[core]
                    _refuse_failure(each, process.returncode)
    except BaseException as error:
        _stop([process for _, process in running.values()])
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"stopped, every seed is saved; go on with: rosmo train --resume {folder.path}"
            ) from error
        raise
    finally:
        progress.close()


def _start(folder: RunFolder, core: int) -> tuple[RunFolder, subprocess.Popen]:
    pin = f"import os; os.sched_setaffinity(0, [{core}])"  # before JAX counts the cores
    program = f"{pin}; import sys; from rosmo.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "train", "--resume", str(folder.path)]
    with (folder.path / "log.txt").open("ab") as log:
        # A session of its own: Ctrl-C reaches the parent, which stops the seeds and waits for them.
        return folder, subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _stop(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait()


def _refuse_failure(folder: RunFolder, code: int) -> None:
    if code:
        log = folder.path / "log.txt"
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise ChildProcessError(f"{folder.path} failed: {last[0]} (all of it in {log})")


def _done(folders: list[RunFolder]) -> int:
    return sum(int(rows[-1]["step"]) for each in folders if (rows := each.metrics.rows()))
