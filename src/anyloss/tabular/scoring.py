"""What is measured for a table: a metric with its average, of decisions and of counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.choices import resolve_average
from anyloss._core.counts import Counts
from anyloss._core.functions import counts, score
from anyloss._core.scoring import ONE_SCORE, averaged, check_average
from anyloss._core.shapes import Layout
from anyloss.metrics import Metric
from anyloss.metrics import metric as find_metric


class Scoring(NamedTuple):
    """A metric with its average: what is measured for an outcome."""

    metric: Metric
    layout: Layout

    def score(self, y: Array, decided: Array, weight: Array | None = None) -> float:
        """The score of decisions, of the shape of the labels."""
        return float(
            score(
                y,
                decided,
                self.metric,
                average=self.layout.average,
                weight=weight,
                task=self.layout.task,  # type: ignore[arg-type]
            )
        )

    def of_counts(self, cells: Counts) -> Array:
        """The scores of counts of shape (draws, classes), one for each draw.

        >>> cells = Counts(*(np.array([[x]]) for x in (8.0, 2.0, 3.0, 87.0)))
        >>> scoring_of("recall", "binary", 1).of_counts(cells).tolist()
        [0.8]
        """
        shaped = Counts(*(np.asarray(x, dtype=float)[:, None] for x in cells))
        found = averaged(self.metric, shaped, self.layout, NUMPY, hard=True).score.value
        return np.broadcast_to(found, (len(shaped.tp), 1, 1))[:, 0, 0]

    def counts(self, y: Array, decided: Array) -> Counts:
        """The counts: floats for two classes, else arrays with one entry per class."""
        return counts(y, decided, task=self.layout.task)  # type: ignore[arg-type]


def scoring_of(metric: str, task: str, classes: int, average: str = "auto") -> Scoring:
    """The metric of an outcome; `average="auto"` is resolved, and any other is checked.

    >>> [scoring_of(x, "multiclass", 3).layout.average for x in ("f1", "mcc")]
    ['macro', 'multiclass']
    """
    chosen = find_metric(metric)
    check_average(chosen, average)
    found = resolve_average(average, task, classes, chosen.has_own_form)
    return Scoring(chosen, Layout(task, found, classes))


def check_known_average(average: str) -> None:
    """Raise an error for an average that a model cannot be trained for."""
    if average not in ONE_SCORE:
        raise ValueError(f"average must be one of {', '.join(ONE_SCORE)}; got {average!r}")


def as_columns(y: Array) -> Array:
    """Labels of shape (n,) or (n, classes) as columns, one for two classes."""
    return y.reshape(len(y), -1)
