"""The scores of any fitted classifier, in columns that do not depend on its library."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import _check_response_method

from anyloss._core.backend import Array
from anyloss.recipe.labels import places
from anyloss.recipe.target import probabilities


class Wanted(NamedTuple):
    """Which scores are wanted: the methods in order, the task, its classes, the positive one."""

    methods: list[str]
    task: str
    classes: Array
    positive: Any


class Responses(NamedTuple):
    """Scores `(n, columns)`: one column for two classes, and whether they are probabilities."""

    scores: Array
    probabilities: bool


def responses(estimator: Any, X: Array, wanted: Wanted) -> Responses:
    """The scores of the positive class, of each label, or of each class.

    Several classes without probabilities have the softmax of their decision values. A class that
    the estimator has not seen has the probability 0.
    """
    method = _check_response_method(estimator, wanted.methods)
    is_proba = method.__name__ == "predict_proba"
    values = method(X)
    if wanted.task == "multilabel":
        return Responses(_of_labels(values, estimator, len(wanted.classes)), is_proba)
    values = np.asarray(values)
    known = np.asarray(getattr(estimator, "classes_", wanted.classes))
    if values.ndim == 1:  # the decision values of the second of two classes
        values = np.column_stack([-values, values])
    pairs = not is_proba and len(known) > 2 and _has_pairs(estimator)
    if pairs or values.shape[1] != len(known):
        shown = "one for each pair of classes" if pairs else str(values.shape[1])
        raise ValueError(
            f"{method.__name__} must have one column for each of {len(known)} classes; got "
            f"{shown}. For SVC use decision_function_shape='ovr'"
        )
    if wanted.task == "binary":
        at = np.flatnonzero(known == wanted.positive)
        return Responses(values[:, at] if len(at) else np.zeros((len(values), 1)), is_proba)
    scores = np.zeros((len(values), len(wanted.classes)))
    scores[:, places(wanted.classes, known)] = (
        values if is_proba else probabilities(values, "multiclass")
    )
    return Responses(scores, True)


def _has_pairs(estimator: Any) -> bool:
    """Whether the decision values are those of an SVC for pairs of classes."""
    params = estimator.get_params() if hasattr(estimator, "get_params") else {}
    return any(
        name.split("__")[-1] == "decision_function_shape" and value == "ovo"
        for name, value in params.items()
    )


def _of_labels(values: Any, estimator: Any, labels: int) -> Array:
    """One column per label; some classifiers give a list with the two classes of each label."""
    if isinstance(values, list):
        columns = [
            x[:, 1] if x.shape[1] == 2 else np.full(len(x), float(known[0] == 1))
            for x, known in zip(values, estimator.classes_, strict=True)
        ]
        values = np.column_stack(columns)
    values = np.asarray(values)
    if values.ndim != 2 or values.shape[1] != labels:
        raise ValueError(
            f"the scores of {labels} labels must have the shape (rows, {labels}); got "
            f"{values.shape}"
        )
    return values
