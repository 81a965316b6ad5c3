"""The section of the report about constraints: the promise, what it rests on, and a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from anyloss._core.constraints import read_constraints
from anyloss.metrics import Metric
from anyloss.report.curves import against_threshold
from anyloss.report.drawing import Axis, Plot
from anyloss.report.words import SPACE, count, number
from anyloss.tabular.promises import constraint_scores, tested_values
from anyloss.tabular.result import Result


def section(result: Result, metric: Metric, title: str) -> dict[str, Any] | None:
    """What the page shows about constraints; None without constraints."""
    if not result.constraints:
        return None
    found = result.certificate
    return {
        "sentence": sentence(result),
        "meaning": MEANING if found is not None and found.threshold is not None else "",
        "bound": bound(result),
        "scores": constraint_scores(result),
        "tested": () if found is None else found.tested,
        "picture": picture(result, metric, title),
    }


MEANING = (
    "New data of the same kind means rows that are drawn like those of this table. If customers, "
    "cameras or seasons change, the promise is void. It is about all such rows together, not about "
    "each set of them, and it ends when the model is fitted again."
)


def sentence(result: Result) -> str:
    """The promise in one sentence."""
    found, wanted = result.certificate, " and ".join(result.constraints)
    if found is None:
        return (
            f"Nothing is promised about new data: {wanted} was aimed at on held-out training rows. "
            "Set a confidence level (--confidence-level) to have it certified."
        )
    rows, level = count(found.certificate.rows), _percent(found.certificate.confidence_level)
    if found.threshold is not None:
        return (
            f"On new data of the same kind {wanted} holds with {level} confidence; this was tested "
            f"on {rows} rows that took no part in training or choosing."
        )
    more = (
        "no number of rows would be enough"
        if found.rows_needed is None
        else f"about {count(found.rows_needed)} such rows would be needed"
    )
    return (
        f"The model is not certified: {rows} rows that took no part in training do not show with "
        f"{level} confidence that {wanted} holds on new data. By their result, {more}."
    )


def bound(result: Result) -> str:
    """The bound behind the test, of a single constraint; "" for several, or where there is none."""
    found = result.certificate
    if found is None or not math.isfinite(found.certificate.score):
        return ""
    (constraint,) = read_constraints(list(result.constraints))
    least, edge = ("least", "lower") if constraint.at_least else ("most", "upper")
    test = found.certificate
    which = "" if found.threshold is not None else " at the first threshold that was tested"
    return (
        f"The {constraint.metric.name} on these {count(test.rows)} rows is {number(test.score)}"
        f"{which}, and on new data it is at {least} {number(getattr(test, edge))}, with "
        f"{_percent(test.confidence_level)} confidence (p = {test.p_value:.3g}; {test.method})."
    )


def picture(result: Result, metric: Metric, title: str) -> Markup:
    """The metric and the constraints at each threshold; the tested thresholds are marked."""
    required = read_constraints(list(result.constraints))
    lines = [
        (x.metric.title, *against_threshold(result.y_test, result.p_test, x.metric))
        for x in required
    ]
    own = against_threshold(result.y_test, result.p_test, metric)
    tested = np.array([]) if result.certificate is None else tested_values(result.model.classifier)
    plot = Plot(
        f"{title} and the constraints at each threshold",
        f"{len(tested)} thresholds were tested; 0.5 is the threshold of the model.",
        Axis("threshold of the decision value"),
        Axis.of_scores("score", [*own[1], *(v for line in lines for v in line[2])]),
    )
    plot.guide((0.5, plot.y.low), (0.5, plot.y.high))
    plot.line(*own, "first", steps=True, legend=title)
    for constraint, (name, x, y) in zip(required, lines, strict=True):
        plot.guide((0.0, constraint.value), (1.0, constraint.value))
        plot.line(x, y, "second", steps=True, legend=name)
        at = np.searchsorted(x, tested, side="right") - 1
        plot.dots(tested, y[at.clip(0)], "second")
    return plot.markup()


def _percent(confidence_level: float) -> str:
    return f"{100 * confidence_level:g}{SPACE}%"
