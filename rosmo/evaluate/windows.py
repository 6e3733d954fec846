"""Windows of held-out episodes, the same ones every time."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Integer

from rosmo.data import DataSet, FrameStore, HostSampler, StoreSampler
from rosmo.types import Trajectory

_WINDOWS, _BATCH = 4_096, 256  # at most, and together


class ChosenWindows:
    """Windows spread evenly over all steps with an action, in batches of one size.

    Args:
        data: the data set.
        window: steps in a window.
        num_actions: every real action lies below it.
        windows: how many at most.
        batch: how many at a time, at most.
    """

    def __init__(
        self, data: DataSet, window: int, num_actions: int, *, windows: int = _WINDOWS, batch: int = _BATCH
    ):
        settings = {"window": window, "num_actions": num_actions}
        if isinstance(data, FrameStore):
            self._sampler, self.columns = StoreSampler(data, **settings), data.columns()
        else:
            self._sampler = HostSampler(data, **settings)
            self.columns = vars(self._sampler.steps)
        self.steps = np.flatnonzero(~self.columns["is_last"])  # that windows begin with
        if not self.steps.size:
            raise ValueError("no held-out episode has a step with an action: hold out a larger share")
        count = min(windows, self.steps.size)
        self.batch = min(batch, count)
        count -= count % self.batch
        self.chosen = np.linspace(0, self.steps.size - 1, count).astype(np.int64)

    def batches(self, starts: Integer[np.ndarray, "starts"] | None = None) -> Iterator[Trajectory]:
        """Yields the chosen windows, or those that begin with given steps, by their order."""
        starts = self.chosen if starts is None else starts
        for begin in range(0, len(starts), self.batch):
            yield self._sampler.windows(starts[begin : begin + self.batch])
