"""The four counts of the confusion matrix, soft or hard, from scores and labels.

Counts are sums over the rows of `(samples, rows, classes)`, see `shapes`. The functions run on any
framework's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from anyloss._core.backend import Array, Backend, mirrored_sigmoid, mirrored_softmax, top
from anyloss._core.choices import Options
from anyloss._core.costs import cost_labels
from anyloss._core.shapes import Layout, Samples
from anyloss._core.step import Hard, Step, check_step

Total = Callable[[Array], Array]


@dataclass(frozen=True)
class Counts:
    """The four counts of the confusion matrix: numbers, or arrays with one entry per class.

    They are soft or hard, weighted or not. The counts of the parts of a data set are merged by
    addition: `counts_1 + counts_2`. Iteration gives `tp, fn, fp, tn`, so that `metric(*counts)` is
    the score.

    Attributes:
        tp (float or array): the true positives.
        fn (float or array): the false negatives.
        fp (float or array): the false positives.
        tn (float or array): the true negatives.

    Examples:
        >>> Counts(tp=1.0, fn=0.0, fp=2.0, tn=5.0) + Counts(tp=3.0, fn=1.0, fp=0.0, tn=2.0)
        Counts(tp=4.0, fn=1.0, fp=2.0, tn=7.0)
    """

    tp: Array
    fn: Array
    fp: Array
    tn: Array

    def __iter__(self) -> Iterator[Array]:
        return iter((self.tp, self.fn, self.fp, self.tn))

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + yours for mine, yours in zip(self, other, strict=True)))


def check_soft_labels(soft_labels: bool, step: Step) -> None:
    """Refuse soft labels with a step that changes the probability."""
    if soft_labels and not step.is_identity and not isinstance(step, Hard):
        raise ValueError(
            "soft_labels=True compares the label with the probability itself and takes no other "
            f"step or threshold than Uniform(); got {step!r}"
        )


def decisions(
    scores: Array, step: Step, task: str, from_logits: bool, backend: Backend,
    activation: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    """The soft decisions and their mirrors, for logits or probabilities."""
    p, q = pair(scores, step, task, from_logits, backend, activation)
    return (step.multiclass if task == "multiclass" else step.both)(p, q, backend)


def pair(
    scores: Array, step: Step, task: str, from_logits: bool, backend: Backend,
    activation: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    """The arguments of a step: `(p, 1 - p)`, or `(z, -z)` for a step on the logit."""
    softmax = activation == "softmax" or (activation == "auto" and task == "multiclass")
    on_logit = step.on_logit and task != "multiclass"
    if on_logit and from_logits and not softmax:
        return scores, -scores
    if not from_logits:
        p, q = scores, 1 - scores
    else:
        p, q = (mirrored_softmax if softmax else mirrored_sigmoid)(scores, backend)
    if not on_logit:
        return p, q
    p, q = (backend.where(x < backend.tiny, backend.tiny, x) for x in (p, q))
    z = backend.log(p) - backend.log(q)
    return z, -z


def count(
    given: Samples, step: Step, options: Options, backend: Backend, total: Total | None = None
) -> Counts:
    """The counts under a step, with axes `(samples, 1, classes)`.

    `total` is the sum to these axes. By default it is the sum over the second of three axes.
    """
    total = total or (lambda x: backend.sum(x, 1))
    check_step(step)
    check_soft_labels(options.soft_labels, step)
    lay = given.layout
    a, b = decisions(given.scores, step, lay.task, options.from_logits, backend, lay.activation)
    if options.top_k > 1 and isinstance(step, Hard):
        a = _top_decisions(a, given, options.top_k, backend)
        b = 1 - a
    if options.soft_labels:
        return _soft_label_counts(a, b, given.y, given.weight, total, backend)
    if options.squared and not isinstance(step, Hard):
        return _squared_counts(a, b, given.y, given.weight, total)
    given = with_costs(given, backend)
    positive, negative = given.y, 1 - given.y
    if given.weight is not None:
        positive, negative = given.weight * positive, given.weight * negative
    return Counts(*map(total, (positive * a, positive * b, negative * a, negative * b)))


def with_costs(given: Samples, backend: Backend) -> Samples:
    """The samples as they are counted: under a matrix of costs with other labels and weights."""
    costs = given.layout.costs
    if costs is None:
        return given
    y, weight = cost_labels(given.y, given.weight, costs, backend, given.scores)
    return given._replace(y=y, weight=weight, layout=given.layout._replace(costs=None))


def _soft_label_counts(
    a: Array, b: Array, y: Array, weight: Array | None, total: Total, backend: Backend
) -> Counts:
    """Counts that are best where the decision equals a soft label, such as `tp = min(a, y)`.

    With labels of 0 and 1, or with hard decisions, they are the usual counts. At `a = y` every
    count has a derivative of 0.
    """
    below, above, n = a < y, a > y, 1 - y
    cells = (
        backend.where(below, a, y),
        backend.where(below, y - a, 0.0),
        backend.where(above, a - y, 0.0),
        backend.where(above, b, n),
    )
    return Counts(*(total(x if weight is None else weight * x) for x in cells))


def _top_decisions(a: Array, given: Samples, top_k: int, backend: Backend) -> Array:
    """The class of the label where it is among the `top_k` highest scores, else the highest one.

    This is the decision that torchmetrics counts since its version 1.6.
    """
    label, rest, inside = top(given.y, backend), given.scores, a * 0.0
    for _ in range(top_k):
        highest = top(rest, backend)
        inside = backend.where(highest, 1.0 + a * 0.0, inside)
        rest = backend.where(highest, -np.inf + a * 0.0, rest)
    found = backend.sum(backend.where(label, inside, 0.0), backend.class_axis) > 0
    return backend.where(found, backend.where(label, 1.0 + a * 0.0, 0.0), a)


def _squared_counts(a: Array, b: Array, y: Array, weight: Array | None, total: Total) -> Counts:
    """Counts whose predicted positives are `sum(a^2)`, as in V-Net's Dice; `tp = sum(a y)`."""
    n, both = 1 - y, a * b
    cells = y * a, y * b, n * a * a - y * both, n * b * (1 + a) + y * both
    return Counts(*(total(x if weight is None else weight * x) for x in cells))


