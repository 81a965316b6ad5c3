"""The baselines and our method: each trains on one outer fold and predicts its test rows.

A family is a group of methods that share a fit. A loss that does not depend on the metric is
trained once for all metrics and gives two methods: the decision at 0.5 and the decision at a tuned
threshold. Cross-entropy, class-weighted cross-entropy and the resampling methods use
scikit-learn's logistic regression as their linear model. All other losses are trained by the same
Adam, for the same number of steps, from the same start.

docs/add_a_baseline.md explains how to add a baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.functions import gradient
from anyloss.metrics import metric as find_metric
from anyloss.recipe import numpy_models
from anyloss.recipe.networks import Adam, Layers, backward, forward, new_layers
from anyloss.recipe.target import probabilities
from anyloss.steps import Amplified, Linear, LogitSigmoid, RaisedCosine, Step

STEPS, RATE, C = 1000, 0.03, 1.0  # with fewer or larger steps, steep losses do not converge
Folds = list[tuple[Array, Array]]


class Split(NamedTuple):
    """One outer fold: standardised training and test rows, inner folds, and network sizes."""

    X: Array  # of the training rows, like `y`
    y: Array
    test: Array
    folds: Folds
    other_folds: Folds  # of the method "null": the same baseline with other inner folds
    hidden: tuple[int, ...]
    seed: int
    groups: Array | None = None  # of the training rows; those of a group stay in one fold


class Predictions(NamedTuple):
    """The decisions and probabilities of one method for the test rows, and its fitting time."""

    method: str
    metric: str
    decision: Array
    probability: Array
    seconds: float


class Trained(NamedTuple):
    """The probabilities of the test rows and of the held-out rows, and the fitting times."""

    test: Array
    held_out: Array  # each training row, predicted by the model of the inner fold that held it out
    seconds: float  # of the one fit on all training rows
    with_folds: float  # of all fits
    model: Any = None  # what predicts the test rows: an estimator, layers, or a library's model


Family = Callable[[Split, Sequence[str]], Iterator[Predictions]]
Predict = Callable[[Array], Array]  # from rows to probabilities
Train = Callable[[Array, Array, Split], Predict]
TrainOnFolds = Callable[[Split, Folds], Trained]
LossGradient = Callable[[Array, Array], Array]  # from logits and labels to d loss / d logit


def tuned_threshold(y: Array, p: Array, folds: Folds, metric: str) -> float:
    """The threshold that scikit-learn's `TunedThresholdClassifierCV` chooses, from held-out `p`.

    Each fold is scored at 100 thresholds, the scores are interpolated to common thresholds, and
    the threshold with the best mean score is chosen. The only difference is that here all
    thresholds of a fold are scored at once from sorted sums.
    """
    at = [np.linspace(p[held].min(), p[held].max(), 100) for _, held in folds]
    common = np.linspace(min(x[0] for x in at), max(x[-1] for x in at), 100)
    curves = [
        np.interp(common, x, _curve(y[held], p[held], x, metric))
        for x, (_, held) in zip(at, folds, strict=True)
    ]
    return float(common[np.mean(curves, axis=0).argmax()])


def _curve(y: Array, p: Array, thresholds: Array, metric: str) -> Array:
    """The score at each threshold."""
    order = np.argsort(p)
    below = np.searchsorted(p[order], thresholds, side="left")
    fn = np.append(0.0, np.cumsum(y[order]))[below]
    tn = below - fn
    scores = find_metric(metric)(y.sum() - fn, fn, (1 - y).sum() - tn, tn)
    return np.broadcast_to(scores, thresholds.shape)


def default_and_tuned(
    name: str, train: TrainOnFolds, null: bool, split: Split, metrics: Sequence[str]
) -> Iterator[Predictions]:
    """A loss that does not depend on the metric: decisions at 0.5 and at a tuned threshold.

    With `null`, the tuned threshold is repeated with other inner folds, as the method "null", whose
    difference from the tuned threshold is noise alone.
    """
    first = train(split, split.folds)
    for metric in metrics:
        yield Predictions(name, metric, first.test > 0.5, first.test, first.seconds)
    yield from _tuned(f"{name}_tuned", first, split.y, split.folds, metrics)
    if null:
        again = train(split, split.other_folds)
        yield from _tuned("null", again, split.y, split.other_folds, metrics)


def _tuned(
    name: str, found: Trained, y: Array, folds: Folds, metrics: Sequence[str]
) -> Iterator[Predictions]:
    """The decisions at the threshold that is tuned on the held-out rows, for each metric."""
    for metric in metrics:
        start = time.perf_counter()
        threshold = tuned_threshold(y, found.held_out, folds, metric)
        seconds = found.with_folds + time.perf_counter() - start
        yield Predictions(name, metric, found.test >= threshold, found.test, seconds)


def fit_all_and_folds(train: Train, split: Split, folds: Folds) -> Trained:
    """Fit on all training rows, and once more for each inner fold."""
    start = time.perf_counter()
    whole = train(split.X, split.y, split)
    test = whole(split.test)
    seconds = time.perf_counter() - start
    held_out = np.zeros((len(split.y), *test.shape[1:]))
    for rows, held in folds:
        held_out[held] = train(split.X[rows], split.y[rows], split)(split.X[held])
    return Trained(test, held_out, seconds, time.perf_counter() - start, whole)


def _cross_entropy(balanced: bool, split: Split, folds: Folds) -> Trained:
    """Cross-entropy with or without balanced class weights, linear or with hidden layers."""
    if split.hidden:
        return _networks(balanced, split, folds)
    return fit_all_and_folds(partial(_logistic, "balanced" if balanced else None), split, folds)


def _logistic(class_weight: str | None, X: Array, y: Array, split: Split) -> Predict:
    """scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return Logistic(LogisticRegression(C=C, max_iter=1000, class_weight=class_weight).fit(X, y))


