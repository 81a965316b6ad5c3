"""Counts: the four cells, soft or hard, from scores and labels; and the score they give.

They are taken over the rows of `(samples, rows, classes)`, see `shapes`, and run on any
framework's tensors. What a class does that is absent from a batch is decided here too, by
`averaged`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array, Backend, mirrored_sigmoid, mirrored_softmax, top
from anyloss._core.cell import Cell
from anyloss._core.shapes import (
    Layout,
    Options,
    PerSample,
    Rows,
    Task,
    ZeroDivision,
    make_options,
    prepare,
)
from anyloss.metrics import (
    RECALL_MEANS,
    SUMMED_FORMS,
    Metric,
    MetricSpec,
)
from anyloss.metrics import metric as find_metric
from anyloss.steps import Hard, Step, check_step

AVERAGES = ("auto", "binary", "macro", "micro", "weighted", "multiclass", "none", None)
RECALL = find_metric("recall")


@dataclass(frozen=True)
class Counts:
    """The four cells, one number or one per class; counts of parts are merged by addition.

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


def check_average(chosen: Metric, average: str | None) -> None:
    """Refuse an unknown average, and the multiclass form of a metric that has none."""
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {AVERAGES}; got {average!r}")
    if average == "multiclass" and not chosen.has_own_form:
        names = ", ".join(function.__name__ for function in (*SUMMED_FORMS, *RECALL_MEANS))
        raise ValueError(
            f"average='multiclass' is for metrics with a multiclass form ({names}); "
            f"got {chosen.name!r}"
        )


def check_soft_labels(soft_labels: bool, step: Step) -> None:
    """Soft labels are counted against the probability itself; another step has no meaning."""
    if soft_labels and not step.is_identity and not isinstance(step, Hard):
        raise ValueError(
            "soft_labels=True compares the label with the probability itself and takes no other "
            f"step or threshold than Uniform(); got {step!r}"
        )


def decisions(
    scores: Array, step: Step, task: str, from_logits: bool, backend: Backend
) -> tuple[Array, Array]:
    """The soft decisions and their mirrors, for logits or probabilities."""
    p, q = pair(scores, step, task, from_logits, backend)
    return (step.multiclass if task == "multiclass" else step.both)(p, q, backend)


def pair(
    scores: Array, step: Step, task: str, from_logits: bool, backend: Backend
) -> tuple[Array, Array]:
    """What a step is given: `(p, 1 - p)`, or `(z, -z)` for a step on the logit."""
    if task == "multiclass":
        return mirrored_softmax(scores, backend) if from_logits else (scores, 1 - scores)
    if not step.on_logit:
        return mirrored_sigmoid(scores, backend) if from_logits else (scores, 1 - scores)
    if not from_logits:
        p, q = (backend.where(x < backend.tiny, backend.tiny, x) for x in (scores, 1 - scores))
        scores = backend.log(p) - backend.log(q)
    return scores, -scores


def count(given: Rows, step: Step, options: Options, backend: Backend) -> Counts:
    """The counts under a step, with axes `(samples, 1, classes)`."""
    check_step(step)
    check_soft_labels(options.soft_labels, step)
    a, b = decisions(given.scores, step, given.layout.task, options.from_logits, backend)
    if options.soft_labels:
        return _soft_label_counts(a, b, given.y, given.weight, backend)
    positive, negative = given.y, 1 - given.y
    if given.weight is not None:
        positive, negative = given.weight * positive, given.weight * negative
    return Counts(
        *(backend.sum(x, 1) for x in (positive * a, positive * b, negative * a, negative * b))
    )


def _soft_label_counts(
    a: Array, b: Array, y: Array, weight: Array | None, backend: Backend
) -> Counts:
    """Counts that are best where the decision equals a soft label, `tp = min(a, y)` and so on.

    With labels of 0 and 1, or hard decisions, they are the usual ones. At `a = y` no cell has a
    slope.
    """
    below, above, n = a < y, a > y, 1 - y
    cells = (
        backend.where(below, a, y),
        backend.where(below, y - a, 0.0),
        backend.where(above, a - y, 0.0),
        backend.where(above, b, n),
    )
    return Counts(*(backend.sum(x if weight is None else weight * x, 1) for x in cells))


