"""The best threshold among those whose constraints are certified, by fixed-sequence testing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import ROUNDING, Constraint, ConstraintSpec, read_constraints
from anyloss._core.documents import documented
from anyloss.certificates.certify import (
    Certificate,
    binary,
    check_confidence,
    check_constraints,
    constraint_p_values,
)
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.thresholds import columns, nearest_threshold, sweep

MOST_DOUBLINGS = 12  # of the rows, for the estimate of the rows that are needed


@dataclass(frozen=True)
class CertifiedThreshold:
    """A threshold with the certificate of its constraints; the result of `certified_threshold`.

    Attributes:
        threshold (float or None): the best threshold among the certified ones; None if none is.
        certificate (Certificate): the test of that threshold, whose bound is the constraint, or of
            the first candidate with its own bound if no threshold is certified.
        tested (tuple of float): the thresholds that were tested, in their order.
        uncertified_threshold (float): the best threshold that satisfies the constraints on the
            tuning rows, or the nearest one to it. Nothing is promised for it.
        rows_needed (int or None): if no threshold is certified, an estimate of the number of
            certifying rows with which the first candidate would be; None if it would never be.

    Examples:
        >>> y, scores = [0, 1] * 100, [0.25, 0.75] * 100
        >>> found = certified_threshold(y, scores, y, scores, "f1", constraints="recall >= 0.95")
        >>> found.threshold, found.certificate.holds
        (0.5, True)
    """

    threshold: float | None
    certificate: Certificate
    tested: tuple[float, ...]
    uncertified_threshold: float
    rows_needed: int | None

    @property
    def used_threshold(self) -> float:
        """The certified threshold, or the uncertified one if there is none."""
        return self.uncertified_threshold if self.threshold is None else self.threshold

    def words(self) -> str:
        """The result as one or two sentences."""
        if self.threshold is not None:
            return f"threshold {self.threshold:.6g}: {self.certificate.words()}"
        rows = (
            "no number of rows would be enough"
            if self.rows_needed is None
            else f"about {self.rows_needed} certifying rows would be needed"
        )
        return (
            f"no threshold is certified; for the first candidate, {self.tested[0]:.6g}: "
            f"{self.certificate.words()}. By its result on these rows, {rows}"
        )


@documented
def certified_threshold(
    y_tuning: Array,
    scores_tuning: Array,
    y_certifying: Array,
    scores_certifying: Array,
    metric: MetricSpec | Metric = "f1",
    *,
    constraints: ConstraintSpec,
    confidence_level: float = 0.95,
    candidates: int = 30,
    weight_tuning: Array | None = None,
) -> CertifiedThreshold:
    """Find the best threshold whose constraints hold on new data with a stated confidence.

    The tuning rows give the candidates, the thresholds that satisfy the constraints there, and
    their order, from the lowest p-value on. The certifying rows, which are other rows, test them in
    that order until one fails. The probability that any of the passed thresholds violates a
    constraint is at most `1 - confidence_level`, without a correction for their number. The one
    with the best metric on the tuning rows is taken.

    Args:
        y_tuning (array-like): the labels of the tuning rows, 0 and 1.
        scores_tuning (array-like): the scores of the tuning rows.
        y_certifying (array-like): the labels of the certifying rows, 0 and 1.
        scores_certifying (array-like): the scores of the certifying rows, from the same model.
        constraints (str or list of str): constraints such as `"recall >= 0.9"`, which hold jointly.
        confidence_level (float): the confidence, between 0.5 and 1. Default: 0.95.
        candidates (int): the largest number of candidates. Default: 30.
        weight_tuning (array-like, optional): weights of the tuning rows, which choose and order the
            candidates. Certifying rows have no weights.

    Shape:
        - labels and scores: `(n,)` each, with at least one row.

    Returns:
        CertifiedThreshold: the threshold with its certificate. If no threshold is certified, its
        `threshold` is None.

    Raises:
        ValueError: if columns are empty or of different lengths, or a constraint is not valid.
        TypeError: if scores or labels are not numbers.

    Examples:
        >>> y, scores = [0, 1] * 5, [0.25, 0.75] * 5
        >>> found = certified_threshold(y, scores, y, scores, constraints="recall >= 0.9")
        >>> found.threshold, round(found.certificate.lower, 4), found.rows_needed
        (None, 0.5493, 58)

    References:
        A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, "Learn then Test:
        Calibrating Predictive Algorithms to Achieve Risk Control", Annals of Applied Statistics
        19(2), 2025.
    """
    confidence_level = check_confidence(confidence_level)
    chosen, required = find_metric(metric), read_constraints(constraints)
    if not required:
        raise ValueError(
            "constraints must hold at least one, such as 'recall >= 0.9'; got none. For a bound on "
            "the metric itself use anyloss.certify"
        )
    if not isinstance(candidates, Integral) or candidates < 1:
        raise ValueError(f"candidates must be an integer of at least 1; got {candidates!r}")
    cuts, cells = _sweep(y_tuning, scores_tuning, weight_tuning)
    scores = np.broadcast_to(chosen(*cells.T), cuts.shape)
    picked = _candidates(required, cells, scores, candidates)
    scores = scores[picked]

    order = np.lexsort(np.stack([-scores, constraint_p_values(required, _whole(cells[picked]))]))
    y, s = binary("labels", y_certifying), columns(y_certifying, scores_certifying, None)[1]
    new = np.stack([_counts_at(y, s, cut) for cut in cuts[picked]])
    failed = constraint_p_values(required, new[order]) > 1 - confidence_level
    number = int(failed.argmax()) if failed.any() else len(order)  # of those before the first
    tested, passed = order[: number + 1], order[:number]
    shown = max(passed, key=lambda k: float(scores[k])) if number else tested[0]
    counts = new[shown]
    return CertifiedThreshold(
        threshold=float(cuts[picked[shown]]) if number else None,
        certificate=_as_tested(required, check_constraints(required, counts, confidence_level)),
        tested=tuple(cuts[picked[tested]].tolist()),
        uncertified_threshold=nearest_threshold(
            y_tuning, scores_tuning, chosen, required, weight_tuning
        ).threshold,
        rows_needed=None if number else rows_needed(required, counts, confidence_level),
    )


def _as_tested(constraints: tuple[Constraint, ...], found: Certificate) -> Certificate:
    """The certificate of a passed threshold, whose bound is the constraint itself.

    The passed threshold was chosen by the certifying rows, so that a bound of these rows which goes
    further than the test would be too good.
    """
    if not found.holds or len(constraints) > 1:
        return found
    value, at_least = constraints[0].value, constraints[0].at_least
    return replace(found, lower=value if at_least else -np.inf, upper=np.inf if at_least else value)


def rows_needed(
    constraints: tuple[Constraint, ...], counts: Array, confidence_level: float
) -> int | None:
    """About how many rows would certify the constraints, if more rows were like these."""

    def first(rows: Array) -> int | None:
        """The place of the first number of rows that would do."""
        scaled = np.rint(counts * (rows / counts.sum())[:, None]).astype(np.int64)
        enough = constraint_p_values(constraints, scaled) <= 1 - confidence_level
        return int(enough.argmax()) if enough.any() else None

    doubled = counts.sum() * 2 ** np.arange(1, MOST_DOUBLINGS + 1)
    found = first(doubled)
    if found is None:
        return None
    between = np.unique(np.linspace(doubled[found] // 2, doubled[found], 101)[1:].astype(np.int64))
    return int(between[first(between)])


def _sweep(y_true: Array, y_score: Array, weight: Array | None) -> tuple[Array, Array]:
    """All thresholds, and their counts `(thresholds, 4)`; the mean weight counts as one row."""
    binary("labels", y_true)
    y, s, w = columns(y_true, y_score, weight)
    cuts, cells = sweep(y, s, w * (len(w) / w.sum()))
    return cuts, np.stack(list(cells), axis=1)


def _whole(counts: Array) -> Array:
    return np.rint(counts).astype(np.int64)


def _counts_at(y: Array, s: Array, cut: float) -> Array:
    predicted = s > cut
    pairs = ((y, predicted), (y, ~predicted), (~y, predicted))
    found = [int((one & two).sum()) for one, two in pairs]
    return np.array([*found, len(y) - sum(found)])


def _candidates(
    constraints: tuple[Constraint, ...], cells: Array, scores: Array, number: int
) -> Array:
    """Thresholds that satisfy the constraints, or the one that is nearest to it.

    They are evenly spaced in what they exceed the constraints by; of equal ones the best is used.
    Evenly spaced in rows, few of them would lie where the test is decided.
    """
    counts = cells.T
    excess = np.min(
        [np.broadcast_to(x.excess(x.metric(*counts)), len(cells)) for x in constraints], axis=0
    )
    feasible = np.flatnonzero(excess >= -ROUNDING)
    if not len(feasible):
        return np.array([excess.argmax()])
    feasible = feasible[np.lexsort((-scores[feasible], excess[feasible]))]
    levels = np.linspace(excess[feasible[0]], excess[feasible[-1]], number)
    return feasible[np.unique(np.searchsorted(excess[feasible], levels))]
