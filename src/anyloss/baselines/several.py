"""Models of several classes or labels: their scores of the test rows and of the held-out rows.

They are trained by cross-entropy, with or without balanced class weights. The linear model is
scikit-learn's logistic regression and the trees are LightGBM's own classifier, both one per label
if there are several labels. Networks have the size of ours.
"""

from __future__ import annotations

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


def _fitted(new: Any, task: str, X: Array, y: Array, split: Split) -> Predict:
    """One estimator of all classes; a class without rows has probability 0. Or one per label."""
    if task == "multilabel":
        labels = [_label(new, X, column, split) for column in y.T]
        return lambda rows: np.column_stack([predict(rows) for predict in labels])
    model = new(split).fit(X, y.argmax(axis=1))

    def predict(rows: Array) -> Array:
        found = np.zeros((len(rows), y.shape[1]))
        found[:, model.classes_] = model.predict_proba(rows)
        return found

    return predict


def _label(new: Any, X: Array, y: Array, split: Split) -> Predict:
    """An estimator of one label; a label that is the same in all rows has its own value."""
    if y.min() == y.max():
        return lambda rows: np.full(len(rows), y[0])
    model = new(split).fit(X, y.astype(int))
    return lambda rows: model.predict_proba(rows)[:, 1]


def _estimator(model: str, balanced: bool, split: Split) -> Any:
    weight = "balanced" if balanced else None
    if model in SETUPS:
        from lightgbm import LGBMClassifier

        parameters = SETUPS[model].plan(split.seed).parameters
        return LGBMClassifier(**parameters, class_weight=weight, verbose=-1)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000, class_weight=weight)
