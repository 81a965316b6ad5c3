"""How good a model is on its test rows, how sure that is, and what it is due to.

Intervals come from the bootstrap over test rows. A metric knows the rows only through the four
counts, so resampling n rows is drawing the counts from a multinomial: exact, and as quick for a
million rows as for a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.counts import Counts, score
from anyloss.baselines.boosted import BOOSTED
from anyloss.baselines.methods import FAMILIES, Outcome, Split
from anyloss.baselines.splits import MODELS, new_split
from anyloss.metrics import metric as find_metric
from anyloss.recipe import thinned
from anyloss.tabular.preparing import sample_rows
from anyloss.tabular.result import Importance, Rival

DRAWS = 2000
RIVALS = {
    "bce": "cross-entropy, threshold 0.5",
    "bce_tuned": "cross-entropy, tuned threshold",
    "weighted": "class-weighted cross-entropy",
}
RIVAL_ROWS, RIVAL_RARER = 100_000, 2_000  # our own recipe takes as many rows
SHUFFLED_CELLS, SHUFFLES = 2_500_000, 5
MOST_COLUMNS = 50


def score_interval(cells: Counts, metric: str, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the metric of these counts.

    >>> low, high = score_interval(Counts(tp=80.0, fn=20.0, fp=30.0, tn=870.0), "recall")
    >>> round(low, 2), round(high, 2)
    (0.72, 0.88)
    """
    drawn = _resampled(np.array([*cells], dtype=float), seed)
    return _middle(_scores(metric, *drawn.T))


def difference_interval(
    y: Array, ours: Array, theirs: Array, metric: str, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of our metric minus theirs, both on the same resampled rows.

    >>> y = np.repeat([1, 0], 50)
    >>> difference_interval(y, y, y, "f1")
    (0.0, 0.0)
    """
    place = (np.asarray(y) * 4 + np.asarray(ours) * 2 + np.asarray(theirs)).astype(int)
    n = _resampled(np.bincount(place, minlength=8).astype(float), seed).T
    # n[4 * label + 2 * ours + theirs]
    mine = _scores(metric, n[6] + n[7], n[4] + n[5], n[2] + n[3], n[0] + n[1])
    other = _scores(metric, n[5] + n[7], n[4] + n[6], n[1] + n[3], n[0] + n[2])
    return _middle(mine - other)


def _resampled(cells: Array, seed: int) -> Array:
    total = cells.sum()
    return np.random.default_rng(seed).multinomial(int(total), cells / total, DRAWS)


def _scores(metric: str, tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    return np.broadcast_to(find_metric(metric)(tp=tp, fn=fn, fp=fp, tn=tn), tp.shape)


def _middle(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def rivals(
    model: str,
    X: Array,
    y: Array,
    X_test: Array,
    y_test: Array,
    ours: Array,
    metric: str,
    seed: int,
) -> tuple[Rival, ...]:
    """The same model trained by cross-entropy, on the same rows, in the three usual ways.

    Of more than 100,000 rows so many are drawn, or as many more as hold 2,000 of the rarer class.
    """
    rarer = min(y.mean(), 1 - y.mean())
    if len(y) > (most := max(RIVAL_ROWS, round(RIVAL_RARER / rarer))):
        rows = sample_rows(y, most, seed)
        X, y = X[rows], y[rows]
    split, found = new_split(X, y, X_test, MODELS.get(model, ()), seed), []
    mine = score(y_test, ours.astype(float), metric)
    wanted = {"bce": ("bce", "bce_tuned"), "weighted": ("weighted",)}
    for outcome in outcomes(model, wanted, split, metric):
        theirs = score(y_test, outcome.decision.astype(float), metric)
        interval = difference_interval(y_test, ours, outcome.decision, metric, seed)
        found.append(Rival(RIVALS[outcome.method], theirs, mine - theirs, interval))
    return tuple(found)


def outcomes(
    model: str, wanted: Mapping[str, Sequence[str]], split: Split, metric: str
) -> Iterator[Outcome]:
    """What these methods, by family, decide on the test rows; nothing is trained beyond them."""
    for family, methods in wanted.items():
        left = set(methods)
        for outcome in BOOSTED.get(model, FAMILIES)[family](split, [metric]):
            if outcome.method in left:
                left.discard(outcome.method)
                yield outcome
            if not left:
                break


def importances(
    votes: Callable[[Array], Array],
    X: Array,
    y: Array,
    sources: Array,
    columns: list[str],
    metric: str,
    seed: int,
) -> tuple[Importance, ...]:
    """How much the metric falls when a column is shuffled, the most influential first.

    `votes` are those of encoded rows, `sources` tell which column each encoded one is made of. Of
    many rows some are drawn, and weigh as much as all.
    """
    most = max(500, SHUFFLED_CELLS // X.shape[1] // SHUFFLES)
    weight = np.ones(len(y))
    if len(y) > most:
        rows, weight = thinned(y[:, None], None, "binary", most, seed)
        X, y = X[rows], y[rows]

    def reached(X: Array) -> float:
        return float(score(y, (votes(X) > 0.5).astype(float), metric, weight=weight))

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
