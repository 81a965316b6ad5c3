"""The scores of held-out rows, by estimators that were fitted on the other rows."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, check_cv
from sklearn.utils import Bunch, _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples

from anyloss._core.backend import Array
from anyloss.sklearn.responses import Responses, Wanted, responses


def splitter(cv: Any, y: Array, task: str, random_state: Any) -> Any:
    """The cross-validator that `cv` stands for: scikit-learn's, or a single held-out share."""
    if isinstance(cv, Real) and not isinstance(cv, Integral):
        single = ShuffleSplit if task == "multilabel" else StratifiedShuffleSplit
        cv = single(n_splits=1, test_size=cv, random_state=random_state)
    return check_cv(cv, y=y, classifier=True)


def out_of_fold(
    estimator: Any, X: Array, y: Array, splits: list[Any], params: dict[str, Any], wanted: Wanted,
    *, n_jobs: int | None,
) -> tuple[Array, Responses]:  # fmt: skip
    """The held-out rows of all splits, and their scores."""
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_held_out)(clone(estimator), X, y, train, test, params, wanted)
        for train, test in splits
    )
    rows = np.concatenate([np.arange(_num_samples(X))[test] for _, test in splits])
    scores = np.concatenate([part.scores for part in parts])
    return rows, Responses(scores, all(part.probabilities for part in parts))


def _held_out(
    estimator: Any, X: Array, y: Array, train: Array, test: Array, params: dict[str, Any],
    wanted: Wanted,
) -> Responses:  # fmt: skip
    model = fitted(estimator, X, y, train, params)
    return responses(model, _safe_indexing(X, test), wanted)


def fitted(estimator: Any, X: Array, y: Array, rows: Array | None, params: dict[str, Any]) -> Any:
    """The estimator, fitted on some of the rows; None for all."""
    if rows is None:
        return estimator.fit(X, y, **params)
    chosen = _check_method_params(X, params, indices=rows)
    return estimator.fit(_safe_indexing(X, rows), _rows_of(y, rows), **chosen)


def without_weight_zero(
    X: Array, y: Array, weight: Array, routed: Bunch, cv: Any
) -> tuple[Array, Array, Array, Bunch, Any]:
    """All without the rows of weight 0, which equal no rows; so do splits that are given."""
    rows = np.flatnonzero(weight)
    if is_list_of_splits(cv):
        cv = [tuple(_renumbered(part, weight > 0) for part in split) for split in cv]
    X, y, routed = of_rows(X, y, rows, routed)
    return X, y, weight[rows], routed, cv


def is_list_of_splits(cv: Any) -> bool:
    """Whether `cv` is a list of pairs of row numbers, not a splitter or a number."""
    return isinstance(cv, Iterable) and not isinstance(cv, str) and not hasattr(cv, "split")


def _renumbered(part: Array, kept: Array) -> Array:
    """The numbers that rows have after all others than the kept ones are removed.

    >>> _renumbered(np.array([0, 2, 3]), np.array([False, True, True, True]))
    array([1, 2])
    """
    rows = np.arange(len(kept))[part]
    return (np.cumsum(kept) - 1)[rows[kept[rows]]]


def of_rows(X: Array, y: Array, rows: Array, routed: Bunch) -> tuple[Array, Array, Bunch]:
    """Some of the rows, with the parameters of these rows."""
    kept = {k: _check_method_params(X, given, indices=rows) for k, given in routed.items()}
    return *part_of(X, y, rows), Bunch(**kept)


def part_of(X: Array, y: Array, rows: Array) -> tuple[Array, Array]:
    """Some of the rows and their labels."""
    return _safe_indexing(X, rows), _rows_of(y, rows)


def _rows_of(y: Array, rows: Array) -> Array:
    return y[rows] if issparse(y) else _safe_indexing(y, rows)
