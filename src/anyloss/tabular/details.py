"""What a reader of the report asks next: the training score, slices, effects and worst errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.tabular.effects import effects
from anyloss.tabular.evaluating import BASELINE_ROWS
from anyloss.tabular.messages import Message, information
from anyloss.tabular.model import TableModel, decision_values
from anyloss.tabular.scoring import Scoring
from anyloss.tabular.slices import by_kind, slices
from anyloss.tabular.splitting import sample_rows
from anyloss.tabular.wrong_rows import wrong_rows

EFFECT_ROWS = 20_000
FAR = 0.1  # the training score above the test score, from which on the report names it


def details(
    model: TableModel, train: tuple[Any, Array], take: Callable[[Array], Any], kept: Array,
    measured: Mapping[str, Any], scoring: Scoring, seed: int, show_rows: bool,
) -> dict[str, Any]:  # fmt: skip
    """The fields of a result that describe where a model is good, where not, and why.

    `train` has the training rows and their labels, before they are encoded, `measured` what is
    known of the test rows. `take` returns some of these, given by their numbers: for the slices and
    the effects the `kept` ones.
    """
    outcome, y, p_test = model.outcome, measured["y_test"], measured["p_test"]
    frame = take(kept)
    order = [x.column for x in measured["importances"]]  # the most important first
    some = frame
    if len(frame) > EFFECT_ROWS:
        rows = np.random.default_rng(seed).permutation(len(frame))[:EFFECT_ROWS]
        some = frame.iloc[np.sort(rows)]

    def predict(X: Array) -> Array:
        return decision_values(model.classifier, X, outcome.task)

    decided = outcome.decide(p_test[kept])
    found, small = slices(frame, y[kept], decided, scoring, by_kind(frame, order), seed)
    errors = wrong_rows(take, y, p_test, outcome, order) if show_rows else ()
    return {
        "train_score": train_score(model, train, scoring, seed, len(y)),
        "held_out_score": float(model.classifier.held_out_score_),
        "slices": found,
        "small_slices": small,
        "effects": effects(
            predict, model.encoder.transform(some), some, model.encoder.sources(), order, seed
        ),
        "wrong_rows": errors,
    }


def train_score(
    model: TableModel, train: tuple[Any, Array], scoring: Scoring, seed: int, test_rows: int
) -> float:
    """The score of the training rows; they weigh as much as the test rows, for sums of costs."""
    frame, y = train
    if len(y) > BASELINE_ROWS:
        rows = sample_rows(y, BASELINE_ROWS, seed, model.outcome.task)
        frame, y = frame.iloc[rows], y[rows]
    X = model.encoder.transform(frame)  # as new rows, which differs for the means of labels
    decided = model.outcome.decide(decision_values(model.classifier, X, model.outcome.task))
    weight = np.full(len(y), test_rows / len(y))
    return scoring.score(y, decided, weight)


def overfitting(train: float, test: float, interval: tuple[float, float]) -> list[Message]:
    """A message if the score of the training rows is far above that of the test rows.

    >>> overfitting(0.8, 0.78, (0.7, 0.85))
    []
    >>> overfitting(0.99, 0.78, (0.7, 0.85))[0].level
    'information'
    """
    if train <= interval[1] or train - test <= FAR * max(1.0, abs(test)):
        return []
    return [
        information(
            f"the score of the training rows, {train:.3f}, is far above that of the test rows, "
            f"{test:.3f}: the model overfits. Expect the score of the test rows; more rows or a "
            "simpler model may have a better one"
        )
    ]
