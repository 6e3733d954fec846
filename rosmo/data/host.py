"""Windows of experience cut in host memory, for a data set that does not fit on the device."""

import collections
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jaxtyping import Integer

from rosmo.data.check import checked_steps
from rosmo.data.windows import draw_index
from rosmo.types import Keys, Trajectory

_AHEAD = 3  # batches that are prepared while the device computes


class HostSampler:
    """Cuts the batches that `WindowSampler` would draw for the same keys, a few ahead of their use.

    Batches hang on keys alone: a stop and a resume goes on with the very next one.
    """

    def __init__(self, steps: Trajectory, *, window: int, num_actions: int):
        """Checks a data set of steps `[N]`, episodes one after the other, and keeps it where it is."""
        self.steps, self.starts = checked_steps(steps, window=window, num_actions=num_actions)
        self.window = window
        self._draw = jax.jit(jax.vmap(lambda key: draw_index(key, self.starts.size)))

    def batch(self, keys: Keys) -> Trajectory:
        """Returns a batch `[B, window]`, one window for each key."""
        return self.windows(np.asarray(self._draw(keys)))

    def batches(self, keys_of_step: Callable[[int], Keys], first: int, count: int) -> Iterator[Trajectory]:
        """Yields the batches of `count` steps, the next ones being cut in the background."""
        return prefetch(lambda step: self.batch(keys_of_step(step)), first, count)

    def windows(self, index: Integer[np.ndarray, "batch"]) -> Trajectory:
        """Returns the windows that begin with given steps, by their order among those with an action."""
        rows = self.starts[index][:, None] + np.arange(self.window)
        return jax.tree.map(lambda x: np.take(x, rows, axis=0, mode="clip"), self.steps)


def prefetch(
    make: Callable[[int], Trajectory], first: int, count: int, *, workers: int = 1
) -> Iterator[Trajectory]:
    """Yields what `make` returns for `count` steps in order, the next ones being made in the background."""
    with ThreadPoolExecutor(workers) as pool:
        ahead = collections.deque()
        for step in range(first, first + count):
            ahead.append(pool.submit(make, step))
            if len(ahead) > _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
