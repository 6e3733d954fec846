"""What the returns of several episodes come to."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Scores(NamedTuple):
    """Returns of several episodes, summed up."""

    episodes: int
    mean: float
    stderr: float
    iqm: float


def summarise(returns: Float[np.ndarray, "episodes"]) -> Scores:
    """Sums returns up by their mean, its standard error, and the mean of the middle half (IQM)."""
    from scipy import stats  # takes half a second, and not everything that plays sums up

    stderr = returns.std(ddof=1) / np.sqrt(returns.size) if returns.size > 1 else np.nan
    iqm = stats.trim_mean(returns, proportiontocut=0.25)
    return Scores(returns.size, float(returns.mean()), float(stderr), float(iqm))
