"""Constraints of a table's model: the rows that certify them, and what is promised in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from anyloss._core.backend import Array
from anyloss._core.constraints import read_constraints
from anyloss.recipe.constrained import Promise, centred, split_rows
from anyloss.sklearn import AnyLossClassifier
from anyloss.tabular.preparing import PreparedTable
from anyloss.tabular.result import Result


def set_apart(
    table: PreparedTable, promise: Promise, seed: int, positive_named: bool
) -> tuple[Array, str]:
    """Which rows certify, and what a certificate by them assumes; no row without a promise.

    The rows are plainly random ones, chosen before all others.
    """
    certifying = np.zeros(len(table.y), dtype=bool)
    certifying[split_rows(len(table.y), promise, seed)[1]] = True
    rest = table.y[~certifying]
    if certifying.any() and not positive_named and not 2 * rest.sum() <= len(rest):
        raise ValueError(
            f"a certificate is about one class, and which class of {table.outcome.target!r} is "
            "rarer depends on the rows that certify; name the positive class (--positive)"
        )
    keys, copies = table.keys, 0
    if certifying.any():
        copies = int(np.isin(keys[certifying], keys[~certifying]).sum())
    if not copies:
        return certifying, ""
    caveat = (
        f"{copies} of {int(certifying.sum())} certifying rows are copies of other rows. The "
        "certificate holds if these were drawn independently, and not if rows were duplicated"
    )
    table.warnings.append(caveat)
    return certifying, caveat


def tested_values(classifier: Any) -> Array:
    """The tested thresholds as decision values from 0 to 1, where 0.5 is the one that is used."""
    found = classifier.certificate_
    at = np.asarray(found.tested)
    if isinstance(classifier, AnyLossClassifier):
        return (1 + centred(at, classifier.threshold_)) / 2
    values: Array = expit(at - found.used_threshold)
    return values


def constraint_scores(result: Result) -> list[tuple[str, float, bool]]:
    """Each constraint, its metric on the test rows, and whether it holds there."""
    required = read_constraints(list(result.constraints)) if result.constraints else ()
    found = [(str(x), float(x.metric(*result.counts)), x) for x in required]
    return [(text, value, bool(x.holds(value))) for text, value, x in found]


def promise_in_words(classifier: Any) -> str:
    """What is promised about new data, in one or two sentences; "" without constraints."""
    if not classifier.constraints:
        return ""
    found = classifier.certificate_
    if found is None:
        aimed = " and ".join(map(str, read_constraints(classifier.constraints)))
        return (
            f"not certified: {aimed} was aimed at on held-out training rows, and nothing is "
            "promised about new data"
        )
    if found.threshold is None:
        return f"not certified: {found.words()}"
    return f"certified: {found.certificate.words()}"
