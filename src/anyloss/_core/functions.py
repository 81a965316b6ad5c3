"""The public functions on NumPy arrays: `counts`, `score` and `gradient`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyloss._core.backend import NUMPY, Array, mirrored_softmax, softmax_back
from anyloss._core.choices import (
    Activation,
    ClassWeights,
    Options,
    PerSample,
    Reduction,
    Task,
    ZeroDivision,
    make_options,
)
from anyloss._core.costs import check_cost_options
from anyloss._core.counts import Counts, count, decisions, pair, shaped_counts, with_costs
from anyloss._core.documents import documented
from anyloss._core.gradient import class_derivatives
from anyloss._core.per_label import at_threshold
from anyloss._core.scoring import (
    check_average,
    check_finite,
    check_number,
    check_squared,
    score_counts,
)
from anyloss._core.shapes import Layout, Samples, as_scores, prepare
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import DEFAULT, Hard, Step


@documented
def counts(
    y_true: Array, y_score: Array, step: Step = Hard(), *,
    threshold: float | Sequence[float] | None = None,
    from_logits: bool = False, activation: Activation = "auto", squared: bool = False,
    weight: Array | None = None, task: Task = "auto", class_axis: int | None = None,
    per_sample: PerSample = False, soft_labels: bool = False, ignore_index: int | None = None,
) -> Counts:  # fmt: skip
    """Count true positives, false negatives, false positives and true negatives.

    The counts are hard by default, and soft under any other step. With the soft decisions
    `a = step(p)`, labels `y` and weights `w` they are `tp = sum(w y a)`, `fn = sum(w y (1 - a))`,
    `fp = sum(w (1 - y) a)` and `tn = sum(w (1 - y) (1 - a))`.

    Args:
        y_true (array-like): the labels: 0 and 1, or class indices. Labels between 0 and 1 count for
            both classes by their shares.
        step (Step): how a probability becomes a decision. The default, `Hard()`, is
            `p > 0.5`, or the class of the highest score.
        threshold (float or sequence of float, optional): another threshold of the step, or one for
            each label.

    Shape:
        - `y_true` and `y_score`: `(n,)` or `(n, 1, ...)` for a binary task, `(n, C, ...)` for
          several labels; `(n, C, ...)` scores and `(n, ...)` class indices for several classes.
        - Counts: floats for a binary task, else arrays `(C,)`; with `per_sample=True` arrays `(n,)`
          or `(n, C)`.

    Returns:
        Counts: the four counts.

    Raises:
        ValueError: if shapes do not match or have two readings, a value is out of range, or the
            step has no form for several classes.
        TypeError: if scores or labels are not numbers, or an argument has the wrong type.

    Examples:
        >>> counts([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2])
        Counts(tp=1.0, fn=1.0, fp=1.0, tn=1.0)
        >>> from anyloss.steps import Uniform
        >>> counts([1, 1, 0, 0], [0.75, 0.5, 0.5, 0.25], Uniform())
        Counts(tp=1.25, fn=0.75, fp=0.75, tn=1.25)
    """
    options = make_options(
        from_logits=from_logits, activation=activation, squared=squared, per_sample=per_sample,
        task=task, class_axis=class_axis, soft_labels=soft_labels, ignore_index=ignore_index,
    )  # fmt: skip
    found = prepare(y_true, y_score, options, weight=weight)
    step = at_threshold(step, threshold)
    cells = shaped_counts(count(found, step, options, NUMPY), found.layout)
    return cells if np.ndim(cells.tp) else Counts(*map(float, cells))


@documented
def score(
    y_true: Array, y_score: Array, metric: MetricSpec | Metric = "f1", step: Step = Hard(), *,
    threshold: float | Sequence[float] | None = None,
    average: str | None = "auto", smooth: float = 0.0, from_logits: bool = False,
    activation: Activation = "auto", squared: bool = False,
    weight: Array | None = None, task: Task = "auto", class_axis: int | None = None,
    classes: Sequence[int] | None = None, include_background: bool = True,
    class_weights: ClassWeights | None = None, per_sample: PerSample = False,
    zero_division: ZeroDivision = "auto", reduction: Reduction = "mean",
    top_k: int = 1,
    soft_labels: bool = False, ignore_index: int | None = None,
) -> Array:  # fmt: skip
    """Compute a metric of scores and labels.

    The score is `average(metric(counts))`. By default the decisions are hard, and the score equals
    scikit-learn's function of the same name, also where classes are absent; docs/metrics.md has the
    table. Under any other step it is the soft score, which is one minus the loss.

    Args:
        step (Step): how a probability becomes a decision. The default, `Hard()`, is
            `p > 0.5`, or the class of the highest score.
        threshold (float or sequence of float, optional): another threshold of the step, or one for
            each label.

    Shape:
        - `y_true` and `y_score`: `(n,)` or `(n, 1, ...)` for a binary task, `(n, C, ...)` for
          several labels; `(n, C, ...)` scores and `(n, ...)` class indices for several classes.
        - Score: a float, or an array `(C,)` with `average=None`; with `reduction="none"` an array
          `(n,)` or `(n, C)`.

    Returns:
        float or array: the score. It is NaN if `zero_division="skip"` leaves out every class.

    Raises:
        ValueError: if shapes do not match or have two readings, a value is out of range, the metric
            is unknown or not finite, or an option does not fit the task.
        TypeError: if scores or labels are not numbers, or an argument has the wrong type.

    Examples:
        >>> score([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2], "f1")
        0.5
        >>> score([0, 1, 2], [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.5, 0.2, 0.3]], "recall")
        0.6666666666666666
    """
    hard, step = isinstance(step, Hard), at_threshold(step, threshold)
    if top_k != 1 and not (hard and threshold is None):
        raise ValueError(
            f"top_k is for the hard decisions of classes, Hard(); got top_k={top_k!r} and {step!r}"
        )
    chosen, found, options = _read(
        y_true, y_score, metric, smooth, weight, average=average, from_logits=from_logits,
        activation=activation, squared=squared,
        per_sample=per_sample, task=task, class_axis=class_axis, classes=classes,
        include_background=include_background, class_weights=class_weights,
        zero_division=zero_division, reduction=reduction, top_k=top_k, soft_labels=soft_labels,
        ignore_index=ignore_index,
    )  # fmt: skip
    cells = count(found, step, options, NUMPY)
    value = score_counts(
        cells, chosen, found.layout, NUMPY, hard=hard, sample_weight=found.sample_weight,
        smooth=0.0 if hard else smooth,
    )  # fmt: skip
    check_finite(cells, [*cells] if hard and zero_division == "skip" else [value], chosen)
    return float(value) if value.ndim == 0 else value


@documented
def gradient(
    y_true: Array, y_score: Array, metric: MetricSpec | Metric = "f1", step: Step = DEFAULT, *,
    threshold: float | Sequence[float] | None = None,
    average: str | None = "auto", smooth: float = 0.0, from_logits: bool = False,
    activation: Activation = "auto", squared: bool = False,
    weight: Array | None = None, task: Task = "auto", class_axis: int | None = None,
    classes: Sequence[int] | None = None, include_background: bool = True,
    class_weights: ClassWeights | None = None, per_sample: PerSample = False,
    zero_division: ZeroDivision = "auto", reduction: Reduction = "mean",
    soft_labels: bool = False, ignore_index: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Compute the soft score and its gradient with respect to the scores, in closed form.

    The score depends on the samples only through the counts, so that two derivatives per class are
    enough: `d score / d a_i = w_i (y_i d_positive + (1 - y_i) d_negative)` for the soft decision
    `a_i = step(p_i)`. Multiply by -1 for the gradient of the loss.

    Args:
        threshold (float or sequence of float, optional): another threshold of the step, or one for
            each label.

    Shape:
        - `y_true` and `y_score`: `(n,)` or `(n, 1, ...)` for a binary task, `(n, C, ...)` for
          several labels; `(n, C, ...)` scores and `(n, ...)` class indices for several classes.
        - Gradient: the shape of `y_score`.

    Returns:
        tuple: the soft score, which is a float or an array as in `score`; and the gradient. For
        several scores it is the gradient of their sum.

    Raises:
        ValueError: if shapes do not match or have two readings, a value is out of range, the metric
            is unknown, or an option does not fit the task.
        TypeError: if scores or labels are not numbers, or an argument has the wrong type.

    Examples:
        >>> score, grad = gradient([1, 0], [0.5, 0.5], "f1")
        >>> score, grad.tolist()
        (0.5, [0.75, -0.25])
    """
    chosen, found, options = _read(
        y_true, y_score, metric, smooth, weight, average=average, from_logits=from_logits,
        activation=activation, squared=squared,
        per_sample=per_sample, task=task, class_axis=class_axis, classes=classes,
        include_background=include_background, class_weights=class_weights,
        zero_division=zero_division, reduction=reduction, soft_labels=soft_labels,
        ignore_index=ignore_index,
    )  # fmt: skip
    found, step = with_costs(found, NUMPY), at_threshold(step, threshold)
    lay, y = found.layout, found.y
    cells = count(found, step, options, NUMPY)
    score, d_positive, d_negative = class_derivatives(
        cells, chosen, lay, smooth, found.sample_weight
    )
    if soft_labels or squared:
        a, _ = decisions(found.scores, step, lay.task, from_logits, NUMPY, lay.activation)
    if soft_labels:  # a larger decision adds to `tp` below the label and to `fp` above it
        g = (a < y) * d_positive + (a > y) * d_negative
    elif squared:
        g = y * (d_positive - d_negative) + 2 * a * d_negative
    else:
        g = y * d_positive + (1 - y) * d_negative
    if found.weight is not None:
        g = g * found.weight
    g = back_to_scores(g, found.scores, step, lay, from_logits)
    return (float(score) if score.ndim == 0 else score), as_scores(g, np.shape(y_score), lay)


