"""The scores of one method on the test rows of a fold, as a row of the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.functions import score
from anyloss.baselines.methods import Predictions
from anyloss.baselines.rules import read_aim


def size_of(y: Array, task: str) -> dict[str, int]:
    """The number of positive rows, or that of the classes or labels."""
    if task == "binary":
        return {"positives": int(y.sum())}
    return {"classes": y.shape[1] if task == "multilabel" else int(y.max()) + 1}


def scores_of_two(found: Predictions, truth: Array) -> dict[str, Any]:
    """The scores of decisions between two classes; they collapse if no row is positive."""
    reached = score(truth, found.decision.astype(float), found.metric)
    return _row(found, truth, float(reached), not found.decision.any())


def scores_of_several(task: str, found: Predictions, truth: Array) -> dict[str, Any]:
    """The scores of several classes or labels; they collapse if only one of them is predicted."""
    aim, decided = read_aim(found.metric), found.decision
    if task == "multiclass":
        columns = np.arange(found.probability.shape[1])
        truth, decided = (x[:, None] == columns for x in (truth, decided))
    truth, decided = truth.astype(float), decided.astype(float)
    given: Any = {"average": aim.average, "task": task}
    reached = score(truth, decided, aim.metric, **given)
    return _row(found, truth, float(reached), decided.any(axis=0).sum() < 2)


def _row(found: Predictions, truth: Array, reached: float, collapsed: bool) -> dict[str, Any]:
    return {
        "metric": found.metric,
        "method": found.method,
        "score": reached,
        "brier": float(np.mean((found.probability - truth) ** 2)),
        "collapsed": bool(collapsed),
        "seconds": found.seconds,
    }