def counts_of_sums(predicted: Array, tp: Array, positives: Array, total: Array) -> Counts:
    """The counts from four sums: predicted positives, true positives, positives, all samples.

    >>> counts_of_sums(predicted=3.0, tp=2.0, positives=2.0, total=10.0)
    Counts(tp=2.0, fn=0.0, fp=1.0, tn=7.0)
    """
    return clamped(differences(predicted, tp, positives, total))


def differences(predicted: Array, tp: Array, positives: Array, total: Array) -> list[Array]:
    """The cells `tp`, `fn`, `fp` and `tn` from the four sums."""
    return [tp, positives - tp, predicted - tp, total - positives - predicted + tp]


def clamped(cells: list[Array]) -> Counts:
    """Counts of at least 0: a difference of sums may be less by its rounding error."""
    if isinstance(cells[0], float):
        return Counts(*(0.0 if x < 0.0 else x for x in cells))
    return Counts(*(np.maximum(x, 0.0) for x in cells))


def column_counts(a: Array, y: Array, weight: Array | None = None) -> Counts:
    """The counts of one column of decisions, soft or hard, as Python floats.

    The rarer class is summed directly: as a difference of sums, its counts would be lost in the
    rounding of the other class.

    >>> column_counts(np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    Counts(tp=1.0, fn=1.0, fp=1.0, tn=0.0)
    """
    total = np.add.reduce
    if weight is None:
        predicted, samples, positives = float(total(a)), float(len(a)), float(total(y))
    else:
        predicted, samples, positives = float(a @ weight), float(total(weight)), float(weight @ y)
    if 2 * positives <= samples:
        tp = float(a @ (y if weight is None else weight * y))
        return counts_of_sums(predicted, tp, positives, samples)
    rest = 1 - y if weight is None else weight * (1 - y)
    tp, fn, fp, tn = counts_of_sums(predicted, float(a @ rest), float(total(rest)), samples)
    return Counts(tp=fp, fn=tn, fp=tp, tn=fn)  # the classes are swapped


def two_classes(counts: Counts, backend: Backend) -> Counts:
    """The counts of a binary column as those of two classes, the negative class first."""
    tp, fn, fp, tn = counts
    return Counts(*(backend.concat(part) for part in ([tn, tp], [fp, fn], [fn, fp], [tp, tn])))


def class_counts(counts: Counts, lay: Layout, backend: Backend) -> Counts:
    """The counts of each class that the average is taken over."""
    if lay.task == "binary" and lay.average != "binary":
        counts = two_classes(counts, backend)
    elif lay.task == "multiclass" and lay.average == "binary":
        counts = Counts(*(x[..., 1:] for x in counts))
    return counts


def shaped_counts(counts: Counts, lay: Layout) -> Counts:
    """The counts without the axes that do not apply: numbers, `(C,)`, `(n,)` or `(n, C)`."""
    column = 0 if lay.task == "binary" else slice(None)
    sample = slice(None) if lay.per_sample else 0
    return Counts(*(x[sample, 0, column] for x in counts))


def cross_entropy_sums(given: Samples, from_logits: bool, backend: Backend) -> tuple[Array, Array]:
    """The sum of the cross-entropy over all rows, and the sum of their weights.

    A row of a multiclass task counts once; each column of labels counts on its own.
    """
    z, y = given.scores, given.y
    if given.layout.task == "multiclass":
        if from_logits:
            z = z - backend.sum(backend.where(top(z, backend), z, 0.0), backend.class_axis)
            log_p = z - backend.log(backend.sum(backend.exp(z), backend.class_axis))
        else:
            log_p = _log(z, backend)
        terms, weight = -y * backend.where(y > 0, log_p, 0.0), y
    elif from_logits:
        positive = z >= 0
        size = backend.where(positive, z, -z)
        terms = backend.where(positive, z, 0.0) - z * y + backend.log(1 + backend.exp(-size))
        weight = y * 0.0 + 1.0
    else:
        terms = -y * _log(z, backend) - (1 - y) * _log(1 - z, backend)
        weight = y * 0.0 + 1.0
    for factor in (given.weight, given.sample_weight):
        if factor is not None:
            terms, weight = terms * factor, weight * factor
    return terms.sum(), weight.sum()


def _log(p: Array, backend: Backend) -> Array:
    """The logarithm of a probability, at least -100, as in PyTorch's cross-entropy."""
    tiny = p < backend.tiny
    found = backend.log(backend.where(tiny, 1.0, p))
    return backend.where(tiny | (found < -100.0), -100.0, found)
