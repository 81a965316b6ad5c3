"""What a comparison means: the interval of a difference over folds, and which method to use."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

from anyloss._core.backend import Array
from anyloss.tabular.result import Baseline, Comparison

LEVEL = 0.95


def corrected_interval(differences: Array, folds: int) -> tuple[float, float]:
    """The 95 % interval of a mean difference over repeated folds, with the corrected variance.

    >>> low, high = corrected_interval(np.array([0.1, 0.2, 0.3, 0.2, 0.2]), folds=5)
    >>> round(low, 4), round(high, 4)
    (0.0683, 0.3317)
    """
    n = len(differences)
    error = np.sqrt((1 / n + 1 / (folds - 1)) * differences.var(ddof=1))
    width = float(student.ppf((1 + LEVEL) / 2, n - 1) * error)
    mean = float(differences.mean())
    return mean - width, mean + width


def recommendation(found: Comparison) -> str:
    """Which method to use: a better one, else a simpler one that is as good, else our recipe."""
    better = [x for x in found.baselines if x.interval[1] < 0]
    if better:
        best = max(better, key=lambda x: x.score)
        return (
            f"Recommendation: use {best.name}. It is better than anyloss on this table "
            f"({_difference(best)})."
        )
    for other in found.baselines:
        if other.interval[0] <= 0 and not other.trivial:
            return (
                f"Recommendation: use {other.name}. It is simpler than anyloss, and these folds "
                f"show no clear difference ({_difference(other)})."
            )
    return (
        "Recommendation: use anyloss. It is better than each of the other methods on this table, "
        f"with a mean score of {found.score:.4f}."
    )


def _difference(baseline: Baseline) -> str:
    low, high = baseline.interval
    return (
        f"anyloss minus this method: {baseline.difference:+.4f}, 95 % interval: {low:+.4f} to "
        f"{high:+.4f}"
    )
