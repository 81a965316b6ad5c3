"""The tables of several classes or labels: the confusion matrix, each class, the averages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss.metrics import metric as find_metric
from anyloss.report import curves
from anyloss.report.curves import Calibration
from anyloss.tabular.model import confusion
from anyloss.tabular.result import Result
from anyloss.tabular.scoring import scoring_of

MOST_CLASSES = 15  # of a matrix that can be read
MOST_ERRORS = 15  # pairs of classes in the list that takes its place
AVERAGES = ("macro", "micro", "weighted")
CALIBRATED = {  # the axes of the calibration curve
    "multiclass": ("mean value of the predicted class", "share of correct rows"),
    "multilabel": ("mean decision value", "share of labels that apply"),
}


class ClassRow(NamedTuple):
    """The usual metrics of one class against the others, and its number of test rows.

    `always` is the F1 of predicting the class for every row, which a model must beat.
    """

    name: str
    precision: float
    recall: float
    f1: float
    always: float
    support: float


class Cell(NamedTuple):
    """A number of test rows of a true class and a predicted class, and its share of the former."""

    actual: str
    predicted: str
    rows: float
    whole: float
    right: bool


def class_rows(result: Result) -> list[ClassRow]:
    """The metrics of each class or label on the test rows, 0 where they are not defined."""
    precision, recall, f1 = (find_metric(name) for name in ("precision", "recall", "f1"))
    rows = zip(*(np.atleast_1d(x) for x in result.counts), strict=True)
    return [
        ClassRow(
            name,
            float(precision(*cells)),
            float(recall(*cells)),
            float(f1(*cells)),
            float(f1(cells[0] + cells[1], 0.0, cells[2] + cells[3], 0.0)),
            float(cells[0] + cells[1]),
        )
        for name, cells in zip(result.outcome.classes, rows, strict=True)
    ]


def matrix(result: Result) -> list[list[Cell]]:
    """The confusion matrix: one row for each true class, one column for each predicted class."""
    names, found = result.outcome.classes, confusion(result)
    return [
        [
            Cell(actual, predicted, float(found[i, k]), float(found[i].sum()), i == k)
            for k, predicted in enumerate(names)
        ]
        for i, actual in enumerate(names)
    ]


def largest_errors(cells: list[list[Cell]]) -> list[Cell]:
    """The most frequent confusions of a true class with another one."""
    wrong = [cell for row in cells for cell in row if not cell.right and cell.rows]
    return sorted(wrong, key=lambda cell: -cell.rows)[:MOST_ERRORS]


def averages(result: Result) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """The names of the averages, and the scores of the metric and of usual ones under each.

    The last average is the form of its own that a metric may have for several classes.
    """
    outcome, names = result.outcome, list(AVERAGES)
    chosen = find_metric(result.metric)
    shown = {chosen.name: chosen} | {
        x.name: x for x in map(find_metric, ("precision", "recall", "f1", "mcc", "accuracy"))
    }
    if outcome.task == "multiclass":
        names.append("multiclass")
    decided, rows = outcome.decide(result.p_test), []
    for metric in shown.values():
        values = [
            scoring_of(metric.name, outcome.task, len(outcome.classes), average).score(
                result.y_test, decided
            )
            if average != "multiclass" or metric.has_own_form
            else None
            for average in names
        ]
        rows.append((metric.title if metric.is_named else metric.name, values))
    return names, rows


def calibration(result: Result) -> Calibration:
    """How often a predicted class is right, by its decision value; all labels are pooled."""
    y, p = result.y_test, result.p_test
    if result.outcome.task == "multilabel":
        return curves.calibration(y.ravel(), p.ravel())
    rows, predicted = np.arange(len(p)), p.argmax(axis=1)
    return curves.calibration(y[rows, predicted], p[rows, predicted])
