"""From counts to the score: the metric of each class, averaged over classes and samples.

The functions take counts with axes `(samples, 1, classes)` and run on any framework's tensors.
"""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Real
from typing import NamedTuple

import numpy as np

from anyloss._core.absent import apply_zero_division, zero_division
from anyloss._core.backend import NUMPY, Array, Backend, top
from anyloss._core.cell import Cell
from anyloss._core.counts import Counts, class_counts
from anyloss._core.metric import RECALL_MEANS, SUMMED_FORMS, Metric
from anyloss._core.shapes import Layout
from anyloss.metrics import metric as find_metric

AVERAGES = ("auto", "binary", "macro", "micro", "weighted", "samples", "multiclass", "none", None)
ONE_SCORE = [x for x in AVERAGES if x not in (None, "none", "samples")]  # what can be trained for
RECALL = find_metric("recall")
LEAST = 1e-7  # the smallest score whose logarithm is taken


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


@lru_cache(maxsize=256)
def check_squared(chosen: Metric) -> None:
    """Refuse a metric that squared decisions raise above 1, so that the loss has no lower bound.

    The false positives of squared decisions, `sum(a^2) - sum(a y)`, may be negative. The metric is
    tried with equal decisions of the positives and of the negatives.
    """
    grid = np.linspace(0.01, 1.0, 34)
    share, a, b = np.meshgrid([0.01, 0.1, 0.5, 0.9, 1.0], grid, np.append(0.0, grid))
    lost, others = share * a * (1 - a), (1 - share) * b * b
    cells = (share * a, share * (1 - a), others - lost, 1 - share - others + lost)
    highest = float(np.max(chosen(*(1e3 * x for x in cells))))
    if not highest <= 1 + 1e-9:
        raise ValueError(
            f"squared=True needs a metric that squared decisions keep at most 1, such as 'f1', "
            f"'jaccard' or 'accuracy'; {chosen.name!r} reaches {highest:.4g}"
        )


def check_form(chosen: Metric, form: str) -> None:
    """Refuse the logarithm of a metric that is negative where all decisions are wrong."""
    if form == "log" and chosen.cost_matrix is None and chosen(tp=0.0, fn=1.0, fp=1.0, tn=0.0) < 0:
        raise ValueError(
            "form='log' takes the logarithm of the score and needs a metric between 0 and 1; got "
            f"{chosen.name!r}, which is negative where all decisions are wrong"
        )


def check_number(name: str, value: float) -> None:
    """Refuse a value that is not a finite number of at least 0."""
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
        f"the counts must be finite; got {cells}. Check the input for NaN and the weights for "
        "very large values"
    )


class Scored(NamedTuple):
    """The scores of the samples, and the share of each sample that its score covers.

    Both have the axes `(samples, 1, classes)`, with one class unless `average=None`. The share is 0
    where all classes were left out; it is the number 1 where this cannot be. The loss is one minus
    the score, so that with `form="log"` the score is one plus the logarithm of the metric.
    """

    score: Cell
    left: Array


def averaged(
    chosen: Metric, counts: Counts, lay: Layout, backend: Backend, *,
    smooth: float = 0.0, hard: bool = False, derivatives: bool = False, weighted: bool = True,
) -> Scored:  # fmt: skip
    """The score of each sample, averaged over the classes as the layout states.

    With `hard`, absent classes follow the outside reference (docs/metrics.md). With `derivatives`,
    the score carries its derivatives for each class. Without weights, which may be very small or
    large numbers, `weighted` may be False.
    """
    counts = class_counts(counts, lay, backend)
    factor, one = class_factor(counts, lay, backend), 1.0
    form = "linear" if hard else lay.form
    if lay.average in ("micro", "samples"):
        counts, one = Counts(*(backend.sum(x * factor, -1) for x in counts)), factor
    weighted = weighted or lay.class_weights is not None
    scaled = weighted and backend.tiny > NUMPY.tiny and chosen.is_named
    cells = _cells(counts, smooth, scaled, backend, one if derivatives else None)
    if lay.average == "multiclass" and chosen.class_sums is not None:
        parts, combine = chosen.class_sums
        return Scored(in_form(combine(*(part.sum() for part in parts(*cells))), form), 1.0)
    power = RECALL_MEANS.get(chosen.function, 1) if lay.average == "multiclass" else 1
    of_class = RECALL if lay.average == "multiclass" else chosen
    scores, left_out = apply_zero_division(
        of_class, of_class(*cells), cells, counts, lay, power, hard
    )
    one_class = lay.average in ("binary", "micro", "samples")
    apart = one_class or lay.average is None
    if apart and left_out is None and (one_class or isinstance(factor, float)):
        return Scored(in_form(scores, form), 1.0)
    kept = counts.tp * 0.0 + 1.0
    if left_out is not None:
        kept = backend.where(left_out, 0.0, kept)
    kept = kept if one_class else kept * factor
    if apart:
        return Scored(in_form(scores, form), kept)
    if lay.average == "weighted":
        by_label = kept * (counts.tp + counts.fn)
        # Without a positive sample all classes weigh alike, as in scikit-learn.
        kept = backend.where(backend.sum(by_label, -1) < backend.tiny, kept, by_label)
    share = _share(kept, -1, backend)
    if lay.average == "multiclass":
        mean = in_form(scores.mean(share, power), form)
    else:
        mean = in_form(scores, form).mean(share)
    return Scored(mean, backend.sum(share, -1))


