"""The features of the models in NumPy: dense, sparse, or sparse and centred.

The models need four things of `X`: its shape, some of its rows, `X @ weights` and `X.T @ values`.
NumPy's arrays and SciPy's CSR arrays have them. Centring would fill a sparse matrix, so `Centred`
subtracts the means from the products instead: the numbers are those of the dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, issparse

from anyloss._core.backend import Array
from anyloss.recipe.networks import Layers


@dataclass(frozen=True)
class Centred:
    """A sparse matrix `sparse` minus the row `mean`, which is never stored as such.

    >>> X = Centred(csr_array([[0.0, 2.0], [4.0, 0.0]]), mean=np.array([2.0, 1.0]))
    >>> (X @ np.eye(2)).tolist(), (X.T @ np.eye(2)).tolist()
    ([[-2.0, 1.0], [2.0, -1.0]], [[-2.0, 2.0], [1.0, -1.0]])
    """

    sparse: Array
    mean: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        rows, columns = self.sparse.shape
        return rows, columns

    def __getitem__(self, rows: Array) -> Centred:
        return Centred(self.sparse[rows], self.mean)

    def __matmul__(self, weights: Array) -> Array:
        return self.sparse @ weights - self.mean @ weights

    @property
    def T(self) -> _Transposed:
        """The transposed matrix."""
        return _Transposed(self)


@dataclass(frozen=True)
class _Transposed:
    whole: Centred

    def __matmul__(self, values: Array) -> Array:
        found: Array = self.whole.sparse.T @ values
        found -= np.outer(self.whole.mean, values.sum(axis=0))
        return found


def read_features(X: Array) -> Array:
    """Features as the models use them: doubles, in an array, in a CSR array, or `Centred`."""
    if isinstance(X, Centred):
        return X
    return csr_array(X, dtype=float) if issparse(X) else np.asarray(X, dtype=float)


def standardise(X: Array, weight: Array | None) -> tuple[Array, Callable[[Layers], Layers]]:
    """Standardised columns, and a function that adapts layers for them to `X` itself.

    >>> standardise(np.array([[2.0], [4.0]]), None)[0].tolist()
    [[-1.0], [1.0]]
    """
    if issparse(X):
        X = csr_array(X, copy=True)
        X.sum_duplicates()
    peak = abs(X).max(axis=0)
    peak = peak.toarray().ravel() if issparse(X) else peak
    peak[peak == 0] = 1.0
    X = _divided(X, peak)  # so that squares of large numbers do not overflow
    mean, scale = (_sparse_moments if issparse(X) else _moments)(X, weight)
    scale[scale < 10 * np.finfo(float).eps] = 1.0  # constant but for rounding

    def into_columns(layers: Layers) -> Layers:
        weights = layers[0] / scale[:, None]
        bias = layers[1] - mean @ weights[:, None]
        return [weights / peak[:, None], bias.reshape(layers[1].shape), *layers[2:]]

    if issparse(X):
        return Centred(_divided(X, scale), mean / scale), into_columns
    return (X - mean) / scale, into_columns


def _divided(X: Array, by: Array) -> Array:
    """The columns, each divided by a number."""
    return _with(X, X.data / by[X.indices]) if issparse(X) else X / by


def _with(X: Array, data: Array) -> Array:
    """A CSR array with the places of `X` and other values."""
    return csr_array((data, X.indices, X.indptr), shape=X.shape)


def _moments(X: Array, weight: Array | None) -> tuple[Array, Array]:
    """The mean and the standard deviation of each column."""
    mean = np.average(X, axis=0, weights=weight)
    return mean, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))


def _sparse_moments(X: Array, weight: Array | None) -> tuple[Array, Array]:
    """The mean and the standard deviation of each column of a CSR array."""
    rows, columns = X.shape
    share = np.full(rows, 1 / rows) if weight is None else weight / weight.sum()
    mean = X.T @ share
    full = np.bincount(X.indices, minlength=columns) == rows
    zeros = np.where(full, 0.0, 1 - _with(X, np.ones(X.nnz)).T @ share)
    stored = _with(X, (X.data - mean[X.indices]) ** 2).T @ share
    return mean, np.sqrt(stored + np.maximum(zeros, 0.0) * mean**2)
