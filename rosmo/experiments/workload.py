"""How far several runs are, and how long the rest of them will take."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from rosmo.runs.folder import RunFolder
from rosmo.runs.metrics import seconds_per_update


class Workload:
    """The updates of several runs.

    Runs that lie in one folder differ in nothing but their seeds, and so cost the same.

    Args:
        updates: how many each run takes in all; one that ends sooner, by its seconds, has then taken all.
    """

    def __init__(self, updates: Mapping[RunFolder, int]):
        self.total = sum(updates.values())
        self._updates = {folder.path: count for folder, count in updates.items()}
        self._done = dict.fromkeys(self._updates, 0)
        self._seconds: dict[Path, float] = {}
        self.look(updates)

    @property
    def done(self) -> int:
        """How many updates were taken, as of the last look."""
        return sum(self._done.values())

    def look(self, folders: Iterable[RunFolder]) -> int:
        """Reads how far some runs are, and returns how many updates that is more than before.

        A run that goes on from a checkpoint repeats some updates, which count once.
        """
        before = self.done
        for folder in folders:
            rows = folder.metrics.rows()
            if folder.finished():
                self._done[folder.path] = self._updates[folder.path]
            elif rows:
                self._done[folder.path] = max(self._done[folder.path], int(rows[-1]["step"]))
            if seconds := seconds_per_update(rows):
                self._seconds[folder.path.parent] = seconds
        return self.done - before

    def seconds_left(self, cores: int) -> float | None:
        """How long the rest takes with a run on each core, if any run has shown what an update costs.

        An update of a run like none that was seen is taken to cost the mean of the others.
        """
        if not self._seconds:
            return None
        mean = statistics.mean(self._seconds.values())
        left = {path: count - self._done[path] for path, count in self._updates.items()}
        return sum(count * self._seconds.get(path.parent, mean) for path, count in left.items()) / cores