@dataclass(frozen=True)
class Logistic:
    """The probabilities of a fitted logistic regression."""

    estimator: Any

    def __call__(self, rows: Array) -> Array:
        return self.estimator.predict_proba(rows)[:, 1]


def balanced_weights(y: Array) -> Array:
    """Weights that give both classes the same total weight, with mean 1."""
    return np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y).mean())


def held_out_mask(folds: Folds, rows: int) -> Array:
    """Which rows each fold holds out, as a mask of shape `(folds, rows)`."""
    held = np.zeros((len(folds), rows), dtype=bool)
    for k, (_, rest) in enumerate(folds):
        held[k, rest] = True
    return held


def _networks(balanced: bool, split: Split, folds: Folds) -> Trained:
    """Networks for two classes."""
    y = split.y[:, None].astype(float)
    weight = balanced_weights(split.y) if balanced else np.ones(len(y))
    found = networks(y, weight, "binary", split, folds)
    return found._replace(test=found.test[:, 0], held_out=found.held_out[:, 0])


def networks(y: Array, weight: Array, task: str, split: Split, folds: Folds) -> Trained:
    """Networks for labels `(rows, columns)`, trained as at the start of our recipe.

    The networks of the inner folds stop early. The network on all training rows takes their mean
    number of steps.
    """
    rng, columns = np.random.default_rng(split.seed), y.shape[1]
    sizes = [split.X.shape[1], *split.hidden, columns]

    def trained(held: Array, steps: int) -> tuple[Layers, Array]:
        layers = new_layers(sizes, len(held), rng)
        initial = numpy_models.Started(layers, split.X, y, weight, task, held, C)
        return numpy_models.train_cross_entropy(initial, steps=steps)

    start = time.perf_counter()
    held = held_out_mask(folds, len(y))
    layers, best = trained(held, numpy_models.START_STEPS)
    ordered = np.zeros((len(y), columns))
    ordered[np.nonzero(held)[1]] = probabilities(forward(layers, split.X)[-1][held], task)
    middle = time.perf_counter()
    layers, _ = trained(np.zeros((1, len(y)), dtype=bool), round(best.mean()))
    test = probabilities(forward(layers, split.test)[-1][0], task)
    end = time.perf_counter()
    return Trained(test, ordered, end - middle, end - start, layers)


def _resampled(over: bool, X: Array, y: Array, split: Split) -> Predict:
    """Logistic regression on rows that SMOTE or undersampling has balanced."""
    from imblearn.over_sampling import SMOTE
    from imblearn.under_sampling import RandomUnderSampler

    if over:
        sampler = SMOTE(k_neighbors=min(5, int(y.sum()) - 1), random_state=split.seed)
    else:
        sampler = RandomUnderSampler(random_state=split.seed)
    X, y = sampler.fit_resample(X, y)
    return _logistic(None, X, y, split)


def train_with_adam(gradient_of: LossGradient, X: Array, y: Array, split: Split) -> Predict:
    """Minimise any loss of the logits by Adam, from the same start for every method."""
    y = y.astype(float)
    sizes = [X.shape[1], *split.hidden, 1]
    layers = new_layers(sizes, 1, np.random.default_rng(split.seed))
    adam = Adam(layers, RATE, penalty=1 / (C * len(y)))
    values = None
    for _ in range(STEPS):
        values = forward(layers, X, values)
        d_logits = gradient_of(values[-1][0, :, 0], y)
        adam.step(backward(layers, X, values, d_logits[None, :, None]))
    return lambda rows: probabilities(forward(layers, rows)[-1][0, :, 0], "binary")


