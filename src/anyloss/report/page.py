"""The HTML page of a result: the values for the template, and the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from anyloss._core.outputs import replacing
from anyloss.metrics import METRICS, Metric
from anyloss.metrics import metric as find_metric
from anyloss.report import classes, curves, details, pictures, planner, promises, words
from anyloss.tabular.messages import INFORMATION, LEVELS, by_level
from anyloss.tabular.result import Result
from anyloss.tabular.verdicts import advice, best_trivial
from anyloss.thresholds import best_threshold

MOST_COLUMNS, MOST_DROPPED, MOST_READINGS = 15, 20, 60
OTHER_METRICS = (
    "precision", "recall", "specificity", "npv", "f1", "balanced_accuracy", "mcc", "accuracy",
)  # fmt: skip

_templates = Environment(
    loader=PackageLoader("anyloss.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(
    name=words.name,
    plain=words.plain,
    number=words.number,
    count=words.count,
    difference=words.difference,
)
_templates.globals.update(
    of=words.of, percent=words.percent, clear=words.clear, known=math.isfinite
)


def write(result: Result, path: Path | str) -> Path:
    """Write the report of a result as one HTML file.

    The file is written to a temporary place and then moved, so that it is never incomplete.

    Args:
        result (Result): the result of `anyloss.tabular.fit_table`.
        path (Path or str): the file, which ends in `.html`.

    Returns:
        Path: the file.

    Raises:
        ValueError: if the path does not end in `.html` or `.htm`.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> import tempfile
        >>> write(result, Path(tempfile.mkdtemp()) / "report.html").name
        'report.html'
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the report must be a file that ends in .html; got {path.name!r}")
    text = render(result)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def render(result: Result) -> str:
    """The report of a result as the text of an HTML page.

    `write` writes it to a file.

    Args:
        result (Result): the result of `anyloss.tabular.fit_table`.

    Returns:
        str: the page. It refers to no other file; its only script is that of the planner.

    Raises:
        ValueError: if the metric of the result is unknown.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> render(result)[:15]
        '<!doctype html>'
    """
    metric = find_metric(result.metric)
    each = "labels" if result.outcome.task == "multilabel" else "classes"
    title, meaning = words.title_and_meaning(metric, result.average, each)
    two, messages = result.outcome.task == "binary", by_level(result.warnings)
    shown = _two_classes(result, metric, title) if two else _several_classes(result, title)
    return _templates.get_template("page.html").render(
        result=result,
        two=two,
        title=title,
        meaning=meaning,
        digits=words.digits_of(result.interval),
        advice=advice(result),
        messages=messages,
        levels=LEVELS,
        gap=words.training_gap(result),
        serious=[x for x in messages if x.level != INFORMATION],
        trivial=best_trivial(result.baselines),
        against=words.against_baselines(result),
        training=pictures.training(result.curve, title),
        baselines=pictures.baselines(result.baselines),
        importances=pictures.importances(result.importances, MOST_COLUMNS),
        directions=details.directions(result),
        slices=details.slices(result),
        dropped=result.facts["dropped"][:MOST_DROPPED],
        readings=result.readings[:MOST_READINGS],
        most_named=MOST_DROPPED,
        **shown,
    )


def _two_classes(result: Result, metric: Metric, title: str) -> dict[str, Any]:
    """What the page shows for two classes only."""
    best = best_threshold(result.y_test, result.p_test, metric)
    return {
        "answer": words.answer(result, title),
        "also": _other_scores(result, metric),
        "hindsight": words.hindsight(result, best),
        "threshold": pictures.threshold(result, metric, title),
        "ranking": _ranking(result),
        "promise": promises.section(result, metric, title),
        "planner": planner.section(result, metric, title),
    }


def _several_classes(result: Result, title: str) -> dict[str, Any]:
    """What the page shows for several classes or labels."""
    rows, calibration = classes.class_rows(result), classes.calibration(result)
    cells = classes.matrix(result) if result.outcome.task == "multiclass" else []
    decided = result.outcome.decide(result.p_test)
    right = (int((decided == result.y_test).all(axis=1).sum()), len(decided))
    order = sorted(rows, key=lambda row: row.f1)
    return {
        "answer": words.answer_of_several(result, title, right[0]),
        "classes": rows,
        "cells": cells,
        "errors": classes.largest_errors(cells),
        "averages": classes.averages(result),
        "distance": calibration.gap,
        "calibration": pictures.calibration(calibration, *classes.CALIBRATED[result.outcome.task]),
        "most_classes": classes.MOST_CLASSES,
        "right": right,
        "worst": order[0],
        "best": order[-1],
    }


def _other_scores(result: Result, metric: Metric) -> list[tuple[str, str, float]]:
    """The title, the meaning and the value of other usual metrics."""
    others = [find_metric(x) for x in OTHER_METRICS if METRICS[x] is not metric.function]
    return [(*words.title_and_meaning(each), each(*result.counts)) for each in others]


def _ranking(result: Result) -> dict[str, Any] | None:
    """The ranking and calibration curves; None if the test rows have one class only."""
    y, p = result.y_test, result.p_test
    if len(np.unique(y)) < 2:
        return None
    precision_recall, roc = curves.precision_recall(y, p), curves.roc(y, p)
    calibration = curves.calibration(y, p)
    return {
        "average_precision": precision_recall.value,
        "precision_recall": pictures.precision_recall(result, precision_recall),
        "area": roc.value,
        "roc": pictures.roc(result, roc),
        "gap": calibration.gap,
        "calibration": pictures.calibration(calibration),
    }