def counts_of_sums(soft: Array, hits: Array, positives: Array, rows: Array) -> Counts:
    """Soft positives, hits, positives and rows to the four cells; differences are clamped at 0.

    >>> counts_of_sums(soft=3.0, hits=2.0, positives=2.0, rows=10.0)
    Counts(tp=2.0, fn=0.0, fp=1.0, tn=7.0)
    """
    cells = hits, positives - hits, soft - hits, rows - positives - soft + hits
    if isinstance(hits, float):
        return Counts(*(0.0 if x < 0.0 else x for x in cells))
    return Counts(*(np.maximum(x, 0.0) for x in cells))


def two_classes(counts: Counts, backend: Backend) -> Counts:
    """The counts of a binary column, seen as two classes: the negative one first."""
    tp, fn, fp, tn = counts
    return Counts(*(backend.concat(part) for part in ([tn, tp], [fp, fn], [fn, fp], [tp, tn])))


def class_counts(counts: Counts, lay: Layout, backend: Backend) -> Counts:
    """One set of counts per class that the average is taken over."""
    if lay.task == "binary" and lay.average != "binary":
        counts = two_classes(counts, backend)
    elif lay.task == "multiclass" and lay.average == "binary":
        counts = Counts(*(x[..., 1:] for x in counts))
    if lay.average == "micro":
        counts = Counts(*(backend.sum(x, -1) for x in counts))
    return counts


class Scored(NamedTuple):
    """The score of each sample, and what part of a sample it stands for: 0 where nothing is left.

    Both have the axes `(samples, 1, classes)`; one class unless `average=None`.
    """

    score: Cell
    left: Array


def averaged(
    chosen: Metric,
    counts: Counts,
    lay: Layout,
    backend: Backend,
    *,
    smooth: float = 0.0,
    hard: bool = False,
    slopes: bool = False,
) -> Scored:
    """The score of counts with one set per class in the last axis, averaged as the layout says.

    `hard` counts follow the outside reference (docs/metrics.md). With `slopes` the score carries
    what a soft positive more is worth to it, for each class.
    """
    counts = class_counts(counts, lay, backend)
    cells = _cells(counts, chosen, smooth, backend, slopes)
    kept = counts.tp * 0.0 + 1.0
    if lay.average == "multiclass" and chosen.function in SUMMED_FORMS:
        parts, combine = SUMMED_FORMS[chosen.function]
        return Scored(combine(*(part.sum() for part in parts(*cells))), kept[..., :1])
    power = RECALL_MEANS.get(chosen.function, 1) if lay.average == "multiclass" else 1
    of_class = RECALL if lay.average == "multiclass" else chosen
    scores, void = _absent(of_class, of_class(*cells), cells, counts, lay, power, hard, backend)
    if void is not None:
        kept = backend.where(void, 0.0, kept)
    if lay.average in ("binary", "micro", None):
        return Scored(scores, kept)
    if lay.average == "weighted":
        by_label = kept * (counts.tp + counts.fn)
        kept = backend.where(
            backend.sum(by_label, -1) < backend.tiny, kept, by_label
        )  # as scikit-learn has it
    share = _share(kept, -1, backend)
    return Scored(scores.mean(share, power), backend.sum(share, -1))


def _cells(
    counts: Counts, chosen: Metric, smooth: float, backend: Backend, slopes: bool
) -> list[Cell]:
    """The counts as the metric takes them, each with its slopes if they are wanted."""
    values = [x + smooth for x in counts]
    if backend.tiny > NUMPY.tiny and chosen.is_named:
        # A named metric does not depend on the unit of the weights; float32 has a small range.
        rows = backend.constant(sum(values))  # the weight of all rows, whatever is decided
        rows = backend.where(rows < backend.tiny, 1.0, rows)
        values = [x / rows for x in values]
    if not slopes:
        return [Cell(x, backend=backend) for x in values]
    seeds = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)
    return [Cell(x, *seed, backend) for x, seed in zip(values, seeds, strict=True)]


