"""From counts to the score: the metric of each class, averaged over classes and samples.

The functions take counts with axes `(samples, 1, classes)` and run on any framework's tensors.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple

import numpy as np

from anyloss._core.absent import apply_zero_division, zero_division
from anyloss._core.backend import NUMPY, Array, Backend
from anyloss._core.cell import Cell
from anyloss._core.counts import Counts, class_counts
from anyloss._core.metric import RECALL_MEANS, SUMMED_FORMS, Metric
from anyloss._core.shapes import Layout
from anyloss.metrics import metric as find_metric

AVERAGES = ("auto", "binary", "macro", "micro", "weighted", "multiclass", "none", None)
RECALL = find_metric("recall")


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
    where all classes were left out.
    """

    score: Cell
    left: Array


def averaged(
    chosen: Metric, counts: Counts, lay: Layout, backend: Backend, *,
    smooth: float = 0.0, hard: bool = False, derivatives: bool = False,
) -> Scored:  # fmt: skip
    """The score of each sample, averaged over the classes as the layout states.

    With `hard`, absent classes follow the outside reference (docs/metrics.md). With `derivatives`,
    the score carries its derivatives for each class.
    """
    counts = class_counts(counts, lay, backend)
    cells = _cells(counts, chosen, smooth, backend, derivatives)
    kept = counts.tp * 0.0 + 1.0
    if lay.average == "multiclass" and chosen.function in SUMMED_FORMS:
        parts, combine = SUMMED_FORMS[chosen.function]
        return Scored(combine(*(part.sum() for part in parts(*cells))), kept[..., :1])
    power = RECALL_MEANS.get(chosen.function, 1) if lay.average == "multiclass" else 1
    of_class = RECALL if lay.average == "multiclass" else chosen
    scores, left_out = apply_zero_division(
        of_class, of_class(*cells), cells, counts, lay, power, hard
    )
    if left_out is not None:
        kept = backend.where(left_out, 0.0, kept)
    if lay.average in ("binary", "micro", None):
        return Scored(scores, kept)
    if lay.average == "weighted":
        by_label = kept * (counts.tp + counts.fn)
        # Without a positive sample all classes weigh alike, as in scikit-learn.
        kept = backend.where(backend.sum(by_label, -1) < backend.tiny, kept, by_label)
    share = _share(kept, -1, backend)
    return Scored(scores.mean(share, power), backend.sum(share, -1))


def _cells(
    counts: Counts, chosen: Metric, smooth: float, backend: Backend, derivatives: bool
) -> list[Cell]:
    """The counts as the metric takes them, with derivatives if they are wanted."""
    values = [x + smooth for x in counts]
    if backend.tiny > NUMPY.tiny and chosen.is_named:
        # A named metric does not depend on the unit of the weights; float32 has a small range.
        total = backend.constant(sum(values))  # it does not depend on the decisions
        total = backend.where(total < backend.tiny, 1.0, total)
        values = [x / total for x in values]
    if not derivatives:
        return [Cell(x, backend=backend) for x in values]
    seeds = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)
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
    parts = score_parts(found, counts, lay, backend, sample_weight)
    return whole_score(*parts, lay, hard, backend)


def score_parts(
    found: Scored, counts: Counts, lay: Layout, backend: Backend, sample_weight: Array | None
) -> tuple[Array, Array]:
    """The sum of the scores over the samples, and the sum of their weights in the mean.

    The parts of a batch are merged by addition, if no sample is divided between two parts.
    """
    part = part_of_mean(found, counts, lay, backend, sample_weight)
    return backend.sum(found.score.value * part, 0), backend.sum(part, 0)


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
    """The mean of the scores, from their sum and the sum of their weights.

    Where everything was skipped, a soft score is 1 and a hard score is NaN, as in scikit-learn.
    """
    skipped = zero_division(lay, hard) == "skip"
    nothing = (math.nan if hard else 1.0) if skipped else 0.0
    void = weight < backend.tiny
    score = backend.where(void, nothing + total * 0.0, total / backend.where(void, 1.0, weight))
    return score[0, 0, :] if lay.average is None else score[0, 0, 0]
