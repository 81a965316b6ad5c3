"""The baselines and our method for gradient boosting, with the same trees and folds for all.

The models are named after their library. The baselines tune their threshold on five inner folds
and predict with one model that is fitted on all training rows. Our method predicts with the models
of the same inner folds and of the inner folds of the method "null".
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
    Predictions,
    Split,
    Trained,
    TrainOnFolds,
    balanced_weights,
    default_and_tuned,
    held_out_mask,
    tuned_threshold,
)
from anyloss.boosting import trees
from anyloss.boosting.core import step_of
from anyloss.boosting.libraries import (
    CatBoost,
    Goal,
    Library,
    LightGBM,
    Plan,
    TreeData,
    XGBoost,
    take,
)
from anyloss.metrics import metric as find_metric
from anyloss.recipe.target import probabilities

ROUNDS, RATE = 60, 0.1


class Setup(NamedTuple):
    """A library and its parameters for reproducible results and for sampling."""

    library: Library
    deterministic: dict[str, Any]  # one thread, and the same model in every run
    sampling: dict[str, Any]  # of rows and columns

    def plan(self, seed: int, **more: Any) -> Plan:
        """The parameters that all methods share."""
        shared = {"n_estimators": ROUNDS, "learning_rate": RATE, "random_state": seed}
        return Plan(shared | self.deterministic | more, {})


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
    """Log-loss on all training rows, and once more for each inner fold."""
    y, library = split.y.astype(float), setup.library
    weight = balanced_weights(y) if balanced else None
    plan = setup.plan(split.seed + seed, **more)

    def trained(rows: Array) -> Any:
        return library.train(take(TreeData(split.X, y, weight), rows), plan, None, None)

    def predicted(model: Any, at: Array) -> Array:
        return probabilities(library.margin(model, at), "binary")

    start = time.perf_counter()
    whole = trained(np.arange(len(y)))
    test = predicted(whole, split.test)
    seconds = time.perf_counter() - start
    held_out = np.empty(len(y))
    for rows, held in folds:
        held_out[held] = predicted(trained(rows), split.X[held])
    return Trained(test, held_out, seconds, time.perf_counter() - start, whole)


def _blend(setup: Setup, split: Split, metrics: Sequence[str]) -> Iterator[Predictions]:
    """The mean of two log-loss models on samples of rows and columns, each with a tuned threshold.

    The two thresholds are tuned on different inner folds.
    """
    both = [
        (_log_loss(setup, False, split, folds, seed, **setup.sampling), folds)
        for seed, folds in ((1, split.folds), (2, split.other_folds))
    ]
    for metric in metrics:
        centred = []  # probabilities, shifted so that the tuned threshold is at 0.5
        for found, folds in both:
            at = np.clip(tuned_threshold(split.y, found.held_out, folds, metric), 1e-9, 1 - 1e-9)
            p = np.clip(found.test, 1e-9, 1 - 1e-9)
            centred.append(probabilities(np.log(p / (1 - p)) - np.log(at / (1 - at)), "binary"))
        test = np.mean(centred, axis=0)
        seconds = sum(found.with_folds for found, _ in both)
        yield Predictions("blend", metric, test > 0.5, test, seconds)


def _anyloss(setup: Setup, split: Split, metrics: Sequence[str]) -> Iterator[Predictions]:
    """The recipe of the boosting classifiers, and its ensemble before refinement ("unrefined").

    All metrics share the models of the log-loss start.
    """
    library, plan = setup.library, setup.plan(split.seed)
    data = TreeData(split.X, split.y.astype(float))
    held = held_out_mask([*split.folds, *split.other_folds], len(split.y))
    begin = time.perf_counter()
    started = trees.start(library, data, held, plan)
    shared = time.perf_counter() - begin
    for metric in metrics:
        begin = time.perf_counter()
        goal = Goal(find_metric(metric), step_of("auto"))
        found = trees.finish(started, goal, ROUNDS // 3)
        seconds = shared + time.perf_counter() - begin
        for name, model, cost in (
            ("anyloss", found, seconds),
            ("unrefined", replace(found, share=0.0), shared),
        ):
            test = probabilities(model.margin(library, split.test), "binary")
            yield Predictions(name, metric, test > 0.5, test, cost)


def tree_losses(setup: Setup) -> dict[str, TrainOnFolds]:
    """The losses of one library that do not depend on the metric."""
    return {"bce": partial(_log_loss, setup, False), "weighted": partial(_log_loss, setup, True)}


def _families(setup: Setup) -> dict[str, Family]:
    """The methods of one library."""
    losses = tree_losses(setup)
    return {
        **{x: partial(default_and_tuned, x, train, x == "bce") for x, train in losses.items()},
        "blend": partial(_blend, setup),
        "anyloss": partial(_anyloss, setup),
    }


BOOSTED: dict[str, dict[str, Family]] = {name: _families(x) for name, x in SETUPS.items()}