def class_factor(counts: Counts, lay: Layout, backend: Backend) -> Array:
    """The factor of each class in the average over the classes; 0 for a class that does not count.

    The computed weights are relative to the rarest class. A class without a positive sample has the
    largest weight of the others, as in MONAI.
    """
    given, number = lay.class_weights, counts.tp.shape[-1]
    if given is None and lay.counted is None:
        return 1.0
    counted = range(number) if lay.counted is None else lay.counted
    weights = given if isinstance(given, tuple) else (1.0,) * len(counted)
    of_class = dict(zip(counted, weights, strict=True))
    factor = backend.array([of_class.get(k, 0.0) for k in range(number)], counts.tp)
    if not isinstance(given, str):
        return factor
    positives = counts.tp + counts.fn
    present = (positives > 0) & (factor > 0)
    inverse = backend.where(present, 1 / backend.where(present, positives, 1.0), 0.0)
    rarest = backend.sum(backend.where(top(inverse, backend), inverse, 0.0), -1)
    relative = inverse / backend.where(rarest > 0, rarest, 1.0)
    if given == "inverse_square":
        relative = relative * relative
    return factor * backend.where(present, relative, 1.0)


def in_form(score: Cell, form: str) -> Cell:
    """The score, or what takes its place so that one minus it is the loss."""
    return score if form == "linear" else 1 + score.log(LEAST)


def _cells(
    counts: Counts, smooth: float, scaled: bool, backend: Backend, one: Array | None
) -> list[Cell]:
    """The counts as the metric takes them; with derivatives if `one` is what a decision adds."""
    values = [x + smooth for x in counts] if smooth else list(counts)
    if scaled:
        # A named metric does not depend on the unit of the weights; float32 has a small range.
        total = backend.constant(sum(values[1:], values[0]))  # it is no function of the decisions
        total = backend.where(total < backend.tiny, 1.0, total)
        values = [x / total for x in values]
    if one is None:
        return [Cell(x, backend=backend) for x in values]
    seeds = (one, 0.0), (-one, 0.0), (0.0, one), (0.0, -one)
    return [Cell(x, *seed, backend) for x, seed in zip(values, seeds, strict=True)]


def _share(x: Array, axis: int, backend: Backend) -> Array:
    """Each entry divided by the sum over an axis; 0 where the sum is 0."""
    whole = backend.sum(x, axis)
    empty = whole < backend.tiny
    return backend.where(empty, 0.0, x / backend.where(empty, 1.0, whole))


def score_counts(
    counts: Counts, chosen: Metric, lay: Layout, backend: Backend, *,
    smooth: float = 0.0, hard: bool = False, sample_weight: Array | None = None,
) -> Array:  # fmt: skip
    """The score of counts with axes `(samples, 1, classes)`: a scalar, or one number per class."""
    found = averaged(chosen, counts, lay, backend, smooth=smooth, hard=hard)
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    return whole_score(*score_parts(found, part, lay, backend), lay, hard, backend)


def loss_of_counts(
    counts: Counts, chosen: Metric, lay: Layout, backend: Backend, *,
    smooth: float = 0.0, sample_weight: Array | None = None, weighted: bool = True,
) -> Array:  # fmt: skip
    """The loss of soft counts with axes `(samples, 1, classes)`; see `score_counts`."""
    found = averaged(chosen, counts, lay, backend, smooth=smooth, weighted=weighted)
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    return whole_loss(*score_parts(found, part, lay, backend), lay, backend)


def score_parts(found: Scored, part: Array, lay: Layout, backend: Backend) -> tuple[Array, Array]:
    """The sum of the scores over the samples, and the sum of their weights in the mean, `part`.

    The parts of a batch are merged by addition, if no sample is divided between two parts. With
    `reduction="none"` they are those of each sample, and nothing is merged.
    """
    if isinstance(part, float):
        return found.score.value, part
    total = found.score.value * part
    if lay.reduction == "none":
        return total, part
    return backend.sum(total, 0), backend.sum(part, 0)


def part_of_mean(
    found: Scored, counts: Counts, lay: Layout, backend: Backend, sample_weight: Array | None
) -> Array:
    """The weight of each score in the mean over samples: equal, or the weight of its rows.

    It is 0 for a sample without rows, and where all classes were left out.
    """
    if not lay.per_sample:
        return found.left
    rows = backend.sum(counts.tp + counts.fn + counts.fp + counts.tn, -1)
    part = rows if lay.per_sample == "weighted" else backend.where(rows > 0, rows * 0.0 + 1.0, 0.0)
    part = part if sample_weight is None else part * sample_weight
    return found.left * part


def whole_score(total: Array, weight: Array, lay: Layout, hard: bool, backend: Backend) -> Array:
    """The mean of the scores, from their sum and the sum of their weights; or their sum itself.

    Where everything was skipped, a soft score is 1 and a hard score is NaN, as in scikit-learn.
    """
    if lay.reduction == "sum" or isinstance(weight, float):
        return _shaped(total, lay, backend)
    skipped = zero_division(lay, hard) == "skip"
    nothing = (math.nan if hard else 1.0) if skipped else 0.0
    void = weight < backend.tiny
    score = backend.where(void, nothing + total * 0.0, total / backend.where(void, 1.0, weight))
    return _shaped(score, lay, backend)


def whole_loss(total: Array, weight: Array, lay: Layout, backend: Backend) -> Array:
    """The loss, from the sum of the scores and the sum of their weights."""
    if lay.reduction == "mean":
        return 1 - whole_score(total, weight, lay, False, backend)
    return _shaped(weight - total, lay, backend)


def _shaped(x: Array, lay: Layout, backend: Backend) -> Array:
    """A scalar or, with `average=None`, one number per class; one per sample without reduction."""
    if lay.average is not None:
        x = x[..., 0]
    elif lay.counted is not None:
        x = backend.concat([x[..., k : k + 1] for k in lay.counted])
    return x[:, 0] if lay.reduction == "none" else x[0, 0]
