"""The rivals and ours for gradient boosting: the same trees, folds and inner folds for all.

The models are named after their library. Rivals tune their threshold on five inner folds and
predict with one model fitted on all rows; ours takes the models of the same inner folds, and of
those of the null.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.methods import (
    Family,
    Folds,
    Outcome,
    Split,
    Trained,
    balanced_weights,
    held_rows,
    scored,
    tuned_threshold,
)
from anyloss.boosting import fitting
from anyloss.boosting.core import step_of
from anyloss.boosting.libraries import CatBoost, Goal, Library, LightGBM, Plan, Rows, XGBoost, take
from anyloss.metrics import metric as find_metric
from anyloss.recipe.task import probabilities

ROUNDS, RATE = 60, 0.1


class Setup(NamedTuple):
    """A library, how it is kept to one thread and to the same bits, and how it samples."""

    library: Library
    steady: dict[str, Any]
    sampling: dict[str, Any]

    def plan(self, seed: int, **more: Any) -> Plan:
        """The parameters that all methods share."""
        shared = {"n_estimators": ROUNDS, "learning_rate": RATE, "random_state": seed}
        return Plan(shared | self.steady | more, {})


SETUPS = {
    "lightgbm": Setup(
        LightGBM(),
        {"n_jobs": 1, "deterministic": True, "force_col_wise": True},
        {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8},
    ),
    "xgboost": Setup(XGBoost(), {"n_jobs": 1}, {"subsample": 0.8, "colsample_bytree": 0.8}),
    "catboost": Setup(
        CatBoost(),
        {"thread_count": 1},
        {"bootstrap_type": "Bernoulli", "subsample": 0.8, "rsm": 0.8},
    ),
}


def _log_loss(
    setup: Setup, balanced: bool, split: Split, folds: Folds, seed: int = 0, **more: Any
) -> Trained:
    """Log-loss on all rows, and on each inner fold."""
    y, library = split.y.astype(float), setup.library
    weight = balanced_weights(y) if balanced else None
    plan = setup.plan(split.seed + seed, **more)

    def trained(rows: Array, at: Array) -> Array:
        part = take(Rows(split.X, y, weight), rows)
        return probabilities(library.margin(library.train(part, plan, None, None), at), "binary")

    start = time.perf_counter()
    test = trained(np.arange(len(y)), split.test)
    seconds = time.perf_counter() - start
    held_out = np.empty(len(y))
    for rows, held in folds:
        held_out[held] = trained(rows, split.X[held])
    return Trained(test, held_out, seconds, time.perf_counter() - start)


def _blend(setup: Setup, split: Split, metrics: Sequence[str]) -> Iterator[Outcome]:
    """Two log-loss models on samples of rows and columns, each tuned on inner folds of its own."""
    both = [
        (_log_loss(setup, False, split, folds, seed, **setup.sampling), folds)
        for seed, folds in ((1, split.folds), (2, split.other_folds))
    ]
    for metric in metrics:
        votes = []
        for found, folds in both:
            at = np.clip(tuned_threshold(split.y, found.held_out, folds, metric), 1e-9, 1 - 1e-9)
            p = np.clip(found.test, 1e-9, 1 - 1e-9)
            votes.append(probabilities(np.log(p / (1 - p)) - np.log(at / (1 - at)), "binary"))
        test = np.mean(votes, axis=0)
        seconds = sum(found.with_folds for found, _ in both)
        yield Outcome("blend", metric, test > 0.5, test, seconds)


def _ours(setup: Setup, split: Split, metrics: Sequence[str]) -> Iterator[Outcome]:
    """The recipe, as the classifiers run it, and its models before refinement.

    The start is shared by the metrics.
    """
    library, plan, rows = (
        setup.library,
        setup.plan(split.seed),
        Rows(split.X, split.y.astype(float)),
    )
    held = held_rows([*split.folds, *split.other_folds], len(split.y))
    begin = time.perf_counter()
    begun = fitting.start(library, rows, held, plan)
    shared = time.perf_counter() - begin
    for metric in metrics:
        begin = time.perf_counter()
        goal = Goal(find_metric(metric), step_of("auto"))
        found = fitting.finish(library, rows, held, goal, plan, ROUNDS // 3, begun)
        seconds = shared + time.perf_counter() - begin
        for name, model, cost in (
            ("anyloss", found, seconds),
            ("unrefined", replace(found, share=0.0), shared),
        ):
            test = probabilities(model.margin(library, split.test), "binary")
            yield Outcome(name, metric, test > 0.5, test, cost)


def _families(setup: Setup) -> dict[str, Family]:
    return {
        "bce": partial(scored, "bce", partial(_log_loss, setup, False), True),
        "weighted": partial(scored, "weighted", partial(_log_loss, setup, True), False),
        "blend": partial(_blend, setup),
        "anyloss": partial(_ours, setup),
    }


BOOSTED: dict[str, dict[str, Family]] = {name: _families(x) for name, x in SETUPS.items()}
