"""The page: what the template is given, and where the file goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from anyloss._core.outputs import aside
from anyloss.metrics import METRICS, Metric
from anyloss.metrics import metric as find_metric
from anyloss.report import curves, pictures, words
from anyloss.tabular.result import Result
from anyloss.thresholds import best_threshold

MOST_COLUMNS, MOST_DROPPED = 15, 20
ALSO = ("precision", "recall", "specificity", "npv", "f1", "balanced_accuracy", "mcc", "accuracy")

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
_templates.globals.update(of=words.of, percent=words.percent, clear=words.clear)


def write(result: Result, path: Path | str) -> Path:
    """Write the report of a result as one HTML file; it is there whole or not at all.

    See `anyloss.tabular.result.Result` for what a result holds.

    >>> write(None, "report.pdf")
    Traceback (most recent call last):
        ...
    ValueError: the report is a web page and must end in .html; got 'report.pdf'
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the report is a web page and must end in .html; got {path.name!r}")
    text = render(result)
    with aside(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def render(result: Result) -> str:
    """The report of a result as text."""
    metric = find_metric(result.metric)
    title, meaning = words.called(metric)
    best = best_threshold(result.y_test, result.p_test, metric)
    return _templates.get_template("page.html").render(
        result=result,
        title=title,
        meaning=meaning,
        digits=words.digits_of(result.interval),
        answer=words.answer(result, title),
        against=words.against_baselines(result),
        also=_other_scores(result, metric),
        hindsight=words.hindsight(result, best),
        threshold=pictures.threshold(result, metric, title),
        training=pictures.training(result.curve, title),
        ranking=_ranking(result),
        rivals=pictures.rivals(result.rivals),
        importances=pictures.importances(result.importances, MOST_COLUMNS),
        dropped=result.facts["dropped"][:MOST_DROPPED],
    )


def _other_scores(result: Result, metric: Metric) -> list[tuple[str, str, float]]:
    """What else teams report, of the same decisions."""
    others = [find_metric(each) for each in ALSO if METRICS[each] is not metric.function]
    return [(*words.called(each), each(*result.counts)) for each in others]


def _ranking(result: Result) -> dict[str, Any] | None:
    """The curves of the ranking; they need both classes among the test rows."""
    y, p = result.y_test, result.p_test
    if len(np.unique(y)) < 2:
        return None
    precision_recall, roc, calibration = (
        make(y, p) for make in (curves.precision_recall, curves.roc, curves.calibration)
    )
    return {
        "average_precision": precision_recall.value,
        "precision_recall": pictures.precision_recall(result, precision_recall),
        "area": roc.value,
        "roc": pictures.roc(result, roc),
        "gap": calibration.value,
        "calibration": pictures.calibration(calibration),
    }
