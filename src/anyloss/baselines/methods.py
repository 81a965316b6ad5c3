"""The rivals, and ours: each trains on one outer fold and decides on its test rows.

A family is what is fitted together: a loss that does not know the metric is trained once for all
metrics, at 0.5 and with a tuned threshold. The linear model of cross-entropy, its weighted twin and
the resampling methods is scikit-learn's logistic regression; all else is trained by the same Adam
for the same number of steps, from the same start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from anyloss import recipe
from anyloss._core.backend import Array
from anyloss._core.gradient import gradient
from anyloss.metrics import metric as find_metric
from anyloss.recipe.networks import Adam, Layers, backward, forward, new_layers
from anyloss.recipe.task import probabilities
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Step

STEPS, RATE, C = 1000, 0.03, 1.0  # fewer or larger steps leave the sharp losses half trained
Folds = list[tuple[Array, Array]]


class Split(NamedTuple):
    """One outer fold: standardised rows to fit and to test, the inner folds, the network."""

    X: Array
    y: Array
    test: Array
    folds: Folds
    other_folds: Folds  # for the null: the same rival with other inner folds
    hidden: tuple[int, ...]
    seed: int


class Outcome(NamedTuple):
    """What a method made of the test rows, for one metric."""

    method: str
    metric: str
    decision: Array
    probability: Array
    seconds: float


class Trained(NamedTuple):
    """Probabilities of the test rows, those of the inner folds' held-out rows, and the times."""

    test: Array
    held_out: Array
    seconds: float  # of the one fit on all rows
    with_folds: float  # of all fits


Family = Callable[[Split, Sequence[str]], Iterator[Outcome]]
Predict = Callable[[Array], Array]  # rows to probabilities
Train = Callable[[Array, Array, Split], Predict]
Slope = Callable[[Array, Array], Array]  # logits and labels to the gradient of the loss


def tuned_threshold(y: Array, p: Array, folds: Folds, metric: str) -> float:
    """The threshold that scikit-learn's TunedThresholdClassifierCV takes, from held-out `p`.

    Per fold the score at 100 thresholds, interpolated to common ones; the best mean wins. Here all
    thresholds of a fold are scored at once from sorted sums, which is the only difference.
    """
    at = [np.linspace(p[held].min(), p[held].max(), 100) for _, held in folds]
    common = np.linspace(min(x[0] for x in at), max(x[-1] for x in at), 100)
    curves = [
        np.interp(common, x, _curve(y[held], p[held], x, metric))
        for x, (_, held) in zip(at, folds, strict=True)
    ]
    return float(common[np.mean(curves, axis=0).argmax()])


def _curve(y: Array, p: Array, thresholds: Array, metric: str) -> Array:
    order = np.argsort(p)
    below = np.searchsorted(p[order], thresholds, side="left")
    fn = np.append(0.0, np.cumsum(y[order]))[below]
    tn = below - fn
    scores = find_metric(metric)(y.sum() - fn, fn, (1 - y).sum() - tn, tn)
    return np.broadcast_to(scores, thresholds.shape)


def scored(
    name: str,
    train: Callable[[Split, Folds], Trained],
    null: bool,
    split: Split,
    metrics: Sequence[str],
) -> Iterator[Outcome]:
    """A loss that does not know the metric: at 0.5, with a tuned threshold and, once, the null."""
    first = train(split, split.folds)
    for metric in metrics:
        yield Outcome(name, metric, first.test > 0.5, first.test, first.seconds)
    yield from _tuned(f"{name}_tuned", first, split.y, split.folds, metrics)
    if null:
        again = train(split, split.other_folds)
        yield from _tuned("null", again, split.y, split.other_folds, metrics)


def _tuned(
    name: str, found: Trained, y: Array, folds: Folds, metrics: Sequence[str]
) -> Iterator[Outcome]:
    for metric in metrics:
        start = time.perf_counter()
        threshold = tuned_threshold(y, found.held_out, folds, metric)
        seconds = found.with_folds + time.perf_counter() - start
        yield Outcome(name, metric, found.test >= threshold, found.test, seconds)


