"""Models of several classes or labels: their scores of the test rows and of the held-out rows.

They are trained by cross-entropy, with or without balanced class weights. The linear model is
scikit-learn's logistic regression and the trees are LightGBM's own classifier, both one per label
if there are several labels. Networks have the size of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.boosted import SETUPS
from anyloss.baselines.methods import (
    C,
    Folds,
    Predict,
    Split,
    Trained,
    fit_all_and_folds,
    networks,
)
from anyloss.baselines.splits import MODELS as MODELS_OF_TWO

HIDDEN = MODELS_OF_TWO | {"mlp32": (32,)}
MODELS = (*HIDDEN, "lightgbm")


class Columns(NamedTuple):
    """The training labels of a split in columns of 0 and 1, and their task."""

    y: Array
    task: str

    def decide(self, values: Array) -> Array:
        """Class numbers from scores, or 0 and 1 from scores above 0."""
        return values.argmax(axis=1) if self.task == "multiclass" else (values > 0).astype(int)


def columns_of(y: Array) -> Columns:
    """Class numbers as one-hot columns; a matrix of labels as it is."""
    if y.ndim == 2:
        return Columns(y.astype(float), "multilabel")
    return Columns((y[:, None] == np.arange(y.max() + 1)).astype(float), "multiclass")


def has_weights(model: str, task: str) -> bool:
    """Whether a model can have class weights: networks have one weight per row, not per label.

    >>> has_weights("mlp", "multiclass"), has_weights("mlp", "multilabel")
    (True, False)
    """
    return task == "multiclass" or not HIDDEN.get(model)


def trained(model: str, balanced: bool, given: Columns, split: Split, folds: Folds) -> Trained:
    """The probabilities of a model for the test rows, and for the rows that the folds hold out.

    Networks need the folds for the number of their steps. Rows that no fold holds out have 0.
    """
    if HIDDEN.get(model):
        weight = class_weights(given.y) if balanced else np.ones(len(given.y))
        return networks(given.y, weight, given.task, split, folds)
    train = partial(_fitted, partial(_estimator, model, balanced), given.task)
    return fit_all_and_folds(train, split._replace(y=given.y), folds)


def class_weights(y: Array) -> Array:
    """Weights that give all classes (one-hot columns) the same total weight, with mean 1.

    >>> class_weights(np.eye(2)[[0, 0, 0, 1]]).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    """
    return y @ (len(y) / np.maximum(y.sum(axis=0), 1) / y.shape[1])


@dataclass(frozen=True)
class Estimators:
    """One estimator of all classes; a class without rows has probability 0. Or one per label.

    A label that is the same in all rows has its own value in place of an estimator.
    """

    models: list[Any]
    task: str
    columns: int

    def __call__(self, rows: Array) -> Array:
        if self.task == "multiclass":
            found, (model,) = np.zeros((len(rows), self.columns)), self.models
            found[:, model.classes_] = model.predict_proba(rows)
            return found
        return np.column_stack([
            x.predict_proba(rows)[:, 1] if hasattr(x, "predict_proba") else np.full(len(rows), x)
            for x in self.models
        ])  # fmt: skip


def _fitted(new: Any, task: str, X: Array, y: Array, split: Split) -> Predict:
    if task == "multiclass":
        return Estimators([new(split).fit(X, y.argmax(axis=1))], task, y.shape[1])
    models = [
        labels[0] if labels.min() == labels.max() else new(split).fit(X, labels.astype(int))
        for labels in y.T
    ]
    return Estimators(models, task, y.shape[1])


def _estimator(model: str, balanced: bool, split: Split) -> Any:
    weight = "balanced" if balanced else None
    if model in SETUPS:
        from lightgbm import LGBMClassifier

        parameters = SETUPS[model].plan(split.seed).parameters
        return LGBMClassifier(**parameters, class_weight=weight, verbose=-1)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000, class_weight=weight)
