"""How a linear model is trained for a metric, without scikit-learn and without PyTorch.

The published loss on its own, from a cold start, loses to cross-entropy with a tuned threshold.
This is what wins, in the order of the steps below:

1. **Cross-entropy first.** Logistic regression on each inner training fold.
2. **The threshold into the bias.** The logits of all held-out rows together give the exact best
   threshold for the metric; it is subtracted from every intercept.
3. **Then the metric.** Adam on `1 - metric` under a moderate step, plus a little class-weighted
   cross-entropy, from that start: each fold's model is refined on the rows it was fitted on.
4. **All of them vote.** The decision is the mean of `tanh(logit / 2)` over the models of all folds,
   as they started (threshold in the bias) and as they were refined.

What was measured, and what did not help, is in `benchmarks/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from anyloss.arithmetic import NUMPY, Array
from anyloss.counts import Counts, score
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.slopes import Slopes, binary_slopes, column_gradient
from anyloss.steps import Amplified
from anyloss.threshold import best_threshold


@dataclass(frozen=True)
class LinearFit:
    """A linear model trained for a metric: some linear members that vote.

    Members are rows of `coef` and `intercept`, two per fold: started and refined. `start_score` is
    the metric of cross-entropy with the tuned threshold on the rows each fold holds out,
    `held_out_score` that of the vote of both members there; `history` is the mean soft score of
    the refined members at each step.
    """

    coef: Array
    intercept: Array
    start_score: float
    held_out_score: float
    history: Array

    def decide(self, X: Array) -> Array:
        """The vote from -1 to 1: above 0 where the positive class is predicted."""
        return vote(X @ self.coef.T + self.intercept)


def vote(logits: Array) -> Array:
    """The mean of `tanh(logit / 2)` over the members, the columns."""
    mean: Array = np.tanh(logits / 2).mean(axis=1)
    return mean


def fit_linear(
    X: Array,
    y: Array,
    metric: MetricSpec | Metric = "f1",
    *,
    weight: Array | None = None,
    C: float = 1.0,
    folds: int = 5,
    step: Amplified = Amplified(20.0),
    steps: int = 150,
    rate: float = 0.03,
    cross_entropy: float = 0.1,
    seed: int | np.random.Generator = 0,
    on_step: Callable[[int, float], None] = lambda step, soft_score: None,
) -> LinearFit:
    """Train a linear model for a metric; `X` should be standardised, `y` is 0 or 1.

    `C` is the inverse strength of the L2 penalty of the start, as in scikit-learn; `on_step` is
    told the number of each refining step and the mean soft score of the members before it.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (X[:, 0] + rng.normal(size=300) > 1.5).astype(float)
    >>> fit = fit_linear(X, y, "f1")
    >>> fit.coef.shape, fit.decide(X).shape
    ((10, 2), (300,))
    """
    chosen = find_metric(metric)
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    splits = _inner_folds(X, y, folds, np.random.default_rng(seed))
    starts: list[Array] = []
    held_out = np.empty(len(y))
    for rows, rest in splits:
        start = starts[-1] if starts else np.zeros(X.shape[1] + 1)
        starts.append(_logistic(X[rows], y[rows], weight[rows], C, start))
        held_out[rest] = _logits(X[rest], starts[-1])
    threshold, start_score = best_threshold(y, held_out, chosen, weight=weight)

    started = np.array(starts).T
    started[-1] -= threshold
    fitted = np.zeros((len(y), len(splits)))
    for k, (rows, _) in enumerate(splits):
        fitted[rows, k] = weight[rows]
    refined, history = _refine(
        X, y[:, None], fitted, started, chosen, step, steps, rate, cross_entropy, on_step
    )
    for k, (_, rest) in enumerate(splits):
        both = np.column_stack([started[:, k], refined[:, k]])
        held_out[rest] = vote(_logits(X[rest], both))
    members = np.concatenate([started, refined], axis=1).T
    return LinearFit(
        coef=members[:, :-1],
        intercept=members[:, -1],
        start_score=start_score,
        held_out_score=score(y, held_out > 0, chosen, weight=weight),
        history=history,
    )


def _inner_folds(
    X: Array, y: Array, folds: int, rng: np.random.Generator
) -> list[tuple[Array, Array]]:
    """Stratified folds: rows to fit and rows held out; all for both if a class has one row only.

    Identical rows stay together: a copy of a row is not held out from its twin, and a row of
    weight 2 is treated as the row twice would be.
    """
    _, first, same = np.unique(
        np.column_stack([y, X]), axis=0, return_index=True, return_inverse=True
    )
    labels, same = y[first], same.reshape(-1)
    folds = min(folds, int((labels == 1).sum()), int((labels == 0).sum()))
    everything = np.arange(len(y))
    if folds < 2:
        return [(everything, everything)]
    fold_of = np.empty(len(labels), dtype=int)
    for label in (0, 1):
        distinct = np.flatnonzero(labels == label)
        fold_of[rng.permutation(distinct)] = np.arange(len(distinct)) % folds
    order = fold_of[same]
    return [(everything[order != k], everything[order == k]) for k in range(folds)]


def _logits(X: Array, parameters: Array) -> Array:
    return X @ parameters[:-1] + parameters[-1]


def _sigmoid(z: Array) -> Array:
    return (1 + np.tanh(z / 2)) / 2


def _logistic(X: Array, y: Array, weight: Array, C: float, start: Array) -> Array:
    """Logistic regression with an L2 penalty on all but the intercept, by L-BFGS."""
    total = weight.sum()

    def loss(parameters: Array) -> tuple[float, Array]:
        z, coef = _logits(X, parameters), parameters[:-1]
        value = C * (weight @ (np.logaddexp(0, z) - y * z)) + coef @ coef / 2
        rows = C * weight * (_sigmoid(z) - y)
        return value / total, np.append(X.T @ rows + coef, rows.sum()) / total

    return minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x


def _refine(
    X: Array,
    y: Array,
    weight: Array,
    start: Array,
    chosen: Metric,
    step: Amplified,
    steps: int,
    rate: float,
    cross_entropy: float,
    on_step: Callable[[int, float], None],
) -> tuple[Array, Array]:
    """Adam on `1 - metric + cross_entropy * (class-weighted cross-entropy)`, all members at once.

    One column of `start` and of `weight` per member; a row of weight 0 is not the member's.
    """
    positive = (weight * y).sum(axis=0)
    negative = weight.sum(axis=0) - positive
    share = weight * np.where(y == 1, 0.5 / positive, 0.5 / negative) * cross_entropy
    parameters, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    history = np.empty(steps)
    for k in range(1, steps + 1):
        z = _logits(X, parameters)
        scores, rows = column_gradient(z, y, step, lambda c: _array_slopes(c, chosen), weight)
        history[k - 1] = scores.mean()
        on_step(k, history[k - 1])
        rows = share * (_sigmoid(z) - y) - rows
        grad = np.concatenate([X.T @ rows, rows.sum(axis=0, keepdims=True)])
        grad[:-1] += 2e-4 * parameters[:-1]
        first += 0.1 * (grad - first)
        second += 0.001 * (grad**2 - second)
        size = np.sqrt(second / (1 - 0.999**k)) + 1e-8
        parameters -= rate * first / (1 - 0.9**k) / size
    return parameters, history


def _array_slopes(counts: Counts, chosen: Metric) -> Slopes:
    return binary_slopes(counts, chosen, ops=NUMPY)
