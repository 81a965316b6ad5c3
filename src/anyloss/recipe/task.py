"""What a classifier is trained for: labels of one column, of several, or of one class per row.

Logits have the axes `(members, rows, classes)`, labels `(rows, classes)`, one column if binary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from anyloss._core.backend import NUMPY, Array, softmax_back
from anyloss._core.counts import check_average, counts_of_sums, score
from anyloss._core.gradient import sample_slopes
from anyloss._core.shapes import Layout, resolve_average
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import Hard, Step, Uniform
from anyloss.thresholds import best_offsets, best_threshold


class Task(NamedTuple):
    """Labels, weights, the metric, and what the columns mean."""

    y: Array
    weight: Array
    metric: Metric
    layout: Layout

    def offsets(self, z: Array) -> tuple[Array, float]:
        """What to subtract from logits `(rows, classes)` for the best metric, and that metric."""
        y, kind, average = self.y, self.layout.task, self.layout.average
        if average != "binary":
            if kind == "binary":  # the column as two classes
                y, z = np.hstack([1 - y, y]), np.hstack([np.zeros_like(z), z])
            offsets, reached = best_offsets(
                y, z, self.metric, average=average, multiclass=kind != "multilabel",
                weight=self.weight,
            )  # fmt: skip
            return (np.diff(offsets) if kind == "binary" else offsets), reached
        column = z[:, 0] if kind == "binary" else z[:, 1] - z[:, 0]
        found = best_threshold(y[:, -1], column, self.metric, weight=self.weight)
        at = np.array([found.threshold])
        return (at if kind == "binary" else np.append(0.0, at)), found.score

    def score(self, decision: Array) -> float:
        """The metric of decisions `(rows, classes)`: a class is called above 0, or by arg-max."""
        if self.layout.task == "multiclass":
            called = np.arange(self.y.shape[1]) == decision.argmax(axis=1)[:, None]
        else:
            called = decision > 0
        return self._score(called.astype(float), Hard())

    def soft_score(self, p: Array) -> float:
        """The metric of soft decisions `(rows, classes)`: the probabilities themselves."""
        return self._score(p, Uniform())

    def _score(self, called: Array, step: Step) -> float:
        one = self.layout.task == "binary"
        return float(
            score(
                self.y[:, 0] if one else self.y,
                called[:, 0] if one else called,
                self.metric,
                step=step,
                average=self.layout.average,
                weight=self.weight,
                task=self.layout.task,  # type: ignore[arg-type]
            )
        )


def new_task(
    y: Array,
    metric: MetricSpec | Metric,
    kind: str,
    average: str | None = "auto",
    weight: Array | None = None,
) -> Task:
    """A task from labels `(rows,)` or `(rows, classes)` in 0 and 1; one-hot for multiclass.

    >>> new_task(np.array([0.0, 1.0]), "f1", "binary").layout.average
    'binary'
    """
    y = np.asarray(y, dtype=float)
    y = y.reshape(len(y), -1)
    chosen = find_metric(metric)
    check_average(chosen, average)
    average = resolve_average(average, kind, y.shape[1], chosen.has_own_form)
    if average is None:
        raise ValueError(
            "average=None gives one score per class, and training needs one number; use 'macro', "
            "'micro' or 'weighted'"
        )
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    return Task(y, weight, chosen, Layout(kind, average, y.shape[1]))


def positive_class(classes: Array, index: Array, pos_label: Any, weight: Array | None) -> int:
    """Which of two classes is the positive one: the one named, or else the rarer one.

    >>> positive_class(np.array(["no", "yes"]), np.array([0, 0, 1]), None, None)
    1
    """
    if pos_label is None:
        first, second = np.bincount(index, weights=weight, minlength=2)
        return 0 if first < second else 1
    found = np.flatnonzero(classes == pos_label)
    if len(found) != 1:
        raise ValueError(
            f"pos_label must be one of the classes {classes.tolist()}; got {pos_label!r}"
        )
    return int(found[0])


def check_known(y: Array, classes: Array) -> None:
    """Refuse labels that are none of the classes.

    >>> check_known(np.array([0, 2, 2]), np.array([0, 1]))
    Traceback (most recent call last):
        ...
    ValueError: y holds classes that were not there in fit: [2]
    """
    unknown = sorted({repr(x) for x in set(y.ravel().tolist()) - set(classes.tolist())})
    if unknown:
        raise ValueError(f"y holds classes that were not there in fit: [{', '.join(unknown[:5])}]")


def probabilities(z: Array, kind: str) -> Array:
    """The sigmoid of each logit, or the softmax over the classes."""
    if kind == "multiclass":
        e = np.exp(z - z.max(axis=-1, keepdims=True))
        share: Array = e / e.sum(axis=-1, keepdims=True)
        return share
    sigmoid: Array = expit(z)
    return sigmoid


def cross_entropy(z: Array, y: Array, kind: str) -> Array:
    """The cross-entropy of each row."""
    if kind == "multiclass":
        top = z.max(axis=-1)
        total = np.log(np.exp(z - top[..., None]).sum(axis=-1)) + top
        loss: Array = total - (y * z).sum(axis=-1)
        return loss
    return (np.logaddexp(0.0, z) - y * z).sum(axis=-1)


def soft_metric(task: Task, weight: Array) -> Callable[[Array], tuple[Array, Array]]:
    """A function of logits: the soft score of each member, and its gradient by the logits.

    The soft decision is the probability itself: how sharp it is, the weights of the model learn.
    `weight` has the axes `(members, rows)`.
    """
    kind, y = task.layout.task, task.y
    weight = np.asfortranarray(weight)[..., None]  # in memory as `forward` lays out its logits
    positives = np.einsum("mnk,nc->mc", weight, y)[:, None]
    rows = np.broadcast_to(weight.sum(axis=1, keepdims=True), positives.shape)

    def gradient(z: Array) -> tuple[Array, Array]:
        p = probabilities(z, kind)
        parts = weight * p
        called = parts.sum(axis=1, keepdims=True)
        hits = np.einsum("nc,mnc->mc", y, parts)[:, None]
        counts = counts_of_sums(called, hits, positives, rows)
        score, A, B = sample_slopes(counts, task.metric, task.layout)
        slope = y * (A - B)
        slope += B
        if kind == "multiclass":
            slope *= weight
            return score.reshape(-1), softmax_back(slope, p, NUMPY)
        slope *= parts
        slope *= 1 - p
        return score.reshape(-1), slope

    return gradient
