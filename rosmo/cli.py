"""The command line: `rosmo COMMAND`, with each command in a file of `rosmo/commands/`."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from rosmo.commands.parser import Mistake, parse

_MISTAKES = (ValueError, TypeError, KeyError, OSError, ImportError, FloatingPointError)
_GIN_ADDS = "\n  In call to configurable"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; a mistake of the user ends in one sentence, not in a traceback."""
    debug = False
    try:
        with _ending_at_once():
            args = _parse(sys.argv[1:] if arguments is None else arguments)
        debug = args.debug
        with contextlib.nullcontext() if debug else _said_once():
            args.run(args)
    except KeyboardInterrupt as stop:
        print(f"rosmo: {str(stop) or 'stopped'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except Mistake as mistake:
        print(f"rosmo: {mistake}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug:
            raise
        message = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        message = message.partition(_GIN_ADDS)[0]
        if not isinstance(error, _MISTAKES):
            message = f"{type(error).__name__}: {message} (--debug shows where)"
        print(f"rosmo: {message}", file=sys.stderr)
        return 1
    return 0


def program() -> NoReturn:
    """Runs the command of this process, which ends at once if it fails: what it said then is the last word.

    Threads of others may still wait for what never comes, such as a folder that is gone, or complain of it.
    """
    code = main()
    if code:
        with contextlib.suppress(OSError, ValueError):  # of a reader that is gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit()


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Has Orbax log no error: its threads hand what they meet to the one that waits, which ends by it."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return f"{os.sep}orbax{os.sep}" not in record.pathname

    logger = logging.getLogger("absl")
    logger.addFilter(is_of_others)
    try:
        yield
    finally:
        logger.removeFilter(is_of_others)


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """Has Ctrl-C end the process while packages are imported: an exception inside of JAX's would crash it."""

    def end(number: int, frame: Any) -> None:
        print("rosmo: stopped", file=sys.stderr, flush=True)
        os._exit(130)

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    try:
        return parse(words)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f'rosmo: the command line needs more packages: pip install "rosmo[run]" ({error})'
        ) from error


if __name__ == "__main__":
    program()
