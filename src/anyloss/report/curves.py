"""The curves of the report: computed exactly, then thinned to what a picture can show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from anyloss._core.backend import Array
from anyloss.metrics import Metric
from anyloss.thresholds import sweep

MOST_POINTS, BINS = 300, 10


class Curve(NamedTuple):
    """The points of a curve, and one number that summarises them."""

    x: Array
    y: Array
    value: float


def thin(x: Array, y: Array, most: int = MOST_POINTS) -> tuple[Array, Array]:
    """At most `most` of the points, evenly spaced along the curve, with both ends.

    A point that is left out is at most about `1 / most` of the length of the curve away from one
    that is kept; lengths are relative to the extent of the picture. Points that are not finite are
    dropped.

    >>> thin(np.arange(6.0), np.zeros(6), most=3)
    (array([0., 2., 5.]), array([0., 0., 0.]))
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(x) <= most:
        return x, y
    steps = sum(np.abs(np.diff(v)) / (np.ptp(v) or 1.0) for v in (x, y))
    length = np.append(0.0, np.cumsum(steps))
    kept = np.unique(np.searchsorted(length, np.linspace(0, length[-1], most), side="right") - 1)
    return x[kept], y[kept]


def against_threshold(y: Array, p: Array, metric: Metric) -> tuple[Array, Array]:
    """The metric at every threshold; a value applies from its threshold to the next one.

    >>> import anyloss
    >>> against_threshold(np.array([0, 1]), np.array([0.25, 0.75]), anyloss.metric("precision"))
    (array([0.  , 0.25, 0.75, 1.  ]), array([0.5, 1. , 0. , 0. ]))
    """
    cuts, cells = sweep(y, p, np.ones(len(p)))
    scores = np.broadcast_to(metric(*cells), cuts.shape)
    return thin(np.concatenate([[0.0], np.unique(p), [1.0]]), np.append(scores, scores[-1]))


def roc(y: Array, p: Array) -> Curve:
    """The recall against the false positive rate, and the area under the curve."""
    false_positive_rate, recall, _ = roc_curve(y, p)
    return Curve(*thin(false_positive_rate, recall), float(roc_auc_score(y, p)))


def precision_recall(y: Array, p: Array) -> Curve:
    """The precision against the recall, and the average precision."""
    precision, recall, _ = precision_recall_curve(y, p)
    return Curve(*thin(recall[::-1], precision[::-1]), float(average_precision_score(y, p)))


class Calibration(NamedTuple):
    """The mean decision value and the share of positives in each bin, with its 95 % interval."""

    x: Array
    y: Array
    low: Array
    high: Array
    gap: float  # the mean distance between both, over all rows


def calibration(y: Array, p: Array) -> Calibration:
    """Ten bins of the decision value with as many rows each (fewer if values are tied).

    >>> found = calibration(np.array([0, 0, 1, 1]), np.array([0.2, 0.2, 0.6, 0.6]))
    >>> found.x.tolist(), found.y.tolist(), round(found.gap, 2)
    ([0.2, 0.6], [0.0, 1.0], 0.3)
    """
    edges = np.quantile(p, np.linspace(0, 1, BINS + 1))
    _, at = np.unique(np.searchsorted(edges[1:-1], p), return_inverse=True)
    rows, hits, values = (np.bincount(at, w) for w in (None, y.astype(float), p))
    share, value = hits / rows, values / rows
    pairs = zip(hits.astype(int), rows.astype(int), strict=True)
    low, high = np.array([binomtest(k, n).proportion_ci(method="wilson") for k, n in pairs]).T
    gap = float(np.abs(share - value) @ rows / len(p))
    return Calibration(value, share, low, high, gap)
