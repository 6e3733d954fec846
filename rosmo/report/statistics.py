"""Aggregates over environments and seeds with stratified bootstrap intervals, through rliable."""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

Scores = Float[np.ndarray, "_seeds _environments"]
Name = TypeVar("Name", bound=Hashable)
REPETITIONS = 5_000  # of a bootstrap
_SEED = 0


class Estimate(NamedTuple):
    """A number and its 95% interval, which a single seed does not have."""

    value: float
    interval: tuple[float, float] | None


class Profile(NamedTuple):
    """The share of runs that score above each threshold, and its 95% interval."""

    share: list[float]
    low: list[float] | None
    high: list[float] | None


def mean_and_std(values: Sequence[float]) -> dict[str, float | None]:
    """Returns the mean and the standard deviation over seeds, of which a single one has none."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": std}


def iqm(scores: Mapping[Name, Scores], repetitions: int = REPETITIONS) -> dict[Name, Estimate]:
    """Returns the interquartile mean of each method's scores: the mean of the middle half of all runs."""
    metrics = _rliable()[1]
    return _estimates(scores, lambda x: np.array([metrics.aggregate_iqm(x)]), repetitions)


def improvement(
    pairs: Mapping[Name, tuple[Scores, Scores]], repetitions: int = REPETITIONS
) -> dict[Name, Estimate]:
    """Returns how probable it is that a run of the first of two methods beats one of the second."""
    return _estimates(pairs, lambda x, y: np.array([probability_of_improvement(x, y)]), repetitions)


def probability_of_improvement(x: Scores, y: Scores) -> np.float64:
    """Returns P(X > Y) over pairs of runs, a tie as a half, averaged over the environments.

    Equal to rliable's function of the name, without its test of significance in each of the bootstrap's
    samples, which takes forty times as long.
    """
    differences = x[:, None] - y[None]
    return np.mean((differences > 0) + 0.5 * (differences == 0))


def profiles(
    scores: Mapping[Name, Scores],
    thresholds: Float[np.ndarray, "thresholds"],
    repetitions: int = REPETITIONS,
) -> dict[Name, Profile]:
    """Returns the performance profile of each method."""
    library, _ = _rliable()

    def share(x: Scores, taus: np.ndarray) -> np.ndarray:
        return np.mean(x[..., None] > taus, axis=(0, 1))

    found = {}
    for name, x in scores.items():
        if len(x) < 2:
            found[name] = Profile(share(x, thresholds).tolist(), None, None)
            continue
        with _seeded():
            value, interval = library.create_performance_profile(
                {name: x}, thresholds, custom_profile_func=share, reps=repetitions
            )
        found[name] = Profile(value[name].tolist(), *interval[name].tolist())
    return found


def _estimates(scores: Mapping, function: Callable, repetitions: int) -> dict:
    library, _ = _rliable()
    found = {}
    for name, x in scores.items():
        parts = x if isinstance(x, tuple) else (x,)
        if min(map(len, parts)) < 2:
            found[name] = Estimate(float(function(*parts)[0]), None)
            continue
        with _seeded():
            value, interval = library.get_interval_estimates({name: x}, function, reps=repetitions)
        low, high = interval[name][:, 0].tolist()
        found[name] = Estimate(float(value[name][0]), (low, high))
    return found


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Seeds NumPy's global generator, the one that rliable draws from whatever it is passed, for a while."""
    before = np.random.get_state()
    np.random.seed(_SEED)
    try:
        yield
    finally:
        np.random.set_state(before)


def _rliable() -> tuple[ModuleType, ModuleType]:
    try:
        from rliable import library, metrics
    except ImportError as error:
        raise ImportError(f'a report needs rliable: pip install "rosmo[report]" ({error})') from error
    return library, metrics
