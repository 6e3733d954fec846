"""Windows of experience read from a store on disk, for a data set that does not fit in memory."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Integer

from rosmo.data.host import prefetch
from rosmo.data.store import FrameStore
from rosmo.data.windows import draw_index
from rosmo.types import Keys, Trajectory

_MOST_WORKERS = 4  # batches that are read at a time


class StoreSampler:
    """Reads the batches that `WindowSampler` would draw for the same keys, a few ahead of their use.

    Windows begin uniformly at any step with an action. They hold every frame once: `stack_frames` makes
    observations of them on the device. Batches hang on keys alone, and each row on its own key: a stop and a
    resume goes on with the very next one, and one host of several reads the rows that it has the keys of.
    Memory holds the few batches that are ahead, however large the store.
    """

    def __init__(self, store: FrameStore, *, window: int, num_actions: int):
        """Takes a store whose actions lie below `num_actions`."""
        if store.num_actions > num_actions:
            raise ValueError(
                f"{store.path} has an action outside 0…{num_actions - 1}: it has {store.num_actions} actions"
            )
        self.store, self.window = store, window
        self._draw = jax.jit(jax.vmap(lambda key: draw_index(key, store.num_starts)))

    def batch(self, keys: Keys) -> Trajectory:
        """Returns a batch `[B, window]` of single frames, one window for each key."""
        return self.windows(np.asarray(self._draw(keys)))

    def windows(self, index: Integer[np.ndarray, "batch"]) -> Trajectory:
        """Returns the windows that begin with given steps, by their order among those with an action."""
        return self.store.read(index, self.window)

    def batches(self, keys_of_step: Callable[[int], Keys], first: int, count: int) -> Iterator[Trajectory]:
        """Yields the batches of `count` steps, the next ones being read in the background."""
        host = _host()

        def make(step: int) -> Trajectory:
            # An accelerator would draw them after the updates that it has been given.
            with jax.default_device(host):
                return self.batch(keys_of_step(step))

        workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
        return prefetch(make, first, count, workers=workers)


def _host() -> Any:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use the accelerator alone
        return None