def _read(
    y_true: Array, y_score: Array, metric: MetricSpec | Metric, smooth: float,
    weight: Array | None, **given: Any,
) -> tuple[Metric, Samples, Options]:  # fmt: skip
    """The metric, the samples and the options of a call, checked."""
    chosen = find_metric(metric)
    check_average(chosen, given["average"])
    check_number("smooth", smooth)
    options = make_options(**given)
    check_cost_options(chosen, options, smooth)
    if options.squared:
        check_squared(chosen)
    found = prepare(y_true, y_score, options, weight=weight, metric=chosen)
    return chosen, found, options


def back_to_scores(g: Array, scores: Array, step: Step, lay: Layout, from_logits: bool) -> Array:
    """The gradient with respect to the scores, from that with respect to the decisions."""
    softmax = from_logits and lay.has_softmax
    p, q = pair(scores, step, lay.task, from_logits, NUMPY, lay.activation)
    if lay.task == "multiclass":
        g = step.multiclass_back(g, p, q, NUMPY)
    else:
        g = g * step.density(p, q, NUMPY)
        if step.on_logit and from_logits and not softmax:
            return g
        if step.on_logit:  # the logit of a probability, see `pair`
            p, q = mirrored_softmax(scores, NUMPY) if softmax else (scores, 1 - scores)
            inside = [np.where(x < NUMPY.tiny, np.inf, x) for x in (p, q)]
            g = g / inside[0] + g / inside[1]
    if softmax:
        return softmax_back(g, p, NUMPY)
    return g * p * q if from_logits else g
