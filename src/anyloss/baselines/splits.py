"""Splits: the training rows, test rows and inner folds, which are the same for every method."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.baselines.methods import Split

MODELS: dict[str, tuple[int, ...]] = {
    "linear": (),
    "mlp": (8,),
}  # and the trees of `anyloss.baselines.boosted`
INNER = 5


def check_sizes(folds: int, repeats: int, rows: int) -> None:
    """Raise a ValueError if there are too few folds, repeats or rows for a comparison."""
    if folds < 2 or repeats < 1 or rows < 50:
        raise ValueError(
            "a comparison needs at least 2 folds, 1 repeat and 50 rows; got "
            f"{folds}, {repeats} and {rows}"
        )


def new_split(
    X: Any, y: Any, test: Any, hidden: tuple[int, ...], seed: int, groups: Any = None
) -> Split:
    """The split that every method receives: scaled rows and two sets of inner folds.

    The scaler is fitted on the training rows `X` only. Folds are stratified by class; those of
    several labels are not. The rows of a group stay in one fold.
    """
    rows, at = scaled(X, test)
    inner, other = (
        list(splitter(y, INNER, s, groups).split(rows, y, groups)) for s in (seed, seed + 1000)
    )
    return Split(rows, y, at, inner, other, hidden, seed, groups)


def scaled(X: Any, test: Any) -> tuple[Array, Array]:
    """Standardised training rows and test rows, by the training rows."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(test)


def splitter(y: Any, folds: int, seed: int, groups: Any = None) -> Any:
    """Shuffled folds, stratified unless there are several labels, which keep groups together."""
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    kind = KFold if y.ndim == 2 else StratifiedKFold
    if groups is not None:
        kind = GroupKFold if y.ndim == 2 else StratifiedGroupKFold
    return kind(folds, shuffle=True, random_state=seed)


def check_rarer(y: Any, folds: int) -> None:
    """Raise a ValueError if the rarest class is too small for the folds and their inner folds.

    >>> check_rarer(np.array([0] * 90 + [1] * 5), folds=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: 5 rows of the rarer class are too few for 5 folds with 5 inner folds each...
    """
    least = len(y) if y.ndim == 2 else int(np.bincount(y.astype(int), minlength=2).min())
    if least < folds or least - -(-least // folds) < INNER:
        raise ValueError(
            f"{least} rows of the rarer class are too few for {folds} folds with {INNER} inner "
            "folds each; use fewer folds"
        )


def fingerprint(X: Array, y: Array) -> str:
    """A checksum of the rows and labels, which identifies a data set beside its name.

    >>> fingerprint(np.zeros((2, 1)), np.ones(2)) == fingerprint(np.zeros((2, 1)), np.zeros(2))
    False
    """
    return f"{zlib.crc32(np.ascontiguousarray(X).tobytes() + y.tobytes()):08x}"