def mse_gradient(z: Array, y: Array) -> Array:
    """The gradient of the mean squared error of the probabilities by the logits.

    >>> mse_gradient(np.zeros(1), np.ones(1)).tolist()
    [-0.25]
    """
    p = probabilities(z, "binary")
    return 2 * (p - y) * p * (1 - p) / len(y)


def focal_gradient(z: Array, y: Array) -> Array:
    """The gradient of the focal loss (Lin et al. 2017) with gamma 2 by the logits.

    The loss of a sample is `(1 - q)^2 (-log q)`, where `q` is the probability of its true class.

    >>> focal_gradient(np.zeros(1), np.ones(1)).round(4).tolist()
    [-0.2983]
    """
    sign = 2 * y - 1
    loss = np.logaddexp(0.0, -sign * z)
    q = np.exp(-loss)
    return -sign * (1 - q) ** 2 * (1 - q + 2 * q * loss) / len(y)


def _surrogate_fbeta(X: Array, y: Array, split: Split) -> Predict:
    """The surrogate F-beta loss with beta 1."""
    import torch

    from anyloss.torch import SurrogateFBetaLoss

    loss = SurrogateFBetaLoss(positive_share=float(y.mean()))

    def gradient_of(z: Array, labels: Array) -> Array:
        logits = torch.from_numpy(z.copy()).requires_grad_()
        loss(logits, torch.from_numpy(labels)).backward()
        assert logits.grad is not None
        return logits.grad.numpy()

    return train_with_adam(gradient_of, X, y, split)


def _soft_metric(
    name: str, step: Step, split: Split, metrics: Sequence[str]
) -> Iterator[Predictions]:
    """A soft metric as the loss, from random weights, with decisions at 0.5, as in the papers."""
    for metric in metrics:
        start = time.perf_counter()

        def gradient_of(z: Array, y: Array, metric: str = metric) -> Array:
            return -gradient(y, z, metric, step, from_logits=True)[1]

        test = train_with_adam(gradient_of, split.X, split.y, split)(split.test)
        yield Predictions(name, metric, test > 0.5, test, time.perf_counter() - start)


def _anyloss(split: Split, metrics: Sequence[str]) -> Iterator[Predictions]:
    """The recipe of `AnyLossClassifier`, and its ensemble before refinement ("unrefined").

    All metrics share the models of the cross-entropy start.
    """
    begin = time.perf_counter()
    initial = numpy_models.start(
        split.X, split.y, groups=split.groups, hidden=split.hidden, C=C, seed=split.seed
    )
    shared = time.perf_counter() - begin
    members = len(initial.held)
    for metric in metrics:
        begin = time.perf_counter()
        found = numpy_models.finish(initial, metric)
        test = (1 + found.decide(split.test)[:, 0]) / 2
        seconds = shared + time.perf_counter() - begin
        yield Predictions("anyloss", metric, test > 0.5, test, seconds)
        unrefined = replace(found, layers=[x[:members] for x in found.layers])
        test = (1 + unrefined.decide(split.test)[:, 0]) / 2
        yield Predictions("unrefined", metric, test > 0.5, test, shared)


def each_fold(train: Train) -> TrainOnFolds:
    """A function that trains on rows, as one that trains on a split and its inner folds."""
    return partial(fit_all_and_folds, train)


# Losses that do not depend on the metric: two methods each, at 0.5 and with a tuned threshold.
LOSSES: dict[str, TrainOnFolds] = {
    "bce": partial(_cross_entropy, False),
    "weighted": partial(_cross_entropy, True),
    "focal": each_fold(partial(train_with_adam, focal_gradient)),
    "smote": each_fold(partial(_resampled, True)),
    "undersampling": each_fold(partial(_resampled, False)),
    "mse": each_fold(partial(train_with_adam, mse_gradient)),
    "surrogate_fbeta": each_fold(_surrogate_fbeta),
}
# The steps of other papers: one method each, a soft metric that is trained from random weights.
SOFT_STEPS: dict[str, Step] = {
    "sol": RaisedCosine(0.1),
    "heaviside": Linear(0.2),
    "sigmoid_f1": LogitSigmoid(1.0),
    "published": Amplified(73.0),
}
FAMILIES: dict[str, Family] = {
    **{x: partial(default_and_tuned, x, train, x == "bce") for x, train in LOSSES.items()},
    **{x: partial(_soft_metric, x, step) for x, step in SOFT_STEPS.items()},
    "anyloss": _anyloss,
}
MAIN = ("bce", "weighted", "published", "anyloss")


def families_for(model: str, metric: str) -> tuple[str, ...]:
    """The default families: all for the linear model with F1 or MCC, else those of `MAIN`."""
    return tuple(FAMILIES) if model == "linear" and metric in ("f1", "mcc") else MAIN
