"""The pictures of a result, each from the numbers of the result alone."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from anyloss._core.backend import Array
from anyloss.metrics import Metric
from anyloss.report.curves import Curve, against_threshold, thin
from anyloss.report.drawing import Axis, Plot, bar_row, extent, interval_row
from anyloss.report.words import difference, digits_of, name, number
from anyloss.tabular.result import Importance, Result, Rival


def threshold(result: Result, metric: Metric, title: str) -> Markup:
    """The metric against the threshold, with the decision at 0.5."""
    x, y = against_threshold(result.y_test, result.p_test, metric)
    plot = Plot(
        f"{title} against the threshold",
        f"At 0.5, the threshold of the model, it is {number(result.score)}.",
        Axis("threshold of the vote"),
        Axis.of_scores(title, [*y, *result.interval]),
    )
    plot.guide((0.5, plot.y.low), (0.5, plot.y.high))
    plot.line(x, y, "first", steps=True)
    label = f"{number(result.score, digits_of(result.interval))} at 0.5"
    plot.chosen(0.5, result.score, label, result.interval)
    return plot.markup()


def training(curve: Array, title: str) -> Markup | None:
    """The soft and the hard score during the training; nothing where no record was kept."""
    steps, soft, hard = np.reshape(curve, (-1, 3)).astype(float).T
    if not np.isfinite([soft, hard]).any():
        return None
    plot = Plot(
        f"{title} during the training",
        f"After the last step the soft score is {number(soft[-1])}, the hard one "
        f"{number(hard[-1])}.",
        Axis("step", steps.min(), max(steps.max(), steps.min() + 1)),
        Axis.around(title, [*soft, *hard]),
    )
    plot.line(*thin(steps, soft), "second", legend="soft (trained)")
    plot.line(*thin(steps, hard), "first", legend="hard (counted)")
    return plot.markup()


def roc(result: Result, curve: Curve) -> Markup:
    """Recall against false alarms."""
    tp, fn, fp, tn = result.counts
    plot = _shares("ROC curve", "area under it", "false alarms among negatives", "recall", curve)
    plot.guide((0, 0), (1, 1))
    plot.chosen(fp / (fp + tn), tp / (tp + fn), "at 0.5")
    return plot.markup()


def precision_recall(result: Result, curve: Curve) -> Markup:
    """Precision against recall."""
    tp, fn, fp, _ = result.counts
    share = (tp + fn) / len(result.y_test)
    plot = _shares("Precision-recall curve", "average precision", "recall", "precision", curve)
    plot.guide((0, share), (1, share))
    plot.chosen(tp / (tp + fn), tp / (tp + fp) if tp + fp else 0.0, "at 0.5")
    return plot.markup()


def calibration(curve: Curve) -> Markup:
    """The share of positives against the vote."""
    plot = _shares("Calibration curve", "mean gap", "mean vote", "share of positives", curve)
    plot.guide((0, 0), (1, 1))
    plot.dots(curve.x, curve.y, "first")
    return plot.markup()


def _shares(title: str, value: str, x: str, y: str, curve: Curve) -> Plot:
    """A curve in the unit square; `value` says what its number is."""
    plot = Plot(title, f"The {value} is {number(curve.value)}.", Axis(x), Axis(y))
    plot.line(curve.x, curve.y, "first")
    return plot


def rivals(given: tuple[Rival, ...]) -> list[tuple[Rival, Markup]]:
    """The baselines, the best first, each with the difference drawn on one scale."""
    reach = max(map(abs, extent(x for rival in given for x in rival.interval)))
    axis = Axis("difference", -(reach or 1.0), reach or 1.0)
    return [
        (r, interval_row(r.difference, r.interval, axis, f"{name(r.name)}: {difference(r)}"))
        for r in sorted(given, key=lambda rival: -rival.score)
    ]


def importances(given: tuple[Importance, ...], most: int) -> list[tuple[Importance, Markup]]:
    """The columns that matter most, each with a bar on one scale."""
    measured = [each for each in given if math.isfinite(each.drop)]
    shown = sorted(measured, key=lambda each: -each.drop)[:most]
    ends = [each.drop + sign * each.deviation for each in shown for sign in (-1, 1)]
    low, high = extent([0.0, *ends])
    axis = Axis("drop", low, high if high > low else low + 1.0)
    titles = [f"{name(each.column)}: {number(each.drop)}" for each in shown]
    return [
        (each, bar_row(each.drop, each.deviation, axis, title))
        for each, title in zip(shown, titles, strict=True)
    ]