def _one_by_one(train: Train, split: Split, folds: Folds) -> Trained:
    """Fit on all rows, and on each inner fold."""
    start = time.perf_counter()
    test = train(split.X, split.y, split)(split.test)
    seconds = time.perf_counter() - start
    held_out = np.empty(len(split.y))
    for rows, held in folds:
        held_out[held] = train(split.X[rows], split.y[rows], split)(split.X[held])
    return Trained(test, held_out, seconds, time.perf_counter() - start)


def _cross_entropy(balanced: bool, split: Split, folds: Folds) -> Trained:
    if split.hidden:
        return _networks(balanced, split, folds)
    return _one_by_one(partial(_logistic, "balanced" if balanced else None), split, folds)


def _logistic(class_weight: str | None, X: Array, y: Array, split: Split) -> Predict:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=C, max_iter=1000, class_weight=class_weight).fit(X, y)
    return lambda rows: model.predict_proba(rows)[:, 1]


def balanced_weights(y: Array) -> Array:
    """Weights under which both classes weigh the same, 1 on average."""
    return np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y).mean())


def held_rows(folds: Folds, rows: int) -> Array:
    """Which rows each fold holds out, `(folds, rows)`."""
    held = np.zeros((len(folds), rows), dtype=bool)
    for k, (_, rest) in enumerate(folds):
        held[k, rest] = True
    return held


def _networks(balanced: bool, split: Split, folds: Folds) -> Trained:
    """Networks as our recipe starts them: the inner folds stop early and tell the last one when."""
    y, rng = split.y[:, None].astype(float), np.random.default_rng(split.seed)
    weight = balanced_weights(y[:, 0]) if balanced else np.ones(len(y))
    sizes = [split.X.shape[1], *split.hidden, 1]

    def trained(held: Array, steps: int) -> tuple[Layers, Array]:
        layers = new_layers(sizes, len(held), rng)
        begun = recipe.Start(layers, split.X, y, weight, "binary", held, C)
        return recipe.descend(begun, steps=steps)

    start = time.perf_counter()
    held = held_rows(folds, len(y))
    layers, best = trained(held, recipe.START_STEPS)
    held_out = probabilities(forward(layers, split.X)[-1][held, 0], "binary")
    ordered = np.empty(len(y))
    ordered[np.nonzero(held)[1]] = held_out
    middle = time.perf_counter()
    layers, _ = trained(np.zeros((1, len(y)), dtype=bool), round(best.mean()))
    test = probabilities(forward(layers, split.test)[-1][0, :, 0], "binary")
    end = time.perf_counter()
    return Trained(test, ordered, end - middle, end - start)


def _resampled(over: bool, X: Array, y: Array, split: Split) -> Predict:
    from imblearn.over_sampling import SMOTE
    from imblearn.under_sampling import RandomUnderSampler

    if over:
        sampler = SMOTE(k_neighbors=min(5, int(y.sum()) - 1), random_state=split.seed)
    else:
        sampler = RandomUnderSampler(random_state=split.seed)
    X, y = sampler.fit_resample(X, y)
    return _logistic(None, X, y, split)


def _descend(slope: Slope, X: Array, y: Array, split: Split) -> Predict:
    """Adam on any loss of the logits, from the same start for every method."""
    y = y.astype(float)
    sizes = [X.shape[1], *split.hidden, 1]
    layers = new_layers(sizes, 1, np.random.default_rng(split.seed))
    adam = Adam(layers, RATE, penalty=1 / (C * len(y)))
    values = None
    for _ in range(STEPS):
        values = forward(layers, X, values)
        adam.step(backward(layers, X, values, slope(values[-1][0, :, 0], y)[None, :, None]))
    return lambda rows: probabilities(forward(layers, rows)[-1][0, :, 0], "binary")


def mse_slope(z: Array, y: Array) -> Array:
    """The gradient of the mean squared error of the probabilities.

    >>> mse_slope(np.zeros(1), np.ones(1)).tolist()
    [-0.25]
    """
    p = probabilities(z, "binary")
    return 2 * (p - y) * p * (1 - p) / len(y)


