"""`certify`: what the metric of some decisions is on new data, with a stated confidence."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint, ConstraintSpec, is_constraint, read_constraints
from anyloss._core.forms import is_of_shares
from anyloss.certificates.bounds import lower_bounds, method, p_values
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric


@dataclass(frozen=True)
class Certificate:
    """A bound or a test that holds for the population of the rows; the result of `certify`.

    Attributes:
        statement (str): the metric, or the constraints that were tested.
        score (float): the metric on the rows; NaN for several constraints.
        lower (float): the metric of the population is at least this, with the confidence; NaN for
            several constraints, and -inf where nothing can be excluded.
        upper (float): the metric of the population is at most this, with the confidence. Both
            bounds hold jointly with twice the error.
        p_value (float): the p-value of "a constraint is violated", the largest one for several
            constraints; NaN without a constraint.
        holds (bool or None): whether all constraints hold with the confidence; None without one.
        confidence_level (float): the probability, over the draw of the rows, that a statement is
            right.
        method (str): how the bound is computed.
        rows (int): the number of independent rows.

    Examples:
        >>> found = certify([1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 1], "recall")
        >>> round(found.lower, 4), found.method
        (0.3684, 'Clopper-Pearson: tp given tp + fn')
    """

    statement: str
    score: float
    lower: float
    upper: float
    p_value: float
    holds: bool | None
    confidence_level: float
    method: str
    rows: int

    def words(self) -> str:
        """The certificate as a sentence."""
        confidence = f"with {100 * self.confidence_level:g} % confidence"
        if self.holds is None and self.lower == -np.inf:
            return f"these {self.rows} rows give no bound on {self.statement} {confidence}"
        if self.holds is None:
            return (
                f"{self.statement} on new data of the same kind is at least {self.lower:.4f} "
                f"{confidence}; on these {self.rows} rows it is {self.score:.4f}"
            )
        known = "holds" if self.holds else "is not certified to hold"
        return (
            f"{self.statement} {known} on new data of the same kind {confidence} "
            f"({self.rows} rows, p = {self.p_value:.3g})"
        )


def certify(
    y_true: Array,
    y_pred: Array,
    metric: MetricSpec | Metric | ConstraintSpec = "f1",
    *,
    confidence_level: float = 0.95,
    frequency: Array | None = None,
    groups: Array | None = None,
    random_state: int = 0,
) -> Certificate:
    """Bound a metric of decisions on new data, or test constraints on it.

    The rows are independent draws from a population, such as the customers of a year. The bound
    is about the metric of that population: if rows were drawn again and again, it would be right
    in at least `confidence_level` of the draws. This holds for any number of rows, without a normal
    approximation, if the rows took no part in training, choosing or tuning.

    The method follows from the form of the metric. A share of a count (recall, precision,
    specificity, NPV, accuracy, Jaccard), or a rising function of one (F1), has an exact binomial
    bound. Another ratio of sums of cells (F-beta, Tversky, a cost) is tested by betting. Every
    other metric (balanced accuracy, MCC, a formula) is bounded over exact joint intervals of
    recall, specificity and prevalence.

    Args:
        y_true (array-like): the labels, 0 and 1.
        y_pred (array-like): the decisions, 0 and 1.
        metric (str, callable, Metric or list of str): a metric, for its bounds; or a constraint
            such as `"recall >= 0.9"`, for its test. Several constraints are tested jointly, and
            their largest p-value is that of all. Default: `"f1"`.
        confidence_level (float): the confidence, between 0.5 and 1. Default: 0.95.
        frequency (array-like, optional): how many independent rows each row stands for. Weights
            have no certificate.
        groups (array-like, optional): a group for each row, such as a patient with several rows.
            One random row of each group is used.
        random_state (int): the seed of the choice of the rows of groups. Default: 0.

    Shape:
        - `y_true`, `y_pred`, `frequency` and `groups`: `(n,)`, with at least one row.

    Returns:
        Certificate: `lower`, `upper`, `score`, `method` and `rows`; for constraints also `p_value`
        and `holds`. Its method `words()` is a sentence.

    Raises:
        ValueError: if labels or decisions are not 0 and 1, lengths differ, there is no row, a
            frequency is no count, a constraint is not valid, or the metric depends on the number
            of rows.
        TypeError: if an argument has the wrong type.

    Examples:
        >>> y, decisions = [1] * 60 + [0] * 140, [1] * 57 + [0] * 143
        >>> found = certify(y, decisions, "f1", confidence_level=0.95)
        >>> round(found.score, 4), round(found.lower, 4)
        (0.9744, 0.9338)
        >>> found = certify(y, decisions, "recall >= 0.85")
        >>> found.holds, round(found.p_value, 4)
        (True, 0.0148)

    References:
        C. J. Clopper and E. S. Pearson, "The Use of Confidence or Fiducial Limits Illustrated in
        the Case of the Binomial", Biometrika 26(4), 1934.

        I. Waudby-Smith and A. Ramdas, "Estimating Means of Bounded Random Variables by Betting",
        Journal of the Royal Statistical Society B 86(1), 2024.
    """
    confidence_level = check_confidence(confidence_level)
    counts = _counts(y_true, y_pred, frequency, groups, random_state)
    if is_constraint(metric):
        constraints = read_constraints(metric)  # type: ignore[arg-type]
        return check_constraints(constraints, counts, confidence_level)
    return bound_metric(find_metric(metric), counts, confidence_level)  # type: ignore[arg-type]


def bound_metric(metric: Metric, counts: Array, confidence_level: float) -> Certificate:
    """The certificate of a metric, from the counts `(4,)`."""
    _check_shares(metric)
    alpha = 1 - confidence_level
    return Certificate(
        statement=metric.name,
        score=float(metric(*counts.tolist())),
        lower=float(lower_bounds(metric, counts[None], alpha)[0]) + 0.0,  # not -0.0
        upper=0.0 - float(lower_bounds(metric, counts[None], alpha, sign=-1)[0]),
        p_value=np.nan,
        holds=None,
        confidence_level=confidence_level,
        method=method(metric),
        rows=int(counts.sum()),
    )


def check_constraints(
    constraints: tuple[Constraint, ...], counts: Array, confidence_level: float
) -> Certificate:
    """The certificate of constraints, from the counts `(4,)`."""
    found = float(constraint_p_values(constraints, counts[None])[0])
    one = bound_metric(constraints[0].metric, counts, confidence_level)
    single = len(constraints) == 1
    return Certificate(
        statement=" and ".join(map(str, constraints)),
        score=one.score if single else np.nan,
        lower=one.lower if single else np.nan,
        upper=one.upper if single else np.nan,
        p_value=found,
        holds=found <= 1 - confidence_level,
        confidence_level=confidence_level,
        method="; ".join(dict.fromkeys(method(x.metric) for x in constraints)),
        rows=int(counts.sum()),
    )


def constraint_p_values(constraints: tuple[Constraint, ...], counts: Array) -> Array:
    """The p-values of "one of the constraints is violated", of counts `(k, 4)`.

    All constraints hold only if each of them does, so that each may be tested at the full error:
    the largest p-value is that of all, without a division.
    """
    found = np.zeros(len(counts))
    for each in constraints:
        _check_shares(each.metric)
        sign = 1 if each.at_least else -1
        found = np.maximum(found, p_values(each.metric, counts, sign * each.value, sign))
    return found


def check_confidence(confidence_level: float) -> float:
    """The confidence as a plain number; an error if it is none."""
    if not isinstance(confidence_level, Real) or not 0.5 <= confidence_level < 1:
        raise ValueError(
            f"confidence_level must be a number from 0.5 to below 1; got {confidence_level!r}"
        )
    return float(confidence_level)


def _check_shares(metric: Metric) -> None:
    if not is_of_shares(metric):
        raise ValueError(
            f"a certificate needs a metric that does not change if all counts are tripled; "
            f"{metric.name!r} does. Divide by a sum of counts, as in 'tp / (tp + fn + fp + tn)'"
        )


def _counts(
    y_true: Array, y_pred: Array, frequency: Array | None, groups: Array | None, seed: int
) -> Array:
    """The counts tp, fn, fp and tn as whole numbers `(4,)`; all columns are checked."""
    y, d = binary("labels", y_true), binary("decisions", y_pred)
    if y.shape != d.shape or not len(y):
        raise ValueError(
            "labels and decisions must be columns of one length, with at least one row; got shapes "
            f"{y.shape} and {d.shape}"
        )
    if frequency is not None and groups is not None:
        raise ValueError("frequency= and groups= exclude each other; got both. Leave out one")
    times = np.ones(len(y), dtype=np.int64) if frequency is None else _frequency(frequency, len(y))
    if groups is not None:
        one = _one_per_group(groups, len(y), seed)
        y, d, times = y[one], d[one], times[one]
    if not times.sum():
        raise ValueError("a certificate needs at least one row; got frequencies of 0 only")
    cell = np.where(y, np.where(d, 0, 1), np.where(d, 2, 3))
    return np.array([times[cell == k].sum() for k in range(4)])


def binary(what: str, given: Array) -> Array:
    """A column of 0 and 1 as booleans, checked."""
    found = np.asarray(given)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"{what} must be the numbers 0 and 1; got values of type {found.dtype}")
    if found.ndim != 1:
        raise ValueError(f"{what} must be one column, for two classes; got shape {found.shape}")
    if not ((found == 0) | (found == 1)).all():
        wrong = found[(found != 0) & (found != 1)][0]
        hint = "several classes have no certificate yet"
        if wrong != wrong:
            hint = "remove the rows without a value"
        elif wrong == -1:
            hint = "write -1 and 1 as 0 and 1, as in labels > 0"
        elif what == "decisions":
            hint = "apply a threshold to scores, as in scores > 0.5"
        raise ValueError(f"{what} must be 0 and 1; got {wrong!s}; {hint}")
    return found.astype(bool)


def _frequency(given: Array, rows: int) -> Array:
    found = np.asarray(given)
    counted = found.dtype.kind in "fiu" and found.shape == (rows,)
    whole = counted and bool(((found >= 0) & (found == np.floor(found))).all())
    if not whole or not found.sum(dtype=float) < 2**53:
        raise ValueError(
            f"frequency must have one whole number >= 0 per row ({rows}): how many independent "
            f"rows it stands for. Weights have no certificate. Got {found.dtype} of shape "
            f"{found.shape}"
        )
    return found.astype(np.int64)


def _one_per_group(groups: Array, rows: int, seed: int) -> Array:
    """The index of one random row of each group."""
    found = np.asarray(groups)
    if found.shape != (rows,):
        raise ValueError(f"groups must have one entry per row ({rows},); got shape {found.shape}")
    missing = [x is None or x != x for x in found.tolist()]
    if any(missing):
        raise ValueError(
            f"groups must name the group of every row; got {sum(missing)} missing. Give each of "
            "these rows a group of its own if they are independent"
        )
    order = np.random.default_rng(seed).permutation(rows)
    return order[np.unique(found[order], return_index=True)[1]]
