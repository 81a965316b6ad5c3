"""The best decision rule for scores and labels: the task decides which search finds it."""

from __future__ import annotations

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss._core.shapes import Layout
from anyloss.decisions.averaging import PER_CLASS, Adopt, averaged_rule
from anyloss.decisions.classes import Budget, Goal, arg_max, ascend, best_rule
from anyloss.decisions.goals import ClassGoal, CostGoal
from anyloss.decisions.labels import Labels, Sharing
from anyloss.decisions.rules import Decision, Found
from anyloss.metrics import Metric
from anyloss.thresholds import best_threshold, nearest_threshold

PARTS = 5  # of the samples, each left out once for the mean rule of several classes
ROUNDS = 5  # of the offsets over the classes, at most


def best_decision(
    y: Array, scores: Array, metric: Metric, lay: Layout, *,
    weight: Array, sharing: Sharing = "shrunk", probabilities: bool = True,
    max_evaluations: int = 500, parts: int = PARTS, adopt: Adopt = "best",
    constraints: tuple[Constraint, ...] = (), required: bool = True,
) -> Found:  # fmt: skip
    """The best rule for scores and labels `(n, columns)` of 0 and 1, one-hot for several classes.

    `probabilities` is whether the scores are between 0 and 1. Three and more classes have the mean
    rule of several `parts` of the samples (`averaging`), unless there is one part only, the
    metric is a matrix of costs, or `max_evaluations` are too few for so many classes. Two classes
    may have constraints; if these are `required` and no threshold satisfies them, that is an error.

    >>> from anyloss import metric
    >>> y, p = np.eye(2)[[0, 1, 1]], np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> best_decision(
    ...     y, p, metric("f1"), Layout("multiclass", "macro", 2), weight=np.ones(3)
    ... ).score
    1.0
    """
    if adopt == "clear" and lay.task != "multiclass":
        raise _no_mean_rule(lay, parts, max_evaluations)
    if lay.task == "binary":
        column = y[:, 0], scores[:, 0], metric
        threshold, score = (
            best_threshold(*column, constraints=constraints or None, weight=weight)
            if required
            else nearest_threshold(*column, constraints, weight)
        )
        decision = Decision(thresholds=np.array([threshold]))
        return Found(decision, score, {"sweep": (decision, score)}, 1)
    if lay.task == "multiclass":
        return _of_classes(y, scores, metric, lay, weight, max_evaluations, parts, adopt)
    labels = Labels(y, scores, weight, metric, lay)
    shared = labels.shared()
    every = np.full(lay.classes, shared)
    own = labels.per_label(every)
    rules = {"per_label": own, "shared": every, "shrunk": labels.shrunk(own, shared, probabilities)}
    candidates = {name: (Decision(thresholds=t), labels.score(t)) for name, t in rules.items()}
    return Found(*candidates[sharing], candidates, labels.evaluations)


def _of_classes(
    y: Array, scores: Array, metric: Metric, lay: Layout, weight: Array, most: int, parts: int,
    adopt: Adopt,
) -> Found:  # fmt: skip
    def goal_of(rows: Array) -> Goal:
        return _goal(y[rows], metric, lay, weight[rows])

    found = None
    if parts > 1 and lay.classes > 2 and metric.cost_matrix is None:
        found = averaged_rule(goal_of, y.argmax(axis=1), scores, most, parts, adopt)
    if found is None and adopt == "clear":
        raise _no_mean_rule(lay, parts, most)
    return found or best_rule(_goal(y, metric, lay, weight), scores, most)


def _no_mean_rule(lay: Layout, parts: int, most: int) -> ValueError:
    what = f"{lay.classes} labels" if lay.task == "multilabel" else f"{max(2, lay.classes)} classes"
    return ValueError(
        "adopt='clear' compares the parts of a mean rule with the arg-max, which needs more than "
        "two classes, n_parts above 1, no cost matrix, and enough evaluations (at least "
        f"{PER_CLASS} per class and part); got {what}, n_parts={parts} and "
        f"max_evaluations={most}. Use adopt='best'"
    )


def _goal(y: Array, metric: Metric, lay: Layout, weight: Array) -> Goal:
    label = y.argmax(axis=1)
    if metric.cost_matrix is not None:
        return CostGoal(label, weight, metric.cost_matrix)
    return ClassGoal(label, weight, metric, lay)


def best_offsets(
    y: Array, logits: Array, metric: Metric, lay: Layout, *, weight: Array
) -> tuple[Array, float]:
    """The offsets to subtract from logits `(n, C)` for the best averaged metric, and its value.

    After the subtraction, a multilabel sample has the labels with a score above 0, and a multiclass
    sample has the class with the highest score. Each class is swept exactly while the others are
    fixed, in turn, until the metric does not improve. The offset of a class that cannot improve the
    metric, such as a label that never occurs, remains 0.

    >>> from anyloss import metric
    >>> y, scores = np.eye(3), np.array([[3, 2, 2], [3, 2.75, 0], [3, 0, 2.75]])
    >>> lay = Layout("multiclass", "macro", 3)
    >>> best_offsets(y, scores, metric("recall"), lay, weight=np.ones(3))
    (array([0.625, 0.   , 0.   ]), 1.0)
    """
    classes = lay.classes
    if lay.task == "multilabel":
        labels = Labels(y, logits, weight, metric, lay)
        offsets = labels.per_label(np.zeros(classes))
        return offsets, labels.score(offsets)
    goal = _goal(y, metric, lay, weight)
    budget = Budget(ROUNDS * classes)
    rule, score = ascend(goal, logits, arg_max(classes), budget, with_gains=False)
    return 0.0 - rule.offsets, score
