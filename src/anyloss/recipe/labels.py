"""The targets of the classifiers: labels of any type as columns of 0 and 1, and their task."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from anyloss._core.backend import Array
from anyloss._core.choices import resolve_average
from anyloss._core.costs import check_costs
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe.target import check_known, positive_class


class Labels(NamedTuple):
    """Labels of 0 and 1 `(rows, columns)`, one column for two classes, and what they mean."""

    labels: Array
    task: str
    average: str | None
    classes: Array
    positive: Any  # the positive class; None unless the task is binary


def read_target(
    y: Array, metric: MetricSpec | Metric, average: str, pos_label: Any, weight: Array | None,
    classes: Array | None = None,
) -> Labels:  # fmt: skip
    """The task, the average and the labels of a target; `classes` are those of a fitted model.

    A matrix of one column is read as that column.

    >>> read_target(np.array(["a", "b", "b"]), "f1", "auto", None, None).positive.item()
    'a'
    """
    chosen = find_metric(metric)
    y = y.toarray() if issparse(y) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2:
        if not np.isin(y, (0, 1)).all():
            raise ValueError(
                "a target matrix must hold 0 and 1, one column per label; got values such as "
                f"{np.unique(y)[:5].tolist()}"
            )
        task, classes, labels = "multilabel", np.arange(y.shape[1]), y
    else:
        classes, index = _class_numbers(y, classes)
        task = "binary" if len(classes) == 2 and average in ("auto", "binary") else "multiclass"
        labels = index[:, None] == np.arange(len(classes))
    if task != "binary" and (average == "binary" or pos_label is not None):
        if task == "multiclass" and len(classes) == 2:
            raise ValueError(
                f"average={average!r} is a mean over both classes and has no pos_label; pass one "
                "of the two"
            )
        given = "average='binary'" if average == "binary" else f"pos_label={pos_label!r}"
        raise ValueError(
            f"{given} is for two classes; got {len(classes)} ({task}), such as "
            f"{classes[:3].tolist()}. Use an average such as 'macro' without pos_label"
        )
    positive = None
    if task == "binary":
        k = positive_class(classes, index, pos_label, weight, chosen)
        positive, labels = classes[k], labels[:, [k]]
    average = resolve_average(average, task, len(classes), chosen.has_own_form)  # type: ignore[assignment]
    check_costs(chosen, task, average, len(classes))
    return Labels(labels.astype(float), task, average, classes, positive)


def _class_numbers(y: Array, classes: Array | None) -> tuple[Array, Array]:
    """The classes, and the number of each row's class among them."""
    if classes is not None:
        check_known(y, classes)
    present, index = np.unique(y, return_inverse=True)
    if len(present) < 2:
        raise ValueError(
            "a classifier needs rows of two classes (of a sample_weight above 0); got one class, "
            f"{present.tolist()}"
        )
    return (present, index) if classes is None else (classes, places(classes, y))


def places(classes: Array, values: Array) -> Array:
    """The place of each value among the classes, which may have any order.

    >>> places(np.array([2, 0, 1]), np.array([0, 2, 2]))
    array([1, 0, 0])
    """
    order = np.argsort(classes)
    return order[np.searchsorted(classes, values, sorter=order)]


def labels_of(y: Array, classes: Array, task: str, positive: Any, rows: int) -> Array:
    """Labels of 0 and 1 `(rows, columns)` for the task of a fitted model, checked.

    >>> labels_of(["a", "b"], np.array(["a", "b"]), "binary", "a", rows=2).tolist()
    [[True], [False]]
    """
    y = y.toarray() if issparse(y) else np.asarray(y)
    wanted = (rows, len(classes)) if task == "multilabel" else (rows,)
    if y.shape != wanted and (y.ndim != 2 or y.shape[1] != 1 or y.size != rows):
        raise ValueError(f"y must have the shape of the predictions, {wanted}; got {y.shape}")
    if task == "multilabel":
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y must hold 0 and 1, one column per label; got {np.unique(y)[:5]}")
        return y
    labels = y.reshape(-1, 1) == classes
    if not labels.any(axis=1).all():
        check_known(y, classes)
    return labels[:, classes == positive] if task == "binary" else labels
