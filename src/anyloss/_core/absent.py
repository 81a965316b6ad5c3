"""The rules for classes that are absent: `zero_division`.

A class is undefined where the metric gives 0/0. Hard scores follow an outside reference, and losses
follow the table in docs/metrics.md.
"""

from __future__ import annotations

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.cell import Cell
from anyloss._core.choices import ZeroDivision
from anyloss._core.counts import Counts
from anyloss._core.metric import Metric
from anyloss._core.shapes import Layout


def zero_division(lay: Layout, hard: bool) -> ZeroDivision | str:
    """The rule that `zero_division="auto"` stands for; any other value is returned as it is.

    "union" leaves out the classes that are absent from the labels and from the predictions. The
    default for masks without a positive pixel was measured, see benchmarks/README.md.

    >>> zero_division(Layout("multiclass", "macro", 3), hard=False)
    'skip'
    """
    if lay.zero_division != "auto":
        return lay.zero_division
    if not lay.exclusive:
        # Of rows without a label, hard scores follow scikit-learn.
        return 1 if lay.per_sample and not (hard and lay.average == "samples") else 0
    if hard and lay.counted is not None:
        return 0  # a class that is named counts, as with scikit-learn's `labels=`
    if hard:
        return "union" if lay.average in ("macro", "multiclass") else 0
    return 0 if lay.average in ("binary", "micro") else "skip"


def apply_zero_division(
    chosen: Metric, scores: Cell, cells: list[Cell], counts: Counts, lay: Layout, power: int,
    hard: bool,
) -> tuple[Cell, Array | None]:  # fmt: skip
    """The scores of the classes under the rule, and which of them are left out of the mean.

    `cells` are the counts as the metric takes them. `power` is that of a mean of recalls.
    """
    rule = zero_division(lay, hard)
    if rule == "union":  # scikit-learn's averages run over the labels and the predictions
        present = counts.tp + counts.fn
        if lay.average != "multiclass" or power != 1:
            present = present + counts.fp
        return scores, present <= 0
    if rule == 0:
        return scores, None
    if hard:
        undefined = chosen.undefined(counts)
    else:
        undefined = _undefined_for_perfect_decisions(chosen, counts)
    if isinstance(undefined, np.ndarray) and not undefined.any():
        return scores, None
    perfect = scores * 0.0 + 1.0
    if not hard:  # one minus the mean soft decision where no sample is positive
        perfect = 1 - (cells[1] + cells[2]) / (cells[0] + cells[1] + cells[2] + cells[3])
    if rule == 1:
        return scores.choose(undefined, perfect), None
    return scores.choose(undefined, scores * 0.0), undefined


def _undefined_for_perfect_decisions(chosen: Metric, counts: Counts) -> Array:
    """Where a class lacks the samples that the metric needs, or has no sample at all."""
    tp, fn, fp, tn = counts
    no_positive, no_negative = chosen.undefined_without
    if no_positive and no_negative:
        return (tp + fn <= 0) | (fp + tn <= 0)
    if no_positive:
        return tp + fn <= 0
    return (fp + tn if no_negative else tp + fn + fp + tn) <= 0
