"""The evaluation of a model on its test rows: intervals, baselines, importance of the columns.

Intervals come from a bootstrap over the test rows. A metric depends on the rows only through the
four confusion counts, so that resampling n rows equals drawing the counts from a multinomial
distribution. That is exact, and as fast for a million rows as for a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss._core.functions import score
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Predictions, Split
from anyloss.baselines.splits import MODELS, new_split
from anyloss.metrics import metric as find_metric
from anyloss.recipe.folds import thinned
from anyloss.tabular.preparing import sample_rows
from anyloss.tabular.result import Baseline, Importance

DRAWS = 2000
BASELINES = {
    "bce": "cross-entropy, threshold 0.5",
    "bce_tuned": "cross-entropy, tuned threshold",
    "weighted": "class-weighted cross-entropy",
}
BASELINE_ROWS, BASELINE_RARER = 100_000, 2_000  # as many rows as our own recipe uses
SHUFFLED_CELLS, SHUFFLES = 2_500_000, 5
MOST_COLUMNS = 50


def score_interval(cells: Counts, metric: str, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a metric at these counts.

    >>> low, high = score_interval(Counts(tp=80.0, fn=20.0, fp=30.0, tn=870.0), "recall")
    >>> round(low, 2), round(high, 2)
    (0.72, 0.88)
    """
    drawn = _resampled(np.array([*cells], dtype=float), seed)
    return _central_interval(_scores(metric, *drawn.T))


def difference_interval(
    y: Array, ours: Array, theirs: Array, metric: str, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the score of `ours` minus that of `theirs`, on the same resampled rows.

    >>> y = np.repeat([1, 0], 50)
    >>> difference_interval(y, y, y, "f1")
    (0.0, 0.0)
    """
    place = (np.asarray(y) * 4 + np.asarray(ours) * 2 + np.asarray(theirs)).astype(int)
    n = _resampled(np.bincount(place, minlength=8).astype(float), seed).T
    # n[4 * label + 2 * ours + theirs]
    mine = _scores(metric, n[6] + n[7], n[4] + n[5], n[2] + n[3], n[0] + n[1])
    other = _scores(metric, n[5] + n[7], n[4] + n[6], n[1] + n[3], n[0] + n[2])
    return _central_interval(mine - other)


def _resampled(cells: Array, seed: int) -> Array:
    total = cells.sum()
    return np.random.default_rng(seed).multinomial(int(total), cells / total, DRAWS)


def _scores(metric: str, tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    return np.broadcast_to(find_metric(metric)(tp=tp, fn=fn, fp=fp, tn=tn), tp.shape)


def _central_interval(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def baselines(
    model: str,
    X: Array,
    y: Array,
    X_test: Array,
    y_test: Array,
    ours: Array,
    metric: str,
    seed: int,
) -> tuple[Baseline, ...]:
    """The same model trained with cross-entropy in three ways, against our decisions `ours`.

    A larger table is sampled: 100,000 rows, or as many as hold 2,000 rows of the rarer class.
    """
    rarer = min(y.mean(), 1 - y.mean())
    if len(y) > (most := max(BASELINE_ROWS, round(BASELINE_RARER / rarer))):
        rows = sample_rows(y, most, seed)
        X, y = X[rows], y[rows]
    split, found = new_split(X, y, X_test, MODELS.get(model, ()), seed), []
    mine = score(y_test, ours.astype(float), metric)
    wanted = {"bce": ("bce", "bce_tuned"), "weighted": ("weighted",)}
    for each in predictions(model, wanted, split, metric):
        theirs = score(y_test, each.decision.astype(float), metric)
        interval = difference_interval(y_test, ours, each.decision, metric, seed)
        found.append(Baseline(BASELINES[each.method], theirs, mine - theirs, interval))
    return tuple(found)


def predictions(
    model: str, wanted: Mapping[str, Sequence[str]], split: Split, metric: str
) -> Iterator[Predictions]:
    """The predictions of these methods (by family) for the test rows; no other is trained."""
    for family, methods in wanted.items():
        left = set(methods)
        for each in BOOSTED.get(model, FAMILIES)[family](split, [metric]):
            if each.method in left:
                left.discard(each.method)
                yield each
            if not left:
                break


def importances(
    decide: Callable[[Array], Array],
    X: Array,
    y: Array,
    sources: Array,
    columns: list[str],
    metric: str,
    seed: int,
) -> tuple[Importance, ...]:
    """How much the score drops when a column is shuffled, the most influential column first.

    `decide` returns the decision values of encoded rows, and `sources` holds the source column of
    each encoded column. A large table is sampled, with weights that represent all rows.
    """
    most = max(500, SHUFFLED_CELLS // X.shape[1] // SHUFFLES)
    weight = np.ones(len(y))
    if len(y) > most:
        rows, weight = thinned(y[:, None], None, "binary", most, seed)
        X, y = X[rows], y[rows]

    def reached(X: Array) -> float:
        return float(score(y, (decide(X) > 0.5).astype(float), metric, weight=weight))

    rng, whole, found = np.random.default_rng(seed), reached(X), []
    for column in columns:
        at = np.flatnonzero(sources == column)
        kept, drops = X[:, at].copy(), []
        for _ in range(SHUFFLES):
            X[:, at] = kept[rng.permutation(len(y))]
            drops.append(whole - reached(X))
        X[:, at] = kept
        found.append(Importance(column, float(np.mean(drops)), float(np.std(drops, ddof=1))))
    return tuple(sorted(found, key=lambda x: -x.drop))
