"""The folder of a training run: its configuration, metrics, checkpoints, picture and versions."""

import contextlib
import csv
import fcntl
import importlib.metadata
import json
import math
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_PACKAGES = ("rosmo", "jax", "jaxlib", "equinox", "optax", "mctx", "numpy", "gin-config", "bsuite")
_EXTRAS = ("minatar", "ale-py", "opencv-python-headless", "opencv-python", "zstandard", "tensorflow-datasets")

BEGIN_AGAIN = "move the run's folder away, and begin it again"
_SCORE_AGAIN = "delete it, and the run is scored again when it goes on"


class Result(NamedTuple):
    """What came out of a run: the updates that it took, and the returns of its last evaluation."""

    step: int
    sampled: list[float]
    greedy: list[float]


class RunFolder:
    """Paths inside a run folder, and the small files that describe it."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.gin"
        self.operative_config = path / "operative_config.gin"
        self.settings = path / "settings.json"
        self.checkpoints = path / "checkpoints"
        self.curve = path / "learning_curve.png"
        self.result = path / "result.json"
        self.log = path / "log.txt"
        self.metrics = MetricsTable(path / "metrics.csv")

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.settings.exists()

    def finished(self) -> bool:
        """Whether the run took its last update and was scored."""
        return self.result.exists()

    def updates_taken(self) -> int:
        """How many updates are in its table of metrics."""
        rows = self.metrics.rows()
        return int(rows[-1]["step"]) if rows else 0

    def read_result(self) -> Result:
        """Returns what `finish` wrote."""
        with _readable(self.result, _SCORE_AGAIN):
            found = json.loads(self.result.read_text())
            result = Result(**{field: found[field] for field in Result._fields})
            for returns in (result.sampled, result.greedy):
                if not returns or not all(map(math.isfinite, returns)):
                    raise ValueError("it lacks returns, or has some that are not finite")
            return result

    def finish(self, result: Mapping) -> None:
        """Writes down what came out."""
        _write(self.result, json.dumps(dict(result), indent=2))

    def begin(self, config: str, settings: Mapping) -> None:
        """Writes down what is about to run."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.config, config)
        _write(self.path / "versions.json", json.dumps(versions(), indent=2))
        _write(self.settings, json.dumps(dict(settings), indent=2))  # last: its presence means a run

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other processes from training here; the system lets go even if this one is killed."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(f"another process is training in {self.path}") from error
            yield

    def read_settings(self) -> dict:
        """Returns what `begin` was given."""
        if not self.exists():
            raise FileNotFoundError(f"{self.path} is no run: it has no {self.settings.name}")
        with _readable(self.settings, BEGIN_AGAIN):
            return dict(json.loads(self.settings.read_text()))


class MetricsTable:
    """A table on disk that rows are appended to, each with a step."""

    def __init__(self, path: Path):
        self.path = path
        self._columns: list[str] | None = None

    def append(self, row: Mapping[str, float | int]) -> None:
        """Adds a row; cells that it leaves out are empty, and columns that it brings are added."""
        if self._columns is None:
            self._columns = self._existing_columns()
        if new := [name for name in row if name not in self._columns]:
            self._columns += new
            self._rewrite(self.rows())
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    def rows(self) -> list[dict[str, float | int]]:
        """Returns all complete rows; empty cells are left out."""
        if not self.path.exists():
            return []
        with _readable(self.path, BEGIN_AGAIN), self.path.open(newline="") as file:
            whole = [line for line in file if line.endswith("\n")]  # a row may be cut off by a kill
            return [
                {name: float(cell) for name, cell in row.items() if cell not in ("", None)}
                for row in csv.DictReader(whole)
                if None not in row.values()
            ]

    def truncate(self, step: int) -> None:
        """Drops what was logged after a step, which a resumed run will log again."""
        self._columns = self._existing_columns()
        if self.path.exists():
            self._rewrite([row for row in self.rows() if row["step"] <= step])

    def _rewrite(self, rows: Sequence[Mapping[str, float | int]]) -> None:
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._columns or [])
            writer.writeheader()
            writer.writerows({**row, "step": int(row["step"])} for row in rows)
        os.replace(temporary, self.path)

    def _existing_columns(self) -> list[str]:
        if not self.path.exists():
            return []
        header, newline, _ = self.path.read_text().partition("\n")
        return header.strip().split(",") if newline else []  # without its end it was cut off


def seconds_per_update(rows: Sequence[Mapping[str, float | int]]) -> float | None:
    """Returns the median over the rows of a run's table, if any has a rate."""
    rates = [row["updates_per_second"] for row in rows if "updates_per_second" in row]
    return 1 / statistics.median(rates) if rates else None


def versions() -> dict[str, str]:
    """Returns the versions of Python and, as far as they are installed, of what a result hangs on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES + _EXTRAS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


@contextlib.contextmanager
def _readable(path: Path, advice: str) -> Iterator[None]:
    """Says of a damaged file which one it is and what to do."""
    try:
        yield
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from error


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
