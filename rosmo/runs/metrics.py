"""The table of a run: a row every so many updates, appended to, and read however a kill has left it."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rosmo.data.files import write_whole
from rosmo.runs.damage import BEGIN_AGAIN, readable

Row = Mapping[str, float | int]


class MetricsTable:
    """A table on disk that rows are appended to, each with a step."""

    def __init__(self, path: Path):
        self.path = path
        self._columns: list[str] | None = None

    def append(self, row: Row) -> None:
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
        with readable(self.path, BEGIN_AGAIN), self.path.open(newline="") as file:
            whole = [line for line in file if line.endswith("\n")]  # a row may be cut off by a kill
            rows = [
                {name: float(cell) for name, cell in row.items() if cell not in ("", None)}
                for row in csv.DictReader(whole)
                if None not in row.values()
            ]
            if any("step" not in row for row in rows):
                raise ValueError("it has rows without a step")
            return rows

    def truncate(self, step: int) -> None:
        """Drops what was logged after a step, which a resumed run will log again."""
        self._columns = self._existing_columns()
        if self.path.exists():
            self._rewrite([row for row in self.rows() if row["step"] <= step])

    def missing(self, step: int, every: int) -> list[int]:
        """Returns the steps that a run has lost the rows of, up to one that it has saved.

        Rows are those of every so many updates and, where the run ends between two of them, of its last.
        """
        there = {int(row["step"]) for row in self.rows()}
        logged = {*range(0, step + 1, every), *[step] * (step >= 0)}
        return sorted(logged - there)

    def _rewrite(self, rows: Sequence[Row]) -> None:
        lines = [self._columns or [], *([_cell(row, name) for name in self._columns or []] for row in rows)]
        write_whole(self.path, "".join(",".join(cells) + "\r\n" for cells in lines))

    def _existing_columns(self) -> list[str]:
        if not self.path.exists():
            return []
        with readable(self.path, BEGIN_AGAIN):
            header, newline, _ = self.path.read_text().partition("\n")
        return header.strip().split(",") if newline else []


def _cell(row: Row, name: str) -> str:
    return str(int(row[name])) if name == "step" else str(row.get(name, ""))


def seconds_per_update(rows: Sequence[Row]) -> float | None:
    """Returns the median over the rows of a run's table, if any has a rate."""
    rates = [row["updates_per_second"] for row in rows if "updates_per_second" in row]
    return 1 / statistics.median(rates) if rates else None
