"""The planner of the report: what another threshold, or another share of positives, would give.

A slider needs a script. It is in the page itself, its hash is in the page's content policy, and it
only writes numbers. Without scripts the section is hidden, and the page is as it was.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.metrics import Metric
from anyloss.report.drawing import Axis, Plot
from anyloss.report.words import number
from anyloss.tabular.intervals import DRAWS, central_interval
from anyloss.tabular.promises import tested_values
from anyloss.tabular.result import Result
from anyloss.thresholds import sweep

MOST_THRESHOLDS = 80
MOVED = np.array([0.002, 0.005, 0.01, 0.02, 0.05, *np.arange(0.1, 0.95, 0.1), 0.95, 0.98])
SCRIPT = (files("anyloss.report") / "templates" / "planner.js").read_text(encoding="utf-8")
HASH = f"sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}"


class Planned(NamedTuple):
    """The counts of the test rows at increasing thresholds, and the metric with its interval."""

    thresholds: Array
    counts: Counts
    scores: Array
    low: Array
    high: Array


def plan(y: Array, p: Array, metric: Metric, thresholds: Array, seed: int = 0) -> Planned:
    """The plan at these thresholds; the intervals are bootstraps over the test rows.

    >>> import anyloss
    >>> found = plan(np.array([0, 1, 1]), np.array([0.2, 0.4, 0.9]), anyloss.metric("recall"),
    ...     np.array([0.5]))
    >>> found.counts.tp.tolist(), found.scores.tolist()
    ([1.0], [0.5])
    """
    counts = _counts_at(y, p, thresholds)
    rng, scores, ends = np.random.default_rng(seed), _scores(metric, counts), []
    for each in zip(*counts, strict=True):
        drawn = rng.multinomial(len(y), np.array(each) / len(y), DRAWS).T.astype(float)
        ends.append(central_interval(_scores(metric, Counts(*drawn))))
    return Planned(thresholds, counts, scores, *np.array(ends).T)


def _scores(metric: Metric, counts: Counts) -> Array:
    return np.broadcast_to(np.asarray(metric(*counts), dtype=float), counts.tp.shape)


def _counts_at(y: Array, p: Array, thresholds: Array) -> Counts:
    """The counts of decisions above each threshold."""
    _, cells = sweep(y, p, np.ones(len(p)))
    at = np.searchsorted(np.unique(p), thresholds, side="right")  # values that are not above
    return Counts(*(x[at] for x in cells))


def section(result: Result, metric: Metric, title: str) -> dict[str, Any]:
    """What the page shows of the planner."""
    y, p = np.asarray(result.y_test, dtype=float), np.asarray(result.p_test, dtype=float)
    tested, certified = _tested(result)
    found = plan(y, p, metric, some_thresholds(y, p, np.unique([0.5, *tested])))
    data = {
        "threshold": found.thresholds.tolist(),
        "cells": [x.astype(int).tolist() for x in found.counts],
        "score": [_finite(x) for x in found.scores],
        "low": [_finite(x) for x in found.low],
        "high": [_finite(x) for x in found.high],
        "start": int(np.searchsorted(found.thresholds, 0.5)),
        "tested": np.flatnonzero(np.isin(found.thresholds, tested)).tolist(),
        "certified": bool(certified),
    }
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return {
        "hash": Markup(HASH),
        "data": Markup(text),
        "script": Markup(SCRIPT),
        "steps": len(found.thresholds) - 1,
        "start": data["start"],
        "costs": [_price(x) for x in result.model.costs or ("", "")],
        "movable": _movable(result),
        "prevalences": over_prevalences(result, metric, title),
    }


def some_thresholds(y: Array, p: Array, given: Array) -> Array:
    """The given thresholds, and others with few digits that divide the rows in other ways.

    Half of these are spread over all rows and half over the positive ones, which are often few.

    >>> y, p = np.array([0, 0, 1, 1]), np.array([0.123456, 0.2, 0.21, 0.9])
    >>> some_thresholds(y, p, np.array([0.5])).tolist()
    [0.09, 0.16, 0.2, 0.5, 0.9]
    """
    values, half = np.unique(p), MOST_THRESHOLDS // 2
    below = np.append(values[0] / 2, values)  # a threshold lies from here ...
    above = np.append(values, (1 + values[-1]) / 2)  # ... to below here
    spread = [np.linspace(0, len(values), half).round().astype(int)]
    if y.any():
        at = np.searchsorted(values, np.sort(p[y > 0]))
        spread.append(at[np.linspace(0, len(at) - 1, half).round().astype(int)])
    taken = np.searchsorted(values, given, side="right")  # what they divide is not shown twice
    chosen = np.setdiff1d(np.concatenate(spread), taken)
    chosen = chosen[(chosen > 0) | (values[0] > 0)]  # nothing is below 0
    return np.unique([*given, *(_short(below[k], above[k]) for k in chosen)])


def _short(low: float, high: float) -> float:
    """The number from `low` to below `high` with the fewest digits near their middle."""
    middle = low / 2 + high / 2
    for digits in range(1, 18):
        found = float(f"{middle:.{digits}g}")
        if low <= found < high:
            return found
    return float(low)


def _price(cost: str | float) -> str:
    """A cost as the slider shows it; 1 for a column of costs."""
    return repr(cost).removesuffix(".0") if isinstance(cost, float) else "1"


def _tested(result: Result) -> tuple[Array, bool]:
    """The tested thresholds, and whether the one that is used is certified."""
    if result.certificate is None:
        return np.empty(0), False
    return tested_values(result.model.classifier), result.certificate.threshold is not None


def _finite(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _movable(result: Result) -> bool:
    """Whether `predict --prevalence` can move the threshold of the model."""
    return result.certificate is None and hasattr(result.model.classifier, "with_priors")


def over_prevalences(result: Result, metric: Metric, title: str) -> Markup:
    """The metric if another share of the rows were positive, at the threshold and at moved ones.

    Recall and specificity of a threshold stay as they are, because only the shares of the classes
    change.
    """
    tp, fn, fp, tn = map(float, result.counts)
    if not tp + fn or not fp + tn:
        return Markup("")
    shares, here = np.concatenate([[0.001, 0.002, 0.005], np.linspace(0.01, 0.99, 99)]), tp + fn
    scores, here = scores_at(result.counts, shares, metric), here / (tp + fn + fp + tn)
    moved = moved_scores(result, metric) if _movable(result) else np.empty(0)
    plot = Plot(
        f"{title} by the share of positive rows",
        f"In the test rows this share is {number(here)}, and the score is {number(result.score)}.",
        Axis("share of positive rows"),
        Axis.of_scores(title, [*scores, *moved, result.score]),
    )
    finite = np.isfinite(scores)
    plot.guide((here, plot.y.low), (here, plot.y.high))
    plot.line(shares[finite], scores[finite], "first", legend="same threshold" * bool(len(moved)))
    if finite := np.isfinite(moved).tolist():
        plot.line(MOVED[finite], moved[finite], "second", legend="moved threshold")
    plot.chosen(here, result.score, f"{number(result.score)} in the test rows")
    return plot.markup()


def scores_at(counts: Counts, shares: Array, metric: Metric) -> Array:
    """The metric of decisions with these counts, of one threshold or of one for each share.

    >>> import anyloss
    >>> scores_at(Counts(8.0, 2.0, 10.0, 80.0), np.array([0.1, 0.5]), anyloss.metric("precision"))
    array([0.44444444, 0.87804878])
    """
    tp, fn, fp, tn = counts
    rows = tp + fn + fp + tn
    positives, negatives = rows * shares, rows * (1 - shares)
    tp_there, tn_there = positives * tp / (tp + fn), negatives * tn / (fp + tn)
    return _scores(metric, Counts(tp_there, positives - tp_there, negatives - tn_there, tn_there))


def moved_scores(result: Result, metric: Metric) -> Array:
    """The metric at the shares `MOVED`, each with the threshold of `predict --prevalence`."""
    classifier = result.model.classifier
    thresholds = np.array([classifier.threshold_for([1 - share, share]) for share in MOVED])
    return scores_at(_counts_at(result.y_test, result.p_test, thresholds), MOVED, metric)
