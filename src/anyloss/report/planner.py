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
from anyloss.baselines.splits import MODELS
from anyloss.metrics import Metric
from anyloss.report.curves import against_threshold
from anyloss.report.drawing import Axis, Plot
from anyloss.report.words import number
from anyloss.tabular.intervals import DRAWS, central_interval
from anyloss.tabular.promises import tested_values
from anyloss.tabular.result import Result
from anyloss.thresholds import sweep

MOST_THRESHOLDS = 80
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
    _, cells = sweep(y, p, np.ones(len(p)))
    at = np.searchsorted(np.unique(p), thresholds, side="right")  # values that are not above
    counts = Counts(*(x[at] for x in cells))
    rng, scores, ends = np.random.default_rng(seed), _scores(metric, counts), []
    for each in zip(*counts, strict=True):
        drawn = rng.multinomial(len(y), np.array(each) / len(y), DRAWS).T.astype(float)
        ends.append(central_interval(_scores(metric, Counts(*drawn))))
    return Planned(thresholds, counts, scores, *np.array(ends).T)


def _scores(metric: Metric, counts: Counts) -> Array:
    return np.broadcast_to(np.asarray(metric(*counts), dtype=float), counts.tp.shape)


def section(result: Result, metric: Metric, title: str) -> dict[str, Any]:
    """What the page shows of the planner."""
    y, p = np.asarray(result.y_test, dtype=float), np.asarray(result.p_test, dtype=float)
    tested, certified = _tested(result)
    at = against_threshold(y, p, metric)[0]
    at = at[np.unique(np.linspace(0, len(at) - 1, MOST_THRESHOLDS).round().astype(int))]
    found = plan(y, p, metric, np.unique(np.concatenate([at, [0.5], tested])))
    data = {
        "threshold": found.thresholds.round(6).tolist(),
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
        "movable": result.model_name in MODELS and result.certificate is None,
        "prevalences": over_prevalences(result, metric, title),
    }


def _tested(result: Result) -> tuple[Array, bool]:
    """The tested thresholds, and whether the one that is used is certified."""
    if result.certificate is None:
        return np.empty(0), False
    return tested_values(result.model.classifier), result.certificate.threshold is not None


def _finite(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def over_prevalences(result: Result, metric: Metric, title: str) -> Markup:
    """The metric of the same decisions, if another share of the rows were positive.

    Recall and specificity stay as they are, because only the shares of the classes change.
    """
    tp, fn, fp, tn = map(float, result.counts)
    if not tp + fn or not fp + tn:
        return Markup("")
    shares = np.concatenate([[0.001, 0.002, 0.005], np.linspace(0.01, 0.99, 99)])
    recall, specificity = tp / (tp + fn), tn / (fp + tn)
    rows = tp + fn + fp + tn
    positives, negatives = rows * shares, rows * (1 - shares)
    tp_there, tn_there = positives * recall, negatives * specificity
    counts = Counts(tp_there, positives - tp_there, negatives - tn_there, tn_there)
    scores, here = _scores(metric, counts), (tp + fn) / rows
    plot = Plot(
        f"{title} by the share of positive rows",
        f"In the test rows this share is {number(here)}, and the score is {number(result.score)}.",
        Axis("share of positive rows"),
        Axis.of_scores(title, [*scores, result.score]),
    )
    finite = np.isfinite(scores)
    plot.guide((here, plot.y.low), (here, plot.y.high))
    plot.line(shares[finite], scores[finite], "first")
    plot.chosen(here, result.score, f"{number(result.score)} in the test rows")
    return plot.markup()
