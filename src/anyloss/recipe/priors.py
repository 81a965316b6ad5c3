"""Class shares where a classifier is used, if they are not those of its training rows.

Only the shares of the classes change, not what the rows of a class look like. Rows that are
weighted to other shares then show what the metric would be there, and which decision is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe.constrained import centred
from anyloss.recipe.folds import thinned
from anyloss.recipe.target import new_target
from anyloss.thresholds import best_threshold

KEPT = 20_000  # held-out rows that a model keeps
LEAST = 1e-6  # an estimated share


def read_priors(priors: Any, classes: int, name: str = "priors", *, zero: bool = False) -> Array:
    """The shares of the classes, checked; with `zero`, all but two classes may have none.

    >>> read_priors([0.9, 0.1], 2).tolist()
    [0.9, 0.1]
    >>> read_priors([0.9, 0.2], 2)
    Traceback (most recent call last):
        ...
    ValueError: priors must be 2 shares above 0 that sum to 1; got [0.9, 0.2]
    """
    try:
        shares = np.asarray(priors, dtype=float)
    except (TypeError, ValueError):
        shares = np.empty(0)
    allowed = shares.shape == (classes,) and bool((shares >= 0).all())
    above = (shares > 0).sum() >= (min(2, classes) if zero else classes)
    if not allowed or not above or abs(shares.sum() - 1) > 1e-6:
        words = "that sum to 1, at least two above 0" if zero else "above 0 that sum to 1"
        given = shares.tolist() if shares.size else repr(priors)
        raise ValueError(f"{name} must be {classes} shares {words}; got {given}")
    return shares / shares.sum()


def factors(priors: Array, shares: Array) -> Array:
    """What a row of each class counts, so that the classes have the shares of the priors.

    >>> factors(np.array([0.5, 0.5]), np.array([0.8, 0.2])).tolist()
    [0.625, 2.5]
    """
    if ((shares == 0) & (priors > 0)).any():
        raise ValueError(
            "a class with a prior above 0 must be among the rows; got rows with the shares "
            f"{shares.tolist()} and the priors {priors.tolist()}"
        )
    return np.asarray(priors / np.where(shares > 0, shares, 1.0))


def log_shares(sums: Array, task: str) -> Array:
    """The log share of each class, or the log odds of each label: what frequencies add to logits.

    The cross-entropy of logits plus this leaves the frequencies out of the logits (A. K. Menon et
    al., "Long-tail learning via logit adjustment", ICLR 2021; "balanced softmax" of J. Ren et al.,
    NeurIPS 2020). `sums` `(2, classes)` are the weights of the rows without and with each class. An
    absent class counts as the rarest one, and a label that all rows or none have gets 0.

    >>> log_shares(np.array([[1.0, 3.0], [3.0, 1.0]]), "multiclass").round(3).tolist()
    [-0.288, -1.386]
    >>> log_shares(np.array([[1.0, 4.0], [3.0, 0.0]]), "multilabel").round(3).tolist()
    [1.099, 0.0]
    """
    present = sums > 0
    logs = np.log(np.where(present, sums, 1.0))
    if task == "multiclass":
        rarest = logs[1][present[1]].min()
        found: Array = np.where(present[1], logs[1], rarest) - np.log(sums[1].sum())
        return found
    odds: Array = np.where(present.all(axis=0), logs[1] - logs[0], 0.0)
    return odds


def refuse_labels(task: str) -> None:
    """Refuse several labels per row, which have no shares that sum to 1."""
    if task == "multilabel":
        raise ValueError(
            "priors are the shares of classes that exclude each other; got several labels per row. "
            "Pass sample_weight instead"
        )


def by_class(labels: Array, task: str, positive: int | None) -> Array:
    """Labels with one column per class, in the order of the classes.

    >>> by_class(np.array([[1.0], [0.0]]), "binary", 0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    refuse_labels(task)
    if task == "multiclass":
        return labels
    both = [1 - labels, labels]
    return np.hstack(both if positive == 1 else both[::-1])


def estimate_priors(
    probabilities: Array, shares: Sequence[float], *, max_iter: int = 10_000, tol: float = 1e-9
) -> Array:
    """The class shares of new rows, from calibrated probabilities and no labels.

    The shares are those under which the new rows are most likely, found by
    expectation-maximisation. They are right if the probabilities are calibrated, and only the
    shares have changed since the classifier was trained.

    Args:
        probabilities (array): calibrated probabilities of the new rows.
        shares (sequence of float): the class shares for which they are calibrated, which are those
            of the training rows.
        max_iter (int): the largest number of steps. Default: 10,000.
        tol (float): the change of every share at which to stop. Default: 1e-9.

    Shape:
        - `probabilities`: `(n, classes)`.

    Returns:
        array: the shares `(classes,)`, which sum to 1. None is below 1e-6.

    Raises:
        ValueError: if there are no rows, they are no probabilities, or the shares do not match.

    Examples:
        >>> estimate_priors([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]], [0.5, 0.5]).round(3).tolist()
        [0.708, 0.292]

    References:
        M. Saerens, P. Latinne and C. Decaestecker, "Adjusting the Outputs of a Classifier to New a
        Priori Probabilities: A Simple Procedure", Neural Computation 14, 2002.
    """
    p = np.asarray(probabilities, dtype=float)
    if (
        p.ndim != 2
        or not len(p)
        or not ((p >= 0) & (abs(p.sum(1, keepdims=True) - 1) < 1e-6)).all()
    ):
        raise ValueError(
            "probabilities must be rows of one probability per class that sum to 1; got an array "
            f"of shape {p.shape}"
        )
    if max_iter < 1 or not tol >= 0:
        raise ValueError(
            f"max_iter must be at least 1, and tol at least 0; got {max_iter} and {tol}"
        )
    trained = read_priors(shares, p.shape[1], "shares")
    ratio, found = p / trained, trained
    for _ in range(max_iter):
        each = ratio * found
        last, found = found, (each / each.sum(axis=1, keepdims=True)).mean(axis=0)
        found = np.maximum(found, LEAST)
        if np.abs(found - last).max() < tol:
            break
    return np.asarray(found / found.sum())


class HeldOut(NamedTuple):
    """The rows that find a rule for other shares: values of members that did not see them."""

    values: Array
    labels: Array
    weight: Array

    def shares(self, task: str, positive: int | None) -> Array:
        """The shares of the classes."""
        return shares_of(by_class(self.labels, task, positive), self.weight)


def kept_rows(values: Array, labels: Array, weight: Array, task: str, seed: int) -> HeldOut:
    """The held-out rows that a model keeps: of very many a sample, the rarer class first."""
    if len(values) > KEPT:
        rows, weight = thinned(labels, weight, task, KEPT, seed)
        values, labels = values[rows], labels[rows]
    return HeldOut(values, labels, weight)


def shares_of(classes: Array, weight: Array) -> Array:
    """The weighted shares of the classes of rows `(n, classes)`."""
    total = weight @ classes
    return np.asarray(total / total.sum())


class Rule(NamedTuple):
    """How values become decisions: by a threshold in -1 .. 1, a factor per class, or offsets.

    The first two are for decision values of networks, the offsets for margins.
    """

    threshold: float = 0.0
    factors: Array | None = None
    offsets: Array | None = None

    def __call__(self, values: Array) -> Array:
        """Values whose decision is at 0, or at the highest class."""
        if self.offsets is not None:
            return np.asarray(values - self.offsets)
        if self.factors is None:
            return centred(values, self.threshold)
        found = values * self.factors
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    @property
    def at(self) -> float:
        """The value of two classes at which the decision changes."""
        return self.threshold if self.offsets is None else float(self.offsets[0])

    def to_json(self) -> dict[str, Any]:
        """The rule as it is saved."""
        return {
            k: x.tolist() if isinstance(x, np.ndarray) else x for k, x in self._asdict().items()
        }


def rule_from_json(stored: dict[str, Any]) -> Rule:
    """The inverse of `Rule.to_json`.

    >>> rule_from_json(Rule(offsets=np.array([0.5])).to_json())
    Rule(threshold=0.0, factors=None, offsets=array([0.5]))
    """
    factors, offsets = stored["factors"], stored["offsets"]
    return Rule(
        stored["threshold"],
        None if factors is None else np.array(factors),
        None if offsets is None else np.array(offsets),
    )


def best_offsets(
    rows: HeldOut, priors: Array, metric: MetricSpec | Metric, task: str, average: str | None,
    positive: int | None, constraints: tuple[Constraint, ...] = (),
) -> Array | None:  # fmt: skip
    """What to subtract from the scores of rows so that the metric is best for the priors.

    It is the mean of the best offsets of resampled rows, which varies less than the best ones of
    all rows. With constraints, it is the best threshold that satisfies them. For the shares of the
    rows themselves it is None: what the fit has chosen.
    """
    classes = by_class(rows.labels, task, positive)
    shares = shares_of(classes, rows.weight)
    if np.allclose(priors, shares, rtol=0, atol=1e-9):
        return None
    weight = rows.weight * (classes @ factors(priors, shares))
    weight = weight * (len(weight) / weight.sum())
    if constraints:
        found = best_threshold(
            rows.labels[:, 0], rows.values[:, 0], metric, constraints=constraints, weight=weight
        )
        return np.array([found.threshold])
    return new_target(rows.labels, metric, task, average, weight).averaged_offsets(rows.values)