def focal_slope(z: Array, y: Array) -> Array:
    """The gradient of the focal loss (Lin et al. 2017) with gamma 2: `(1 - q)^2 (-log q)`.

    `q` is the probability of the true class.

    >>> focal_slope(np.zeros(1), np.ones(1)).round(4).tolist()
    [-0.2983]
    """
    sign = 2 * y - 1
    loss = np.logaddexp(0.0, -sign * z)
    q = np.exp(-loss)
    return -sign * (1 - q) ** 2 * (1 - q + 2 * q * loss) / len(y)


def _surrogate_fbeta(X: Array, y: Array, split: Split) -> Predict:
    import torch

    from anyloss.torch import SurrogateFBetaLoss

    loss = SurrogateFBetaLoss(prior=float(y.mean()))

    def slope(z: Array, labels: Array) -> Array:
        logits = torch.from_numpy(z.copy()).requires_grad_()
        loss(logits, torch.from_numpy(labels)).backward()
        assert logits.grad is not None
        return logits.grad.numpy()

    return _descend(slope, X, y, split)


def _soft_metric(name: str, step: Step, split: Split, metrics: Sequence[str]) -> Iterator[Outcome]:
    """A soft metric as the loss, from a cold start, at 0.5: as the papers train."""
    for metric in metrics:
        start = time.perf_counter()

        def slope(z: Array, y: Array, metric: str = metric) -> Array:
            return -gradient(y, z, metric, step, from_logits=True)[1]

        test = _descend(slope, split.X, split.y, split)(split.test)
        yield Outcome(name, metric, test > 0.5, test, time.perf_counter() - start)


def _ours(split: Split, metrics: Sequence[str]) -> Iterator[Outcome]:
    """The recipe, as `AnyLossClassifier` runs it, and the vote before refinement.

    The start is shared by the metrics.
    """
    begin = time.perf_counter()
    begun = recipe.start(split.X, split.y, hidden=split.hidden, C=C, seed=split.seed)
    shared = time.perf_counter() - begin
    members = len(begun.held)
    for metric in metrics:
        begin = time.perf_counter()
        found = recipe.finish(begun, metric)
        test = (1 + found.decide(split.test)[:, 0]) / 2
        seconds = shared + time.perf_counter() - begin
        yield Outcome("anyloss", metric, test > 0.5, test, seconds)
        started = replace(found, layers=[x[:members] for x in found.layers])
        test = (1 + started.decide(split.test)[:, 0]) / 2
        yield Outcome("unrefined", metric, test > 0.5, test, shared)


def _each(train: Train) -> Callable[[Split, Folds], Trained]:
    return partial(_one_by_one, train)


FAMILIES: dict[str, Family] = {
    "bce": partial(scored, "bce", partial(_cross_entropy, False), True),
    "weighted": partial(scored, "weighted", partial(_cross_entropy, True), False),
    "focal": partial(scored, "focal", _each(partial(_descend, focal_slope)), False),
    "smote": partial(scored, "smote", _each(partial(_resampled, True)), False),
    "undersampling": partial(scored, "undersampling", _each(partial(_resampled, False)), False),
    "mse": partial(scored, "mse", _each(partial(_descend, mse_slope)), False),
    "surrogate_fbeta": partial(scored, "surrogate_fbeta", _each(_surrogate_fbeta), False),
    "sol": partial(_soft_metric, "sol", RaisedCosine(0.1)),
    "heaviside": partial(_soft_metric, "heaviside", Linear(0.2)),
    "sigmoid_f1": partial(_soft_metric, "sigmoid_f1", LogitSigmoid(1.0)),
    "published": partial(_soft_metric, "published", Amplified(73.0)),
    "anyloss": _ours,
}
MAIN = ("bce", "weighted", "published", "anyloss")


def families_for(model: str, metric: str) -> tuple[str, ...]:
    """All rivals for the linear model with F1 and MCC, the main ones elsewhere."""
    return tuple(FAMILIES) if model == "linear" and metric in ("f1", "mcc") else MAIN
