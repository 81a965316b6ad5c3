"""Which samples a member of the ensemble is fitted on: inner folds, and a sample of very many."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from anyloss._core.backend import Array

MANY = 10  # copies of a row that need not stay in one fold


def inner_folds(
    X: Array, y: Array, task: str, folds: int, repeats: int, rng: np.random.Generator,
    groups: Array | None = None,
) -> Array:  # fmt: skip
    """Which rows each member holds out, `(members, rows)`: stratified, each row once per repeat.

    The only row of a class is never held out. Identical rows stay together, so that no copy of a
    held-out row is trained on, and a row of weight 2 is treated like the row twice. Rows with ten
    or more copies are distributed one by one; otherwise data with few distinct rows could not be
    divided. With `groups`, the rows of a group stay together instead, and the group counts for the
    class of its first row.

    >>> X, y = np.arange(4.0)[:, None], np.array([[0.0], [1.0]] * 2)
    >>> inner_folds(X, y, "binary", 2, 1, np.random.default_rng(0)).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 1]]
    """
    same = kept_together(row_codes(X, y)) if groups is None else groups
    _, distinct, same = np.unique(same, return_index=True, return_inverse=True)
    stratum = strata(y[distinct], task)
    held = []
    for _ in range(repeats):
        fold_of, dealt = np.full(len(distinct), -1), 0
        for k in np.unique(stratum):
            rows = rng.permutation(np.flatnonzero(stratum == k))
            if len(rows) > 1:
                fold_of[rows] = (np.arange(len(rows)) + dealt) % folds
                dealt += len(rows)
        held.append(np.arange(folds)[:, None] == fold_of[same])
    if not held[0].any():
        raise ValueError(
            "some rows must be held out in turn, so that a class needs two different rows or more; "
            f"got {len(y)} rows, none of which can be held out"
        )
    return np.concatenate(held)


def row_codes(X: Array, y: Array) -> Array:
    """The number of each row of `(y, X)` among the distinct rows in lexicographic order.

    >>> row_codes(np.array([[0.0], [5.0], [0.0]]), np.array([[1.0], [0.0], [1.0]])).tolist()
    [1, 0, 1]
    """
    if not issparse(X):
        return np.unique(np.column_stack([y, X]), axis=0, return_inverse=True)[1].reshape(-1)
    rows = hstack([csr_array(y), X], format="csr")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    # Rows are compared at the first place where they differ: a negative number there comes before
    # the zeros of another row, the earlier the further left it is; a positive one comes after them.
    width, ends = rows.shape[1], rows.indptr[1:]
    place = np.where(rows.data < 0, rows.indices - width, width - rows.indices)
    place, value = np.insert(place, ends, 0), np.insert(rows.data, ends, 0)
    order = np.lexsort((value, place))
    differs = (np.diff(place[order]) != 0) | (np.diff(value[order]) != 0)
    code = np.empty(len(order), dtype=">u4")  # in this order of bytes, bytes compare as numbers do
    code[order] = np.append(0, np.cumsum(differs))
    keys = [x.tobytes() for x in np.split(code, ends + np.arange(1, len(ends) + 1))[:-1]]
    number = {key: k for k, key in enumerate(sorted(set(keys)))}
    return np.array([number[key] for key in keys])


def kept_together(same: Array) -> Array:
    """The group of each row: identical rows share one, unless there are ten or more copies.

    >>> kept_together(np.array([0, 1, 0])).tolist()
    [0, 1, 0]
    """
    many = np.bincount(same)[same] >= MANY
    return np.where(many, len(same) + np.arange(len(same)), same)


def thinned(y: Array, weight: Array | None, task: str, most: int, seed: int) -> tuple[Array, Array]:
    """Draw `most` of very many rows, with weights under which they represent all rows.

    Each class gets an equal share of `most`, and a class that needs less leaves the rest to the
    others. The drawn rows of a class weigh as much as all its rows, so that the expected counts of
    the confusion matrix are those of all rows.

    >>> y = np.repeat([0.0, 1.0], [990, 10])[:, None]
    >>> rows, weight = thinned(y, None, "binary", 100, seed=0)
    >>> len(rows), float(y[rows, 0] @ weight), round(float(weight.sum()), 9)
    (100, 10.0, 1000.0)
    """
    weight = np.ones(len(y)) if weight is None else weight
    stratum = strata(y, task)
    sizes, keep, room = np.bincount(stratum), np.zeros(stratum.max() + 1, dtype=int), most
    for left, k in enumerate(np.argsort(sizes)):
        keep[k] = min(sizes[k], room // (len(sizes) - left))
        room -= keep[k]
    rng = np.random.default_rng(seed)
    chosen = []
    weight = weight.copy()
    for k in np.flatnonzero(keep):
        rows = np.flatnonzero(stratum == k)
        drawn = rng.choice(rows, keep[k], replace=False)
        weight[drawn] *= weight[rows].sum() / weight[drawn].sum()
        chosen.append(drawn)
    rows = np.sort(np.concatenate(chosen))
    return rows, weight[rows]


def strata(y: Array, task: str) -> Array:
    """The class of each row; for several labels, its rarest label."""
    if task == "binary":
        return y[:, 0].astype(int)
    if task == "multiclass":
        return y.argmax(axis=1)
    rarest_first = np.argsort(y.sum(axis=0), kind="stable")
    ordered = y[:, rarest_first]
    return np.where(ordered.any(axis=1), ordered.argmax(axis=1), y.shape[1])
