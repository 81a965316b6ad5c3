"""What fitting a table gives: the model, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anyloss._core.backend import Array
from anyloss._core.counts import Counts


@dataclass(frozen=True)
class Rival:
    """A baseline on the same test rows; the difference is ours minus theirs."""

    name: str
    score: float
    difference: float
    interval: tuple[float, float]  # of the difference, 95 %, paired bootstrap


@dataclass(frozen=True)
class Importance:
    """How much the metric falls when a column of the test part is shuffled."""

    column: str
    drop: float
    deviation: float


@dataclass(frozen=True)
class Result:
    """A model fitted to a table, its decisions on the test part, and what to say about both.

    `y_test` is 1 for the positive class; `p_test` is the model's vote, 0.5 decides. `curve` has a
    row per check of the training: step, soft score, hard score of held-out rows. `candidates`
    are the held-out scores of the models that `auto` compared. `settings` say how to do it again.
    """

    model: Any
    model_name: str
    metric: str
    target: str
    positive: str
    negative: str
    score: float
    interval: tuple[float, float]  # 95 %, bootstrap over the test rows
    counts: Counts
    y_test: Array
    p_test: Array
    curve: Array
    rivals: tuple[Rival, ...]
    candidates: dict[str, float]
    importances: tuple[Importance, ...]
    facts: dict[str, Any]
    warnings: tuple[str, ...]
    settings: dict[str, Any]
