"""The best threshold for a metric, found exactly by one sweep over the sorted scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import ROUNDING, Constraint, ConstraintSpec, read_constraints
from anyloss._core.counts import Counts
from anyloss._core.documents import documented
from anyloss._core.scoring import check_finite
from anyloss._core.shapes import as_numbers
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric


class Threshold(NamedTuple):
    """A threshold and the score that it reaches; the result of `best_threshold`.

    It is a named tuple, so that `threshold, score = best_threshold(y_true, y_score)` works.

    Attributes:
        threshold (float): a sample is predicted positive if its score is above the threshold.
        score (float): the metric of these decisions.

    Examples:
        >>> found = best_threshold([0, 1, 1], [0.2, 0.4, 0.9], "f1")
        >>> round(found.threshold, 3), found.score
        (0.3, 1.0)
    """

    threshold: float
    score: float


class Infeasible(ValueError):
    """No threshold satisfies the constraints."""


@documented
def best_threshold(
    y_true: Array,
    y_score: Array,
    metric: MetricSpec | Metric = "f1",
    *,
    constraints: ConstraintSpec | None = None,
    weight: Array | None = None,
) -> Threshold:
    """Find the threshold at which the metric of `y_score > threshold` is highest.

    The search is exact: it evaluates the metric at every possible split of the samples, at the cost
    of one sort. The threshold is midway between two neighbouring scores. If several splits are
    best, the middle one is taken. With constraints, only the splits that satisfy all of them on
    these samples are compared; `anyloss.certify` tests a constraint for new data.

    Args:
        y_true (array-like): the labels, from 0 to 1.
        y_score (array-like): the scores: probabilities, logits or any other finite numbers. A
            threshold for float32 scores is a float32 number, so that comparisons with it are exact.
        constraints (str or list of str, optional): constraints such as `"recall >= 0.9"`, each a
            metric (a name or a formula), `>=` or `<=`, and a number. Several hold jointly.
        weight (array-like, optional): one weight per sample. A weight of 2 equals the sample twice.

    Shape:
        - `y_true`, `y_score` and `weight`: `(n,)`, with at least one sample.

    Returns:
        Threshold: the threshold and its score, as a named tuple.

    Raises:
        ValueError: if the columns are empty or of different lengths, a value is out of range, the
            metric is unknown or not finite, or no threshold satisfies the constraints.
        TypeError: if scores or labels are not numbers.

    Examples:
        >>> y, scores = [0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.7]
        >>> best_threshold(y, scores, "f1")
        Threshold(threshold=0.25, score=0.8571428571428571)
        >>> best_threshold(y, scores, "f1", constraints="precision >= 0.9")
        Threshold(threshold=0.45, score=0.8)
    """
    chosen, required = find_metric(metric), read_constraints(constraints)
    y, s, w = columns(y_true, y_score, weight)
    cuts, cells = sweep(y, s, w)
    scores = _scores(chosen, cells, cuts)
    middle = middle_of_best(np.where(_feasible(required, cells, cuts), scores, -np.inf))
    return Threshold(float(cuts[middle]), float(scores[middle]))


def nearest_threshold(
    y_true: Array, y_score: Array, metric: Metric, constraints: tuple[Constraint, ...],
    weight: Array | None = None,
) -> Threshold:  # fmt: skip
    """The best threshold under constraints; where none satisfies them, the one nearest to it.

    >>> y, scores = [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]
    >>> nearest_threshold(y, scores, find_metric("recall"), read_constraints("precision >= 2"))
    Threshold(threshold=0.35, score=0.5)
    """
    cuts, cells = sweep(*columns(y_true, y_score, weight))
    scores, least = _scores(metric, cells, cuts), np.zeros(cuts.shape)
    for each in constraints:
        excess = each.excess(_scores(each.metric, cells, cuts))
        least = np.minimum(least, np.where(excess >= -ROUNDING, 0.0, excess))
    at = middle_of_best(np.where(least == least.max(), scores, -np.inf))
    return Threshold(float(cuts[at]), float(scores[at]))


def _scores(chosen: Metric, cells: Counts, cuts: Array) -> Array:
    scores = np.broadcast_to(chosen(*cells), cuts.shape)
    check_finite(cells, [scores], chosen)
    return scores


def _feasible(constraints: tuple[Constraint, ...], cells: Counts, cuts: Array) -> Array:
    """Where all constraints hold; if nowhere, an error names the best value that is reachable."""
    feasible = np.ones(cuts.shape, dtype=bool)
    for number, each in enumerate(constraints):
        values = _scores(each.metric, cells, cuts)
        before, feasible = feasible, feasible & each.holds(values)
        if not feasible.any():
            rest = " and ".join(f"'{x}'" for x in constraints[:number])
            reached = (values[before].max if each.at_least else values[before].min)()
            raise Infeasible(
                f"no threshold satisfies '{each}'{' together with ' * bool(rest)}{rest}; the "
                f"{'highest' if each.at_least else 'lowest'} value that these scores reach is "
                f"{reached:.6g}. Relax the constraint, or use better scores"
            )
    return feasible


def columns(y_true: Array, y_score: Array, weight: Array | None) -> tuple[Array, Array, Array]:
    """Labels, scores and weights as NumPy columns, checked."""
    y, s = as_numbers(y_true, y_score)
    y, s = y.astype(float), s if s.dtype.kind == "f" else s.astype(float)
    w = np.ones(y.shape) if weight is None else np.asarray(weight, dtype=float)
    if y.ndim != 1 or y.shape != s.shape or y.shape != w.shape or not len(y):
        raise ValueError(
            "labels, scores and weights must be columns of one length, with at least one sample; "
            f"got shapes {y.shape}, {s.shape} and {w.shape}"
        )
    if not (np.isfinite(s).all() and np.isfinite(w).all() and (w >= 0).all()):
        raise ValueError(
            "scores must be finite, and weights finite and not negative; got scores from "
            f"{s.min()} to {s.max()} and weights from {w.min()} to {w.max()}"
        )
    if not ((y >= 0) & (y <= 1)).all():
        raise ValueError(f"labels must lie in [0, 1]; got {y.min()} to {y.max()}")
    return y, s, w


def middle_of_best(scores: Array, same: float = 0.0) -> int:
    """The place of the best score; of several that differ by at most `same`, the middle one.

    >>> middle_of_best(np.array([0.5, 0.7, 0.7, 0.7, 0.6]))
    2
    """
    best = np.flatnonzero(scores >= scores.max() - same)
    return int(best[len(best) // 2])


def sweep(y: Array, s: Array, w: Array) -> tuple[Array, Counts]:
    """All thresholds, from "all positive" to "none positive", with the counts that they give.

    There is one threshold below the distinct scores, one between each two of them, and the highest
    score.

    >>> cuts, cells = sweep(np.array([0, 1, 1]), np.array([0.25, 0.5, 1.0]), np.ones(3))
    >>> cuts[1:], cells.tp, cells.fp
    (array([0.375, 0.75 , 1.   ]), array([2., 2., 1., 0.]), array([1., 0., 0., 0.]))
    """
    order = np.argsort(s, kind="stable")
    s, positive, negative = s[order], (w * y)[order], (w * (1 - y))[order]
    cuts, first = cuts_between(s)
    # The sums run from both ends, so that no count is a difference of large numbers.
    tp, fp = (sums_above(x, first) for x in (positive, negative))
    fn, tn = (_sums_below(x, first) for x in (positive, negative))
    return cuts, Counts(tp, fn, fp, tn)


def cuts_between(s: Array) -> tuple[Array, Array]:
    """The thresholds between sorted scores, and the number of samples below each."""
    first = np.flatnonzero(np.append(True, s[1:] > s[:-1]))  # of each distinct score
    low, high = s[first][:-1], s[first][1:]
    between = low / 2 + high / 2
    between = np.where((between >= low) & (between < high), between, low)
    below = np.nextafter(s[:1], s.dtype.type(-np.inf))
    return np.concatenate([below, between, s[-1:]]), np.append(first, len(s))


def sums_above(x: Array, first: Array) -> Array:
    """The sums of the entries from each place on."""
    return np.append(x[::-1].cumsum()[::-1], 0.0)[first]


def _sums_below(x: Array, first: Array) -> Array:
    return np.append(0.0, x.cumsum())[first]
