"""The thresholds of several labels: one for each, one for all, or between the two."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts
from anyloss._core.scoring import averaged, check_finite
from anyloss._core.shapes import Layout
from anyloss.decisions.classes import LEAST_GAIN, SAME
from anyloss.decisions.goals import class_parts
from anyloss.metrics import Metric
from anyloss.thresholds import cuts_between, middle_of_best, sweep

Sharing = Literal["per_label", "shared", "shrunk"]
SHARINGS: tuple[Sharing, ...] = ("per_label", "shared", "shrunk")
ROUNDS = 20  # over the labels, at most
PRIOR_POSITIVES = 10.0  # the weight of the shared threshold in a label's own, as positive samples


class _Label(NamedTuple):
    """All thresholds of a label, with the parts of the score at each of them."""

    cuts: Array
    scores: Array  # the distinct scores; threshold k is above k of them
    parts: Array  # (parts, cuts)


class Labels:
    """The labels `(n, C)` of 0 and 1 with their scores, and the metric of decisions for them."""

    def __init__(self, y: Array, scores: Array, weight: Array, metric: Metric, lay: Layout) -> None:
        self.evaluations = 0  # passes over all samples of all labels
        self.y, self.scores, self.weight = y, np.asarray(scores, dtype=float), weight
        self.metric, self.lay = metric, lay
        self._parts, self._combine = class_parts(metric, lay)
        self._columns = [self._column(k) for k in range(lay.classes)]

    def _column(self, k: int) -> _Label:
        s = self.scores[:, k]
        cuts, counts = sweep(self.y[:, k], s, self.weight)
        parts = np.array([np.broadcast_to(x, cuts.shape) for x in self._parts(counts)])
        return _Label(cuts, np.unique(s), parts)

    def score(self, thresholds: Array) -> float:
        """The metric of the decisions `scores > thresholds`."""
        above, w = self.scores > thresholds, self.weight[None]
        pairs = (self.y, above), (self.y, ~above), (1 - self.y, above), (1 - self.y, ~above)
        counts = Counts(*(w @ (truth * decided) for truth, decided in pairs))
        found = averaged(self.metric, counts, self.lay, NUMPY, hard=True).score.value
        check_finite(counts, [found], self.metric)
        return float(found.reshape(-1)[0])

    def shared(self) -> float:
        """The threshold that is best for all labels together, exactly."""
        self.evaluations += 1
        values = np.concatenate([each.scores for each in self._columns])
        changes = np.concatenate([np.diff(each.parts) for each in self._columns], axis=1)
        order = np.argsort(values, kind="stable")
        cuts, first = cuts_between(values[order])
        start = sum(each.parts[:, :1] for each in self._columns)
        sums = np.append(np.zeros_like(start), changes[:, order].cumsum(axis=1), axis=1)[:, first]
        return float(cuts[middle_of_best(self._combine(*(start + sums)), SAME)])

    def per_label(self, start: Array) -> Array:
        """The thresholds of which no single one can be improved; a useless one remains as it is.

        For averages of one score per label these are the best of all. So they are for the
        micro-average of a ratio of linear functions: if no label can improve the ratio, no label
        can improve Dinkelbach's linear function, and this is a sum over the labels.
        """
        thresholds = np.array(start, dtype=float)
        self.evaluations += 1
        places = [
            int(np.searchsorted(each.scores, t, side="right"))
            for each, t in zip(self._columns, thresholds, strict=True)
        ]
        total = sum(each.parts[:, k] for each, k in zip(self._columns, places, strict=True))
        best = float(self._combine(*total))
        for _ in range(ROUNDS):
            before = best
            self.evaluations += 1
            for k, each in enumerate(self._columns):
                rest = total - each.parts[:, places[k]]
                scores = np.broadcast_to(
                    self._combine(*(rest[:, None] + each.parts)), each.cuts.shape
                )
                at = middle_of_best(scores, SAME)
                if scores[at] > best + LEAST_GAIN:
                    thresholds[k], places[k], best = each.cuts[at], at, float(scores[at])
                    total = rest + each.parts[:, at]
            if best == before:
                break
        return thresholds

    def shrunk(self, own: Array, shared: float, probabilities: bool) -> Array:
        """Between a label's own threshold and the shared one, by the number of positives.

        A mean of the two, of their logits if they are probabilities, in which the shared one
        weighs as many positive samples as `PRIOR_POSITIVES`.
        """
        positives = self.weight @ self.y
        share = positives / (positives + PRIOR_POSITIVES)
        if not probabilities:
            return share * own + (1 - share) * shared
        return _probability(share * logit(own) + (1 - share) * logit(shared))


def logit(p: Array | float) -> Array:
    """The logit of a probability; those of 0 and 1 are finite.

    >>> logit(0.5).item()
    0.0
    """
    inside = np.clip(p, 1e-9, 1 - 1e-9)
    return np.log(inside) - np.log1p(-inside)


def _probability(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))