def _absent(
    chosen: Metric,
    scores: Cell,
    cells: list[Cell],
    counts: Counts,
    lay: Layout,
    power: int,
    hard: bool,
    backend: Backend,
) -> tuple[Cell, Array | None]:
    """The scores of the classes, and which of them leave the mean."""
    rule = zero_division(lay, hard)
    tp, fn, fp, tn = counts
    if rule == "union":  # scikit-learn's averages run over the labels and the predictions
        without = tp + fn if lay.average == "multiclass" and power == 1 else tp + fn + fp
        return scores, without <= 0
    if rule == 0:
        return scores, None
    if hard:
        undefined = chosen.undefined(counts)
        perfect = scores * 0.0 + 1.0
    else:
        no_positive, no_negative = chosen.undefined_without
        undefined = tp + fn + fp + tn <= 0
        if no_positive:
            undefined = undefined | (tp + fn <= 0)
        if no_negative:
            undefined = undefined | (fp + tn <= 0)
        # One minus the mean soft decision where no sample is positive.
        perfect = 1 - (cells[1] + cells[2]) / (cells[0] + cells[1] + cells[2] + cells[3])
    if rule == 1:
        return scores.choose(undefined, perfect), None
    return scores.choose(undefined, scores * 0.0), undefined


def zero_division(lay: Layout, hard: bool) -> ZeroDivision | str:
    """What `zero_division="auto"` stands for; any other value stands for itself.

    "union" leaves out what is absent from the labels and from the predictions. Masks without a
    positive pixel were measured, see benchmarks/README.md.

    >>> zero_division(Layout("multiclass", "macro", 3), hard=False)
    'skip'
    """
    if lay.zero_division != "auto":
        return lay.zero_division
    if not lay.exclusive:
        return 1 if lay.per_sample else 0
    if hard:
        return "union" if lay.average in ("macro", "multiclass") else 0
    return 0 if lay.average in ("binary", "micro") else "skip"


def score_counts(
    counts: Counts,
    chosen: Metric,
    lay: Layout,
    backend: Backend,
    *,
    smooth: float = 0.0,
    hard: bool = False,
    sample_weight: Array | None = None,
) -> Array:
    """The score of counts with axes `(samples, 1, classes)`: a scalar, or one number per class."""
    found = averaged(chosen, counts, lay, backend, smooth=smooth, hard=hard)
    parts = score_parts(found, counts, lay, backend, sample_weight)
    return whole_score(*parts, lay, hard, backend)


def score_parts(
    found: Scored, counts: Counts, lay: Layout, backend: Backend, sample_weight: Array | None
) -> tuple[Array, Array]:
    """The sum of the scores over the samples, and the sum of what they stand for.

    Both add up over parts of a batch, if a sample lies in one part as a whole.
    """
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    return backend.sum(found.score.value * part, 0), backend.sum(part, 0)


def whole_score(total: Array, weight: Array, lay: Layout, hard: bool, backend: Backend) -> Array:
    """The mean of the scores; where nothing is left, a loss of 0 and, as in scikit-learn, NaN."""
    skipped = zero_division(lay, hard) == "skip"
    nothing = (math.nan if hard else 1.0) if skipped else 0.0
    void = weight < backend.tiny
    score = backend.where(void, nothing + total * 0.0, total / backend.where(void, 1.0, weight))
    return score[0, 0, :] if lay.average is None else score[0, 0, 0]


def check_number(name: str, value: float) -> None:
    """Refuse what is not a finite number from 0 on."""
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a number >= 0; got {value!r}")


def check_finite(counts: Counts, values: list[Array], chosen: Metric) -> None:
    """Refuse a batch that would put a NaN or an infinity into the weights of a model."""
    if math.isfinite(sum(float(x.sum()) if hasattr(x, "sum") else x for x in values)):
        return
    cells = {name: np.asarray(x).ravel().tolist() for name, x in vars(counts).items()}
    if all(np.isfinite(cell).all() for cell in cells.values()):
        raise ValueError(f"metric {chosen.name!r} is not finite for the counts {cells}")
    raise ValueError(
        "input must hold numbers, not NaN, and weights must not overflow; the counts came out as "
        f"{cells}"
    )


def part_of_mean(
    found: Scored, counts: Counts, lay: Layout, backend: Backend, sample_weight: Array | None
) -> Array:
    """How much each score counts in the mean over samples: alike, or by the weight of its rows.

    A sample without a row, or of which nothing is left, does not count.
    """
    if not lay.per_sample:
        return found.left
    rows = backend.sum(counts.tp + counts.fn + counts.fp + counts.tn, -1)
    part = rows if lay.per_sample == "weighted" else backend.where(rows > 0, rows * 0.0 + 1.0, 0.0)
    part = part if sample_weight is None else part * sample_weight
    return found.left * part


