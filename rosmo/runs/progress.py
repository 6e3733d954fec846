"""Progress that people can see: a bar on a terminal, plain lines in a log."""

import sys
import time
from typing import Any, Protocol, runtime_checkable

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 20.0


@runtime_checkable
class Progress(Protocol):
    """Work that advances towards a total."""

    def advance(self, amount: int, note: str = "", seconds_left: float | None = None) -> None:
        """Counts some work as done, with a word on how it goes.

        Args:
            amount: what was done since the last call.
            note: the word.
            seconds_left: where more is known of the time left than the rate so far tells.
        """
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
    def advance(self, amount: int, note: str = "", seconds_left: float | None = None) -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, total: int, label: str, unit: str, done: int):
        settings = {"dynamic_ncols": True, "smoothing": 0.1, "unit": f" {unit}"}
        self._bar = _Estimated(total=total, initial=done, desc=label, **settings)

    def advance(self, amount: int, note: str = "", seconds_left: float | None = None) -> None:
        self._bar.seconds_left = seconds_left
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(amount)

    def close(self) -> None:
        self._bar.close()


class _Estimated(tqdm):
    """A bar that can be told how long the rest will take."""

    seconds_left: float | None = None

    @property
    def format_dict(self) -> dict[str, Any]:
        known = dict(super().format_dict)
        if self.seconds_left is None:
            return known
        left = self.format_interval(self.seconds_left)
        counts = "{n_fmt}/{total_fmt} [{elapsed}<" + left + ", {rate_fmt}{postfix}]"
        return known | {"bar_format": "{l_bar}{bar}| " + counts}


class _Lines:
    def __init__(self, total: int, label: str, unit: str, done: int):
        self._total, self._label, self._unit = total, label, unit
        self._before = self._done = done
        self._started = self._printed = time.monotonic()
        self._said: tuple[int, str] | None = None

    def advance(self, amount: int, note: str = "", seconds_left: float | None = None) -> None:
        self._done += amount
        now = time.monotonic()
        if not (amount and self._done >= self._total) and now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        if (self._done, note) == self._said:  # by whoever looks at work that others do
            return
        self._printed, self._said = now, (self._done, note)
        rate = (self._done - self._before) / max(now - self._started, 1e-9)
        parts = [f"{self._label}: {self._done:,}/{self._total:,} {self._unit}"]
        if seconds_left is None and rate > 0:
            seconds_left = (self._total - self._done) / rate
        parts += [f"{rate:,.1f}/s"] * (rate > 0)
        parts += [] if seconds_left is None else [f"{tqdm.format_interval(seconds_left)} left"]
        print(", ".join([*parts, *filter(None, [note])]), file=sys.stderr, flush=True)

    def close(self) -> None:
        pass
