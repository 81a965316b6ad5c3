"""The score of decisions as a search needs it: for one rule, and along the path of a sweep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.cell import Cell
from anyloss._core.counts import Counts, counts_of_sums
from anyloss._core.gradient import sample_derivatives
from anyloss._core.metric import RECALL_MEANS, SUMMED_FORMS, CostMatrix
from anyloss._core.scoring import averaged, check_finite
from anyloss._core.shapes import Layout
from anyloss.decisions.rules import Decision
from anyloss.metrics import Metric
from anyloss.metrics import metric as find_metric
from anyloss.thresholds import sums_above

Parts = Callable[[Counts], tuple[Array, ...]]
Combine = Callable[..., Array]


def class_parts(metric: Metric, lay: Layout) -> tuple[Parts, Combine]:
    """Two functions: the parts of each class, and the hard score from their sums over the classes.

    Every average is of this form, so that the score after one sample has changed its class takes
    the parts of two classes only. It is the same number that `_core.scoring.averaged` computes.

    >>> parts, combine = class_parts(find_metric("f1"), Layout("multiclass", "macro", 2))
    >>> two = Counts(*np.array([[6.0, 4.0], [2.0, 0.0], [2.0, 0.0], [0.0, 6.0]]))
    >>> float(combine(*(x.sum(axis=-1) for x in parts(two))))
    0.875
    """
    if lay.average == "micro":
        return lambda counts: tuple(counts), lambda *sums: metric(*sums)
    if lay.average == "multiclass" and metric.function in SUMMED_FORMS:
        of_class, of_sums = SUMMED_FORMS[metric.function]
        return (
            lambda counts: _values(of_class(*_cells(counts))),
            lambda *sums: _values([of_sums(*_cells(sums))])[0],
        )
    power = RECALL_MEANS.get(metric.function, 1) if lay.average == "multiclass" else 1
    chosen = find_metric("recall") if lay.average == "multiclass" else metric

    def kept(counts: Counts) -> Array:
        """The weight of each class; absent classes are left out as scikit-learn does."""
        positives = counts.tp + counts.fn
        if lay.average == "weighted":
            return positives
        if not lay.exclusive:
            return np.ones_like(positives)
        only_labels = lay.average == "multiclass" and power == 1
        return 1.0 * (positives + (0.0 if only_labels else counts.fp) > 0)

    def parts(counts: Counts) -> tuple[Array, ...]:
        weight, scores = kept(counts), chosen(*counts)
        if lay.average == "weighted":
            return weight * scores, weight, scores, np.ones_like(weight)
        if power == 1:
            return weight * scores, weight
        void = scores < NUMPY.tiny
        inner = np.where(void, 1.0, scores)
        inner = np.log(inner) if power == 0 else 1 / inner
        return weight * inner, weight, weight * void

    def combine(total: Array, weight: Array, *more: Array) -> Array:
        mean = total / np.where(weight > 0, weight, 1.0)
        if lay.average == "weighted":  # without a positive sample all classes weigh alike
            return np.where(weight > 0, mean, more[0] / more[1])
        if power == 1:
            return mean
        mean = np.exp(mean) if power == 0 else 1 / np.where(mean > 0, mean, 1.0)
        return np.where(np.asarray(more[0]) > 0, 0.0, mean)

    return parts, combine


def _cells(values: Counts | tuple[Array, ...]) -> list[Cell]:
    return [Cell(np.asarray(x, dtype=float), backend=NUMPY) for x in values]


def _values(cells: tuple[Cell, ...] | list[Cell]) -> tuple[Array, ...]:
    return tuple(cell.value for cell in cells)


class ClassGoal:
    """The score of decisions among several classes, for a metric of the counts of each class."""

    def __init__(self, label: Array, weight: Array, metric: Metric, lay: Layout) -> None:
        self.label, self.weight, self.metric, self.lay = label, weight, metric, lay
        self.classes = lay.classes
        self.positives = self._sums(label, weight)
        self.total = float(weight.sum())
        self._parts, self._combine = class_parts(metric, lay)

    def _sums(self, of_class: Array, weight: Array) -> Array:
        return np.bincount(of_class, weight, self.classes)

    def counts(self, predicted: Array) -> Counts:
        """The counts `(C,)` of predicted classes."""
        tp = self._sums(self.label, self.weight * (predicted == self.label))
        return self._of_sums(self._sums(predicted, self.weight), tp, self.positives)

    def _of_sums(self, predicted: Array, tp: Array, positives: Array) -> Counts:
        return counts_of_sums(predicted, tp, positives, np.full(np.shape(tp), self.total))

    def score(self, counts: Counts) -> Array:
        """The scores of counts `(..., C)`."""
        found = averaged(self.metric, counts, self.lay, NUMPY, hard=True).score.value
        check_finite(counts, [found], self.metric)
        return found[..., 0]

    def score_of(self, predicted: Array) -> float:
        """The score of predicted classes."""
        return float(self.score(self.counts(predicted)))

    def by_chance(self) -> Counts:
        """The expected counts if every sample gets a class at random: no recall is 0."""
        share = 1 / self.classes
        return self._of_sums(
            np.full(self.classes, self.total * share), self.positives * share, self.positives
        )

    def linear_rule(self, counts: Counts) -> Decision:
        """The best rule for the linear approximation of the metric at these counts."""
        of_sample = Counts(*(x[None, None] for x in counts))
        _, d_positive, d_negative = sample_derivatives(of_sample, self.metric, self.lay)
        d_positive, d_negative = d_positive.reshape(-1), d_negative.reshape(-1)
        unit = max(np.abs(d_positive).max(), np.abs(d_negative).max()) or 1.0
        return Decision(gains=(d_positive - d_negative) / unit, offsets=d_negative / unit)

    def along(self, k: int, other: Array, order: Array, first: Array, always: Array) -> Array:
        """The scores while samples leave class `k` for their `other` class, in the given order.

        The first score is that before any of them has left, and `first` are the numbers of samples
        that have left at the others. Samples `always` remain in class `k`, and all other samples
        that are not in the order are in their `other` class throughout.
        """
        weight = self.weight
        true = weight * (self.label == k)
        predicted_k = sums_above(weight[order], first) + weight[always].sum()
        tp_k = sums_above(true[order], first) + true[always].sum()
        of_k = self._parts(self._of_sums(predicted_k, tp_k, np.full(len(first), self.positives[k])))

        staying = np.ones(len(weight), dtype=bool)
        staying[order] = staying[always] = False
        right = weight * (self.label == other)
        start_predicted = self._sums(other[staying], weight[staying])
        start_tp = self._sums(other[staying], right[staying])
        start = self._parts(self._of_sums(start_predicted, start_tp, self.positives))

        group = other[order]
        sort = np.argsort(group.astype(np.int32), kind="stable")
        group = group[sort]
        opens = np.append(True, group[1:] != group[:-1])[: len(group)]
        place = np.flatnonzero(opens)

        def within(x: Array, begin: Array) -> Array:
            """Running sums within each group, from what the class has at the start."""
            sums = x[order][sort].cumsum()
            before = np.append(0.0, sums)[place]
            return sums + (begin[group[opens]] - before).repeat(np.diff([*place, len(group)]))

        after = self._parts(
            self._of_sums(
                within(weight, start_predicted), within(right, start_tp), self.positives[group]
            )
        )
        sums = []
        for mine, begin, moved in zip(of_k, start, after, strict=True):
            change = moved - np.append(0.0, moved[:-1])[: len(moved)]
            change[opens] = moved[opens] - begin[group[opens]]
            in_order = np.empty(len(order))
            in_order[sort] = change
            rest = begin.sum() - begin[k] + np.append(0.0, in_order.cumsum())[first]
            sums.append(mine + rest)
        return self._combine(*sums)


class CostGoal:
    """The score of decisions among several classes, for a matrix of costs."""

    def __init__(self, label: Array, weight: Array, costs: CostMatrix) -> None:
        self.label, self.weight, self.costs = label, weight, costs
        self.classes = len(costs.costs)
        self.positives = np.bincount(label, weight, self.classes)
        self._of_sample = weight[:, None] * np.array(costs.costs)[label]  # (n, predicted)

    def score_of(self, predicted: Array) -> float:
        """The score of predicted classes."""
        place = self.label * self.classes + predicted
        sums = np.bincount(place, self.weight, self.classes**2)
        return float(self.costs.saved(sums.reshape(self.classes, self.classes)))

    def plug_in_rule(self) -> Decision:
        """The class of the lowest expected cost; no rule is better if `p` is calibrated."""
        return Decision(gains=-np.array(self.costs.costs), offsets=np.zeros(self.classes))

    def along(self, k: int, other: Array, order: Array, first: Array, always: Array) -> Array:
        """The scores while samples leave class `k`; see `ClassGoal.along`."""
        rows = np.arange(len(other))
        as_k, as_other = self._of_sample[:, k], self._of_sample[rows, other]
        start = other.copy()
        start[order] = start[always] = k
        change = np.append(0.0, (as_other - as_k)[order].cumsum())[first]
        most = float(self._of_sample.max(axis=1).sum())
        return self.score_of(start) - change / (most or np.inf)
