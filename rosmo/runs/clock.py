"""How long a run has trained, evaluations and stops left out."""

import os
import time
from collections.abc import Sequence

import jax

from rosmo.runs.metrics import Row


def now() -> float:
    """Returns the seconds of a clock.

    A run that has one core to itself counts the time that it was given of it: what else runs on the machine
    then changes no comparison at equal seconds.
    """
    one_core = len(os.sched_getaffinity(0)) == 1 and jax.default_backend() == "cpu"
    return time.process_time() if one_core else time.perf_counter()


def seconds_trained(rows: Sequence[Row]) -> float:
    """Returns how long a run had trained when it logged the last of its rows."""
    return max((float(row["seconds"]) for row in rows if "seconds" in row), default=0.0)
