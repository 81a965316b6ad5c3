"""Gradient and curvature of `n (1 - soft metric)` for several classes or labels.

Margins and labels have the axes `(rows, columns)`, with one column per class or label; labels of
classes are one-hot. As for one column (`anyloss.boosting.core`), the metric depends on the rows
through the soft counts of the whole training set only. Two derivatives per column are therefore
enough, and with `c_ik = y_ik d_positive_k + (1 - y_ik) d_negative_k` and soft decisions `a(z_i)`

    gradient_ik  = -n w_i  sum_j c_ij  d a_ij / d z_ik
    curvature_ik =  n w_i  mean_i |c_ik|  p_ik (1 - p_ik)

The gradient is exact: for classes it is carried back through the softmax. The curvature is that of
the log-loss in the unit of the gradient, column by column, and always positive; for labels, the
derivative of the soft decision takes the place of `p (1 - p)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.choices import resolve_average
from anyloss._core.costs import check_costs
from anyloss._core.counts import Counts, decisions, pair
from anyloss._core.functions import back_to_scores
from anyloss._core.gradient import sample_derivatives
from anyloss._core.shapes import Layout
from anyloss.boosting.core import LEAST, MOST
from anyloss.metrics import Metric
from anyloss.metrics import metric as find_metric
from anyloss.recipe.target import Target, counted_labels
from anyloss.steps import Step, Uniform


class ColumnDerivatives(NamedTuple):
    """`d_positive` and `d_negative` of each column times `n`, and their mean absolute value."""

    d_positive: Array
    d_negative: Array
    mean: Array


def as_columns(y: Array, margin: Array, metric: Metric, average: str) -> tuple[Array, Layout]:
    """The labels in columns of 0 and 1, and what they mean, from the shapes of both.

    Margins `(n, C)` are those of classes, with class numbers `(n,)`, or of labels `(n, C)`.

    >>> from anyloss import metric
    >>> labels, lay = as_columns(np.array([2.0, 0.0]), np.zeros((2, 3)), metric("f1"), "auto")
    >>> labels.tolist(), lay.task, lay.average
    ([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], 'multiclass', 'macro')
    """
    columns, task = margin.shape[1], "multilabel" if y.ndim == 2 else "multiclass"
    if task == "multiclass":
        if not np.isin(y, np.arange(columns)).all():
            raise ValueError(
                f"labels must be class numbers from 0 to {columns - 1}, one for each column of the "
                f"margins, with no NaN; got {np.unique(y)[:5].tolist()}"
            )
        y = (y[:, None] == np.arange(columns)).astype(float)
    found = resolve_average(average, task, columns, metric.has_own_form)
    check_costs(metric, task, found, columns)
    return y, Layout(task, found, columns, costs=metric.cost_matrix)


def for_two_classes(metric: Metric, average: str | None) -> Metric:
    """The average of a metric over both of two classes, as a metric of the counts of the second.

    `"auto"`, `"binary"` and the metric's own form are the metric itself.

    >>> from anyloss import metric
    >>> float(for_two_classes(metric("recall"), "macro")(tp=1.0, fn=1.0, fp=0.0, tn=4.0))
    0.75
    """

    def macro(tp: Any, fn: Any, fp: Any, tn: Any) -> Any:
        return (metric(tp, fn, fp, tn) + metric(tn, fp, fn, tp)) / 2

    def micro(tp: Any, fn: Any, fp: Any, tn: Any) -> Any:
        return metric(tp + tn, fn + fp, fp + fn, tn + tp)

    def weighted(tp: Any, fn: Any, fp: Any, tn: Any) -> Any:
        second, first = (tp + fn) * metric(tp, fn, fp, tn), (tn + fp) * metric(tn, fp, fn, tp)
        return (second + first) / (tp + fn + fp + tn)

    averages = {"macro": macro, "micro": micro, "weighted": weighted}
    return find_metric(averages[average]) if average in averages else metric


def hard_score(
    margin: Array, y: Array, metric: Metric, lay: Layout, weight: Array | None = None
) -> float:
    """The metric of the decisions: what is above 0, or the class of the highest margin.

    >>> from anyloss import metric
    >>> lay = Layout("multiclass", "macro", 2)
    >>> hard_score(np.array([[2.0, 1.0], [0.0, -1.0]]), np.eye(2), metric("recall"), lay)
    0.5
    """
    weight = np.ones(len(y)) if weight is None else weight
    return Target(y, weight, metric, lay).score(margin)


def soft_score(
    margin: Array, y: Array, metric: Metric, lay: Layout, step: Step, weight: Array | None = None
) -> float:
    """The soft metric of margins, which the objective maximises.

    >>> from anyloss import metric
    >>> lay = Layout("multilabel", "macro", 2)
    >>> soft_score(np.zeros((2, 2)), np.eye(2), metric("f1"), lay, Uniform())
    0.5
    """
    counts = soft_counts(margin, y, lay, step, weight)
    return float(sample_derivatives(counts, metric, lay).score.reshape(-1)[0])


def soft_counts(
    margin: Array, y: Array, lay: Layout, step: Step, weight: Array | None = None
) -> Counts:
    """The soft counts of each column, with the axes `(1, 1, columns)`.

    >>> soft_counts(np.zeros((2, 2)), np.eye(2), Layout("multiclass", "macro", 2), Uniform()).tp
    array([[[0.5, 0.5]]])
    """
    a, b = decisions(margin, step, lay.task, True, NUMPY)
    y, weight = _counted(y, weight, lay)
    positive, negative = y, 1 - y
    if weight is not None:
        positive, negative = weight[:, None] * positive, weight[:, None] * negative
    parts = positive * a, positive * b, negative * a, negative * b
    return Counts(*(x.sum(axis=0)[None, None] for x in parts))


def _counted(y: Array, weight: Array | None, lay: Layout) -> tuple[Array, Array | None]:
    """Labels and weights as they are counted."""
    if lay.costs is None:
        return y, weight
    labels, factor = counted_labels(y, lay)
    return labels, factor if weight is None else factor * weight


def scaled_derivatives(counts: Counts, metric: Metric, lay: Layout, n: float) -> ColumnDerivatives:
    """The derivatives of the averaged metric in the unit of `n (1 - metric)`.

    >>> from anyloss import metric
    >>> counts = Counts(*(np.full((1, 1, 2), x) for x in (80.0, 20.0, 20.0, 880.0)))
    >>> found = scaled_derivatives(counts, metric("f1"), Layout("multilabel", "macro", 2), 1000)
    >>> found.d_positive.tolist(), found.d_negative.tolist(), found.mean.tolist()
    ([3.0, 3.0], [-2.0, -2.0], [2.1, 2.1])
    """
    _, *both = sample_derivatives(counts, metric, lay)
    positives, negatives = counts.tp + counts.fn, counts.fp + counts.tn
    d_positive, d_negative = (np.clip(n * x, -MOST, MOST).reshape(-1) for x in both)
    share = (positives / (positives + negatives)).reshape(-1)
    mean = share * np.abs(d_positive) + (1 - share) * np.abs(d_negative)
    return ColumnDerivatives(d_positive, d_negative, mean)


def per_row(
    margin: Array, y: Array, lay: Layout, step: Step, weight: Array | None,
    scaled: ColumnDerivatives,
) -> tuple[Array, Array]:  # fmt: skip
    """Gradient and curvature `(rows, columns)` of some of the rows."""
    y, weight = _counted(y, weight, lay)
    worth = y * (scaled.d_positive - scaled.d_negative) + scaled.d_negative
    gradient = -back_to_scores(worth, margin, step, lay, True)
    if lay.task == "multiclass":
        p, q = pair(margin, Uniform(), lay.task, True, NUMPY)
        bend = p * q
    else:
        bend = back_to_scores(np.ones_like(margin), margin, step, lay, True)
    if weight is not None:
        gradient, bend = weight[:, None] * gradient, weight[:, None] * bend
    return gradient, np.maximum(bend * scaled.mean, LEAST)


def gradient_and_curvature(
    margin: Array, y: Array, metric: Metric, lay: Layout, step: Step, weight: Array | None = None
) -> tuple[Array, Array]:
    """Gradient and curvature of `n (1 - soft metric)` by the margins `(rows, columns)`.

    >>> from anyloss import metric
    >>> lay = Layout("multiclass", "macro", 2)
    >>> g, h = gradient_and_curvature(np.zeros((2, 2)), np.eye(2), metric("f1"), lay, Uniform())
    >>> g.tolist(), h.tolist()
    ([[-0.25, 0.25], [0.25, -0.25]], [[0.125, 0.125], [0.125, 0.125]])
    """
    n = float(len(y) if weight is None else weight.sum())
    scaled = scaled_derivatives(soft_counts(margin, y, lay, step, weight), metric, lay, n)
    return per_row(margin, y, lay, step, weight, scaled)
