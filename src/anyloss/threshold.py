"""The threshold that is best for a metric: exact, by one sweep over the sorted scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss.arithmetic import Array
from anyloss.counts import Counts
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
    cuts, cells = _sweep(y, s, w)
    scores = np.broadcast_to(chosen(*cells), cuts.shape)
    best = np.flatnonzero(scores == scores.max())
    middle = best[len(best) // 2]
    return Threshold(float(cuts[middle]), float(scores[middle]))


def _sweep(y: Array, s: Array, w: Array) -> tuple[Array, Counts]:
    """Every cut from "all positive" to "none positive", with the counts it gives."""
    order = np.argsort(s, kind="stable")
    s, positive, negative = s[order], (w * y)[order], (w * (1 - y))[order]
    first = np.flatnonzero(np.append(True, s[1:] > s[:-1]))  # the first row of each distinct score
    # Sums from the top and from the bottom: no cell is a difference of large numbers.
    tp, fp = (np.append(x[::-1].cumsum()[::-1][first], 0.0) for x in (positive, negative))
    fn, tn = (np.append(0.0, x.cumsum())[np.append(first, len(s))] for x in (positive, negative))
    low, high = s[first][:-1], s[first][1:]
    between = low / 2 + high / 2
    between = np.where((between >= low) & (between < high), between, low)
    below = np.nextafter(s[:1], s.dtype.type(-np.inf))
    return np.concatenate([below, between, s[-1:]]), Counts(tp, fn, fp, tn)
