"""Progress that people can see: a bar on a terminal, plain lines in a log."""

import sys
import time
from typing import Protocol, runtime_checkable

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 20.0


@runtime_checkable
class Progress(Protocol):
    """Work that advances towards a total."""

    def advance(self, amount: int, note: str = "") -> None:
        """Counts some work as done, with a word on how it goes."""
        ...

    def close(self) -> None:
        """Ends the display."""
        ...


def show(total: int, label: str, *, unit: str, done: int = 0, quiet: bool = False) -> Progress:
    """Starts the display of some work, of which part may have been done before; none at all if `quiet`."""
    if quiet:
        return _Silence()
    kind = _Bar if sys.stderr.isatty() else _Lines
    return kind(total, label, unit, done)


class _Silence:
    def advance(self, amount: int, note: str = "") -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, total: int, label: str, unit: str, done: int):
        settings = {"dynamic_ncols": True, "smoothing": 0.1, "unit": f" {unit}"}
        self._bar = tqdm(total=total, initial=done, desc=label, **settings)

    def advance(self, amount: int, note: str = "") -> None:
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(amount)

    def close(self) -> None:
        self._bar.close()


class _Lines:
    def __init__(self, total: int, label: str, unit: str, done: int):
        self._total, self._label, self._unit = total, label, unit
        self._before = self._done = done
        self._started = self._printed = time.monotonic()

    def advance(self, amount: int, note: str = "") -> None:
        self._done += amount
        now = time.monotonic()
        if not (amount and self._done >= self._total) and now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        rate = (self._done - self._before) / max(now - self._started, 1e-9)
        parts = [f"{self._label}: {self._done:,}/{self._total:,} {self._unit}"]
        if rate > 0:
            parts.append(f"{rate:,.1f}/s, {tqdm.format_interval((self._total - self._done) / rate)} left")
        print(", ".join([*parts, *filter(None, [note])]), file=sys.stderr, flush=True)

    def close(self) -> None:
        pass
