"""The threshold that is best for a metric: exact, by one sweep over the sorted scores.

With several classes there is one threshold per class; they are swept in turn, each exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts, averaged, check_finite, counts_of_sums
from anyloss._core.shapes import Layout
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric


class Threshold(NamedTuple):
    """A threshold and the score it reaches: a row is positive where its score lies above it."""

    threshold: float
    score: float


def best_threshold(
    y_true: Array,
    y_score: Array,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: Array | None = None,
) -> Threshold:
    """The threshold at which the metric of `y_score > threshold` is highest, and that score.

    Scores may be probabilities, logits or any numbers. All splits of the rows are tried, at the
    price of one sort; the threshold lies midway between two scores and is a number of their own
    type, so that float32 scores compare with it as they should. Of several best splits the middle
    one is taken.

    >>> best_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.7], "f1")
    Threshold(threshold=0.25, score=0.8571428571428571)
    """
    chosen = find_metric(metric)
    s = np.asarray(y_score)
    if s.dtype.kind not in "fiub" or np.asarray(y_true).dtype.kind not in "fiub":
        raise TypeError(
            f"labels and scores must be numbers; got {np.asarray(y_true).dtype} labels, "
            f"{s.dtype} scores"
        )
    s = s if s.dtype.kind == "f" else s.astype(float)
    y = np.asarray(y_true, dtype=float)
    w = np.ones(y.shape) if weight is None else np.asarray(weight, dtype=float)
    if y.ndim != 1 or y.shape != s.shape or y.shape != w.shape or not len(y):
        raise ValueError(
            "labels, scores and weights must be columns of one length, with at least one row; "
            f"got {y.shape}, {s.shape} and {w.shape}"
        )
    if not (np.isfinite(s).all() and np.isfinite(w).all() and (w >= 0).all()):
        raise ValueError("scores and weights must be finite, and weights not negative")
    if not ((y >= 0) & (y <= 1)).all():
        raise ValueError(f"labels must lie in [0, 1]; got {y.min()} to {y.max()}")
    cuts, cells = sweep(y, s, w)
    scores = np.broadcast_to(chosen(*cells), cuts.shape)
    check_finite(cells, [scores], chosen)
    best = np.flatnonzero(scores == scores.max())
    middle = best[len(best) // 2]
    return Threshold(float(cuts[middle]), float(scores[middle]))


def sweep(y: Array, s: Array, w: Array) -> tuple[Array, Counts]:
    """Every cut from "all positive" to "none positive", with the counts it gives.

    There is one cut below the distinct scores, one between each two, and the highest of them.

    >>> cuts, cells = sweep(np.array([0, 1, 1]), np.array([0.25, 0.5, 1.0]), np.ones(3))
    >>> cuts[1:], cells.tp, cells.fp
    (array([0.375, 0.75 , 1.   ]), array([2., 2., 1., 0.]), array([1., 0., 0., 0.]))
    """
    order = np.argsort(s, kind="stable")
    s, positive, negative = s[order], (w * y)[order], (w * (1 - y))[order]
    cuts, first = _cuts(s)
    # Sums from the top and from the bottom: no cell is a difference of large numbers.
    tp, fp = (_sums_above(x, first) for x in (positive, negative))
    fn, tn = (_sums_below(x, first) for x in (positive, negative))
    return cuts, Counts(tp, fn, fp, tn)


def _cuts(s: Array) -> tuple[Array, Array]:
    """The cuts between sorted scores, and how many rows lie below each."""
    first = np.flatnonzero(np.append(True, s[1:] > s[:-1]))  # the first row of each distinct score
    low, high = s[first][:-1], s[first][1:]
    between = low / 2 + high / 2
    between = np.where((between >= low) & (between < high), between, low)
    below = np.nextafter(s[:1], s.dtype.type(-np.inf))
    return np.concatenate([below, between, s[-1:]]), np.append(first, len(s))


def _sums_above(x: Array, first: Array) -> Array:
    return np.append(x[::-1].cumsum()[::-1], 0.0)[first]


def _sums_below(x: Array, first: Array) -> Array:
    return np.concatenate([np.zeros_like(x[:1]), x.cumsum(axis=0)])[first]


def best_offsets(
    y_true: Array,
    y_score: Array,
    metric: Metric,
    *,
    average: str | None,
    multiclass: bool,
    weight: Array,
) -> tuple[Array, float]:
    """What to subtract from the scores `(n, C)` of each class for the best averaged metric.

    Multilabel rows then carry the classes with a score above 0, multiclass rows the class with the
    highest one. Each class is swept exactly while the others rest, in turn, until nothing improves;
    one that cannot improve the metric, such as a label that never occurs, stays where it is.

    >>> y, scores = np.eye(3), np.array([[3, 2, 2], [3, 2.75, 0], [3, 0, 2.75]])
    >>> best_offsets(
    ...     y, scores, find_metric("recall"), average="macro", multiclass=True, weight=np.ones(3)
    ... )
    (array([0.625, 0.   , 0.   ]), 1.0)
    """
    scores, offsets = np.array(y_score, dtype=float), np.zeros(y_true.shape[1])
    lay = Layout("multiclass" if multiclass else "multilabel", average, y_true.shape[1])

    def scored(cells: Counts, rows: int) -> Array:
        found = averaged(metric, cells, lay, NUMPY, hard=True).score.value
        check_finite(cells, [found], metric)
        return np.broadcast_to(found, (rows, 1))[:, 0]

    best = float(scored(_called(y_true, scores, weight, multiclass), 1)[0])
    for _ in range(5):
        before = best
        for k in range(y_true.shape[1]):
            cuts, cells = _class_sweep(y_true, scores, weight, k, multiclass)
            reached = scored(cells, len(cuts))
            if reached.max() > best + 1e-12:
                top = np.flatnonzero(reached == reached.max())
                cut = cuts[top[len(top) // 2]]
                scores[:, k] -= cut
                offsets[k] += cut
                best = float(reached.max())
        if best == before:
            break
    return offsets, best


def _called(y: Array, z: Array, w: Array, multiclass: bool) -> Counts:
    """The counts `(1, classes)` of the classes that the scores call as they are."""
    called = np.arange(z.shape[1]) == z.argmax(axis=1)[:, None] if multiclass else z > 0
    pairs = (y, called), (y, ~called), (1 - y, called), (1 - y, ~called)
    return Counts(*(w[None] @ (truth * decided) for truth, decided in pairs))


def _class_sweep(y: Array, z: Array, w: Array, k: int, multiclass: bool) -> tuple[Array, Counts]:
    """Every cut for class `k`, with the counts of all classes `(cuts, classes)` it gives."""
    w = w[:, None]
    if multiclass:  # a row that loses class k goes to the best of the others
        others = z.copy()
        others[:, k] = -np.inf
        s = z[:, k] - others.max(axis=1)
        called = w * (np.arange(z.shape[1]) == others.argmax(axis=1)[:, None])
        fixed = np.zeros(z.shape[1])
    else:
        s = z[:, k]
        called, fixed = np.zeros_like(z), w * (z > 0)
    order = np.argsort(s, kind="stable")
    cuts, first = _cuts(s[order])
    cuts[0], cuts[-1] = cuts[0] - 1.0, cuts[-1] + 1.0  # well beyond: no tie, whatever is rounded

    def sums(what: Array) -> Array:
        found = _sums_below((called * what)[order], first) + (fixed * what).sum(axis=0)
        found[:, k] = _sums_above((w * what)[order, k], first)
        return found

    ones = np.ones_like(y)
    return cuts, counts_of_sums(sums(ones), sums(y), (w * y).sum(axis=0), w.sum() * ones[0])