def _share(x: Array, axis: int, backend: Backend) -> Array:
    """What part of the sum over an axis each entry is; 0 where the sum is."""
    whole = backend.sum(x, axis)
    empty = whole < backend.tiny
    return backend.where(empty, 0.0, x / backend.where(empty, 1.0, whole))


def cross_entropy_sums(given: Rows, from_logits: bool, backend: Backend) -> tuple[Array, Array]:
    """The summed cross-entropy of all rows, and the weight it is the sum over.

    Rows of one class of several count once, columns of labels each by themselves.
    """
    z, y = given.scores, given.y
    if given.layout.task == "multiclass":
        if from_logits:
            z = z - backend.sum(backend.where(top(z, backend), z, 0.0), -1)
            log_p = z - backend.log(backend.sum(backend.exp(z), -1))
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
    """The logarithm of a probability, at least -100, as PyTorch's cross-entropy has it."""
    tiny = p < backend.tiny
    found = backend.log(backend.where(tiny, 1.0, p))
    return backend.where(tiny | (found < -100.0), -100.0, found)


def counts(
    y_true: Array,
    y_score: Array,
    step: Step = Hard(),
    *,
    from_logits: bool = False,
    weight: Array | None = None,
    task: Task = "auto",
    class_axis: int | None = None,
    per_sample: PerSample = False,
    soft_labels: bool = False,
    ignore_index: int | None = None,
) -> Counts:
    """The four cells in NumPy: hard by default, soft under any other step.

    `y_score` holds probabilities, or logits with `from_logits=True`. A binary task gives four
    floats; `(n, C)` scores give arrays with one entry per class, `per_sample=True` one row each
    per sample. The arguments are those of `anyloss.torch.AnyLoss`.

    >>> counts([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2])
    Counts(tp=1.0, fn=1.0, fp=1.0, tn=1.0)
    """
    options = make_options(
        from_logits=from_logits, per_sample=per_sample, task=task, class_axis=class_axis,
        soft_labels=soft_labels, ignore_index=ignore_index,
    )  # fmt: skip
    found = prepare(y_true, y_score, options, weight=weight)
    cells = count(found, step, options, NUMPY)
    if found.layout.task == "binary" and not per_sample:
        return Counts(*(float(x[0, 0, 0]) for x in cells))
    return Counts(*(x[:, 0, :] if per_sample else x[0, 0, :] for x in cells))


def score(
    y_true: Array,
    y_score: Array,
    metric: MetricSpec | Metric = "f1",
    step: Step = Hard(),
    *,
    average: str | None = "auto",
    smooth: float = 0.0,
    from_logits: bool = False,
    weight: Array | None = None,
    task: Task = "auto",
    class_axis: int | None = None,
    per_sample: PerSample = False,
    zero_division: ZeroDivision = "auto",
    soft_labels: bool = False,
    ignore_index: int | None = None,
) -> Array:
    """The metric of scores and labels in NumPy: the true one, or the soft one under another step.

    The true one equals scikit-learn's function of the same name, also where classes are absent:
    docs/metrics.md has the table. The arguments are those of `anyloss.torch.AnyLoss`.

    >>> score([1, 1, 0, 0], [0.9, 0.4, 0.6, 0.2], "f1")
    0.5
    """
    chosen, hard = find_metric(metric), isinstance(step, Hard)
    check_average(chosen, average)
    check_number("smooth", smooth)
    options = make_options(
        average=average, from_logits=from_logits, per_sample=per_sample, task=task,
        class_axis=class_axis, zero_division=zero_division, soft_labels=soft_labels,
        ignore_index=ignore_index,
    )  # fmt: skip
    found = prepare(y_true, y_score, options, weight=weight, own_form=chosen.has_own_form)
    cells = count(found, step, options, NUMPY)
    value = score_counts(
        cells, chosen, found.layout, NUMPY, hard=hard, sample_weight=found.sample_weight,
        smooth=0.0 if hard else smooth,  # the true metric has none
    )  # fmt: skip
    check_finite(cells, [*cells] if hard and zero_division == "skip" else [value], chosen)
    return float(value) if value.ndim == 0 else value
