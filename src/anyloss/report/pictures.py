"""The pictures of a result."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from anyloss._core.backend import Array
from anyloss.metrics import Metric
from anyloss.report.curves import Calibration, Curve, against_threshold, thin
from anyloss.report.drawing import Axis, Plot, bar_row, extent, interval_row
from anyloss.report.words import difference, digits_of, name, number
from anyloss.tabular.result import Baseline, Importance, Result


def threshold(result: Result, metric: Metric, title: str) -> Markup:
    """The metric at each threshold, with the model's threshold of 0.5."""
    x, y = against_threshold(result.y_test, result.p_test, metric)
    plot = Plot(
        f"{title} at each threshold",
        f"At 0.5, the threshold of the model, it is {number(result.score)}.",
        Axis("threshold of the decision value"),
        Axis.of_scores(title, [*y, *result.interval]),
    )
    plot.guide((0.5, plot.y.low), (0.5, plot.y.high))
    plot.line(x, y, "first", steps=True)
    label = f"{number(result.score, digits_of(result.interval))} at 0.5"
    plot.chosen(0.5, result.score, label, result.interval)
    return plot.markup()


def training(curve: Array, title: str) -> Markup | None:
    """The soft and the hard score during the training; None if there is no record."""
    steps, soft, hard = np.reshape(curve, (-1, 3)).astype(float).T
    if not np.isfinite([soft, hard]).any():
        return None
    plot = Plot(
        f"{title} during the training",
        f"After the last step the soft score is {number(soft[-1])} and the hard score is "
        f"{number(hard[-1])}.",
        Axis("step", steps.min(), max(steps.max(), steps.min() + 1)),
        Axis.around(title, [*soft, *hard]),
    )
    plot.line(*thin(steps, soft), "second", legend="soft score")
    plot.line(*thin(steps, hard), "first", legend="hard score, held out")
    return plot.markup()


def roc(result: Result, curve: Curve) -> Markup:
    """The recall against the false positive rate."""
    tp, fn, fp, tn = result.counts
    plot = _shares("ROC curve", "area under the curve", "false positive rate", "recall", curve)
    plot.guide((0, 0), (1, 1))
    plot.chosen(fp / (fp + tn), tp / (tp + fn), "at 0.5")
    return plot.markup()


def precision_recall(result: Result, curve: Curve) -> Markup:
    """The precision against the recall."""
    tp, fn, fp, _ = result.counts
    share = (tp + fn) / len(result.y_test)
    plot = _shares("Precision-recall curve", "average precision", "recall", "precision", curve)
    plot.guide((0, share), (1, share))
    plot.chosen(tp / (tp + fn), tp / (tp + fp) if tp + fp else 0.0, "at 0.5")
    return plot.markup()


def calibration(
    found: Calibration, x: str = "mean decision value", y: str = "share of positives"
) -> Markup:
    """The share of positives against the decision value, where the decision values are."""
    plot = Plot(
        "Calibration curve",
        f"The mean distance from the diagonal is {number(found.gap)}.",
        Axis.within_shares(x, found.x),
        Axis.within_shares(y, [*found.low, *found.high]),
    )
    low, high = max(plot.x.low, plot.y.low), min(plot.x.high, plot.y.high)
    if low < high:
        plot.guide((low, low), (high, high))
    plot.line(found.x, found.y, "first")
    plot.whiskers(found.x, found.low, found.high, "first")
    plot.dots(found.x, found.y, "first")
    return plot.markup()


def _shares(title: str, value: str, x: str, y: str, curve: Curve) -> Plot:
    """A curve in the unit square; `value` is the name of its number."""
    plot = Plot(title, f"The {value} is {number(curve.value)}.", Axis(x), Axis(y))
    plot.line(curve.x, curve.y, "first")
    return plot


def baselines(given: tuple[Baseline, ...]) -> list[tuple[Baseline, Markup]]:
    """The baselines, the best first, each with its difference drawn on a common scale."""
    reach = max(map(abs, extent(x for baseline in given for x in baseline.interval)))
    axis = Axis("difference", -(reach or 1.0), reach or 1.0)
    return [
        (x, interval_row(x.difference, x.interval, axis, f"{name(x.name)}: {difference(x)}"))
        for x in sorted(given, key=lambda baseline: -baseline.score)
    ]


def importances(given: tuple[Importance, ...], most: int) -> list[tuple[Importance, Markup]]:
    """The most important columns, each with a bar on a common scale."""
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
