"""Bootstrap intervals of scores, and of differences of scores, over the test rows.

A metric depends on the rows only through how often each combination of label and decisions occurs,
so that resampling n rows equals drawing these numbers from a multinomial distribution. That is
exact, and for few classes as fast for a million rows as for a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.tabular.scoring import Scoring, as_columns

DRAWS = 2000
BLOCK = 4_000_000  # numbers that are drawn at once


def score_interval(
    y: Array, decided: Array, scoring: Scoring, seed: int = 0, groups: Array | None = None
) -> tuple[float, float]:
    """The 95 % bootstrap interval of the score of decisions; of groups, whole ones are drawn.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> y, decided = (np.repeat(x, [80, 20, 30, 870]) for x in ([1, 1, 0, 0], [1, 0, 1, 0]))
    >>> low, high = score_interval(y, decided, scoring_of("recall", "binary", 1))
    >>> round(low, 2), round(high, 2)
    (0.72, 0.88)
    """
    return central_interval(resampled(y, [decided], scoring, seed, groups=groups)[0])


def difference_interval(
    y: Array, ours: Array, theirs: Array, scoring: Scoring, seed: int = 0, copies: int = 1,
    groups: Array | None = None, weight: float = 1,
) -> tuple[float, float]:  # fmt: skip
    """The 95 % interval of the score of `ours` minus that of `theirs`, on the same resampled rows.

    The arrays hold each test row `copies` times, each time with other random decisions. Each test
    row stands for `weight` rows.

    >>> from anyloss.tabular.scoring import scoring_of
    >>> y = np.repeat([1, 0], 50)
    >>> difference_interval(y, y, y, scoring_of("f1", "binary", 1))
    (0.0, 0.0)
    """
    mine, other = resampled(y, [ours, theirs], scoring, seed, copies, groups, weight)
    return central_interval(mine - other)


def resampled(
    y: Array, decisions: Sequence[Array], scoring: Scoring, seed: int, copies: int = 1,
    groups: Array | None = None, weight: float = 1,
) -> list[Array]:  # fmt: skip
    """The scores of decisions on resampled rows, the same rows for all of them.

    The rows of a group are not independent, so that whole groups are drawn, as many as there are.
    """
    (label, *decided), kind = _kinds([y, *decisions], scoring)
    sizes, number, members = np.bincount(kind).astype(float), len(y) // copies, None
    if groups is not None:
        _, group = np.unique(groups, return_inverse=True)
        number = int(group.max()) + 1
        rows = np.full(len(y), 1 / copies)  # of each kind, in each group
        members = csr_array((rows, (group, kind)), shape=(number, len(sizes)))
        sizes = np.ones(number)
    rng, found = np.random.default_rng(seed), [list[Array]() for _ in decided]
    block = max(1, min(DRAWS, BLOCK // len(sizes)))
    for start in range(0, DRAWS, block):
        draws = min(block, DRAWS - start)
        n = rng.multinomial(number, sizes / sizes.sum(), draws).astype(float)
        n = n if members is None else n @ members
        for scores, own in zip(found, decided, strict=True):
            scores.append(_scores(weight * n, label, own, scoring))
    return [np.concatenate(x) for x in found]


def few_rows_interval(
    y: Array, decided: Array, scoring: Scoring, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the score of decisions on few rows.

    A bootstrap of few rows never draws what they do not hold, such as the first true positive. This
    interval is the central one of the posterior distribution under Jeffreys' prior, which adds half
    a row to each of the four cells of each label (or two rows to the cells of several classes). It
    is extended to the score itself where that is outside, such as 1 for decisions without mistakes
    (L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial proportion", 2001).

    >>> from anyloss.tabular.scoring import scoring_of
    >>> y, none = np.repeat([1, 0], [8, 92]), np.zeros(100)
    >>> low, high = few_rows_interval(y, none, scoring_of("recall", "binary", 1))
    >>> score_interval(y, none, scoring_of("recall", "binary", 1)), round(low, 1), round(high, 1)
    ((0.0, 0.0), 0.0, 0.3)
    """
    classes = as_columns(np.asarray(y)).shape[1]
    if scoring.layout.task == "multiclass":
        added = [
            np.repeat(np.eye(classes), classes, axis=0),
            np.tile(np.eye(classes), (classes, 1)),
        ]
    else:
        added = [
            np.repeat([[x] for x in cells], classes, 1) for cells in ((1, 1, 0, 0), (1, 0, 1, 0))
        ]
    weight = np.append(np.ones(len(y)), np.full(len(added[0]), 2 / len(added[0])))
    rows = [np.vstack([as_columns(x), more]) for x, more in zip((y, decided), added, strict=True)]
    (label, own), kind = _kinds(rows, scoring)
    shares = np.random.default_rng(seed).dirichlet(np.bincount(kind, weight), DRAWS)
    low, high = central_interval(_scores(len(y) * shares, label, own, scoring))
    score = scoring.score(y, decided)
    return min(low, score), max(high, score)


def _kinds(arrays: Sequence[Array], scoring: Scoring) -> tuple[list[Array], Array]:
    """The distinct rows of labels and decisions, and the number of the one of each row."""
    several = scoring.layout.task == "multiclass"
    columns = [as_columns(np.asarray(x)) for x in arrays]
    if several:  # one column is enough: the number of the class
        columns = [x.argmax(axis=1)[:, None] for x in columns]
    width = columns[0].shape[1]
    kinds, at = distinct_rows(np.hstack([x.astype(np.int32) for x in columns]))
    parts = [kinds[:, k : k + width] for k in range(0, kinds.shape[1], width)]
    if several:
        parts = [x == np.arange(scoring.layout.classes) for x in parts]
    return [x.astype(float) for x in parts], at


def distinct_rows(rows: Array) -> tuple[Array, Array]:
    """The distinct rows of non-negative integers in order, and the number of each row's own.

    They are those of `np.unique(rows, axis=0, return_inverse=True)`, which sorts whole rows; here
    each row becomes one number, column by column.

    >>> kinds, at = distinct_rows(np.array([[1, 0], [0, 2], [1, 0]]))
    >>> kinds.tolist(), at.tolist()
    ([[0, 2], [1, 0]], [1, 0, 1])
    """
    at, size = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        levels = int(column.max(initial=0)) + 1
        at = at * levels + column
        present = np.bincount(at, minlength=size * levels) > 0
        at, size = (np.cumsum(present) - 1)[at], int(present.sum())
    first = np.empty(size, dtype=np.int64)
    first[at[::-1]] = np.arange(len(rows))[::-1]
    return rows[first], at


def _scores(n: Array, label: Array, own: Array, scoring: Scoring) -> Array:
    """The scores of numbers of rows of each kind, of shape (draws, kinds)."""
    positives, total = n @ label, n.sum(axis=1, keepdims=True)
    tp, predicted = n @ (label * own), n @ own
    fn, fp = positives - tp, predicted - tp
    return scoring.of_counts(Counts(tp, fn, fp, total - tp - fn - fp))


def central_interval(values: Array) -> tuple[float, float]:
    """The central 95 % of values."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
