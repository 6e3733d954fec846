"""How well scores tell which of several policies is best."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats


class Ranking(NamedTuple):
    """Scores of policies against their true returns.

    `correlation` is Spearman's, `regret` the best true return less that of the best of the k policies with
    the highest scores, by k. Policies without a score come last.
    """

    correlation: float
    regret: dict[int, float]


def rank(scores: Sequence[float], truth: Sequence[float], *, tops: Sequence[int] = (1, 3)) -> Ranking:
    """Holds scores against true returns, of which higher is better in both."""
    given, true = np.asarray(scores, float), np.asarray(truth, float)
    known = np.isfinite(given)
    varied = known.sum() > 1 and np.ptp(given[known]) > 0 and np.ptp(true[known]) > 0
    found: Any = stats.spearmanr(given[known], true[known]) if varied else None
    correlation = float(found.statistic) if varied else np.nan
    order = np.argsort(-np.where(known, given, -np.inf), kind="stable")
    return Ranking(correlation, {k: float(true.max() - true[order[:k]].max()) for k in tops})
