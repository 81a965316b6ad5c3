"""AnyLoss's single-layer perceptron, with all folds and all losses trained at once.

The protocol is deterministic: float64, a column of ones for the intercept, weights that start at
zero, and plain gradient steps on all training rows of the fold. A model is therefore a row of one
weight matrix. One product gives the logits of all models, and another one their gradients. The rows
are ordered with the positives first, because the gradient needs two sums only: the gradient of the
score is `d_positive * (sum over positives) + d_negative * (sum over negatives)`, with the
derivatives of the metric (see `_core/gradient.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts
from anyloss._core.gradient import binary_derivatives
from anyloss.metrics import METRICS, Metric, metric

SCALE = 73.0
EPOCHS = 1000
FOLDS, SEED = 10, 2
LOSSES = ("MSE", "BCE", "L_A", "L_F1", "L_F0.5", "L_F2", "L_G", "L_B")
SCORES = {
    "accuracy": metric("accuracy"),
    "f1": metric("f1"),
    "f0.5": metric("fbeta", beta=0.5),
    "f2": metric("fbeta", beta=2),
    "gmean": metric("gmean"),
    "balanced_accuracy": metric("balanced_accuracy"),
}
PLAIN = ("MSE", "BCE")
BETAS = {"L_F1": 1.0, "L_F0.5": 0.5, "L_F2": 2.0}
# Equation 19 of the paper, and its code, have the factor 2 where the root's derivative has 1/2.
FACTORS = {"L_G": 4.0}
LINEAR = {"L_A": "accuracy", "L_B": "balanced_accuracy"}  # metrics with constant derivatives
SETTINGS = {
    "model": "single-layer perceptron",
    "folds": FOLDS,
    "seed": SEED,
    "epochs": EPOCHS,
    "scale": SCALE,
    "factors": FACTORS,
}
NUMBERS = 2**17  # per block of rows: larger blocks leave the cache, smaller ones need more calls

SHIFT = torch.tensor(-SCALE / 2, dtype=torch.float64)
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input

Folds = Sequence[tuple[Array, Array]]


def paper_folds(y: Array) -> list[tuple[Array, Array]]:
    """The ten stratified folds of the paper, as pairs of training rows and test rows."""
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y)
    return list(split)


def with_intercept(X: Array) -> Array:
    """The rows with a first column of ones."""
    return np.column_stack([np.ones(len(X)), X])


def scores(
    X: Array, y: Array, rates: Mapping[str, float], epochs: int = EPOCHS
) -> dict[str, dict[str, float]]:
    """The mean test scores of the ten folds per loss and metric; `rates` are learning rates.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X[:, 0] + rng.normal(size=200) > 1).astype(float)
    >>> found = scores(X, y, {"BCE": 0.1, "L_F1": 0.01}, epochs=20)
    >>> found["L_F1"]["f1"] > found["BCE"]["f1"]
    True
    """
    X, folds = with_intercept(X), paper_folds(y)
    weights = train(X, y, folds, rates, epochs)
    return {
        loss: {name: float(values.mean()) for name, values in fold_scores(w, X, y, folds).items()}
        for loss, w in weights.items()
    }


def fold_scores(weights: Array, X: Array, y: Array, folds: Folds) -> dict[str, Array]:
    """The test score of each fold per metric, decided at logit 0 (probability 0.5)."""
    decisions = [X[test] @ w > 0 for w, (_, test) in zip(weights, folds, strict=True)]
    return test_scores(decisions, y, folds)


def test_scores(decisions: Sequence[Array], y: Array, folds: Folds) -> dict[str, Array]:
    """The score of each fold per metric, from the decisions on its test rows."""
    cells = []
    for decision, (_, test) in zip(decisions, folds, strict=True):
        truth = y[test] > 0
        pairs = ((decision, truth), (~decision, truth), (decision, ~truth), (~decision, ~truth))
        cells.append([float((a & b).sum()) for a, b in pairs])
    tp, fn, fp, tn = np.array(cells).T
    return {name: chosen(tp, fn, fp, tn) for name, chosen in SCORES.items()}


def train(
    X: Array, y: Array, folds: Folds, rates: Mapping[str, float], epochs: int = EPOCHS
) -> dict[str, Array]:
    """Weights of shape `(folds, columns)` per loss; `X` includes the column of the intercept."""
    with one_thread(), torch.inference_mode():
        return next(islice(steps(X, y, folds, rates), epochs, None))


def steps(
    X: Array, y: Array, folds: Folds, rates: Mapping[str, float]
) -> Iterator[dict[str, Array]]:
    """Yield the weights before the first step, after it, after the second step, and so on.

    The iterator does not end, and each step changes the arrays that were yielded before.
    """
    unknown = [loss for loss in rates if loss not in LOSSES]
    if unknown or not rates:
        raise ValueError(f"losses must be among {', '.join(LOSSES)}; got {unknown or 'none'}")
    y = np.asarray(y, dtype=float)
    order = (*PLAIN, *LINEAR, *BETAS, "L_G")
    losses = [loss for loss in order if loss in rates]
    batch = _Batch(X, y, folds, losses)
    rate = torch.tensor([rates[loss] for loss in losses], dtype=torch.float64)
    rate = rate.repeat_interleave(len(folds))[:, None]
    weights = torch.zeros(len(rate), X.shape[1], dtype=torch.float64)
    parts = weights.numpy().reshape(len(losses), len(folds), -1)
    found = dict(zip(losses, parts, strict=True))
    shown = {loss: found[loss] for loss in rates}
    while True:
        yield shown
        weights -= rate * batch.gradient(weights)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, because a second one slows down products this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Block(NamedTuple):
    """A block of rows, its positives first, and for which folds they are training rows."""

    transposed: Tensor  # (columns, rows)
    mask: Tensor  # (folds, rows): 1 for a training row of the fold, 0 for a test row
    positives: int


def _blocks(X: Array, y: Array, mask: Array, models: int) -> Iterator[_Block]:
    """The rows, positives first, in blocks that fit the cache."""
    order = np.argsort(-y, kind="stable")
    X, mask, positives = X[order], mask[:, order], int(y.sum())
    size = max(NUMBERS // models, 1)
    for start in range(0, len(X), size):
        part = slice(start, min(start + size, len(X)))
        split = min(max(positives, part.start), part.stop) - part.start
        transposed, here = (torch.from_numpy(x.copy()) for x in (X[part].T, mask[:, part]))
        yield _Block(transposed, here, split)


class _Group(NamedTuple):
    """Adjacent losses that share one metric, and the factor of its derivatives."""

    part: slice
    metric: Metric
    factor: float


def _groups(losses: list[str]) -> Iterator[_Group]:
    """The losses of AnyLoss by metric; those of F-beta share one metric with an array of betas."""
    shared = [loss for loss in losses if loss in BETAS]
    betas = np.array([[BETAS[loss]] for loss in shared])

    def fbeta(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
        return METRICS["fbeta"](tp, fn, fp, tn, beta=betas)

    single = [([loss], metric(name)) for loss, name in {**LINEAR, "L_G": "gmean"}.items()]
    for names, chosen in (*single, (shared, Metric("fbeta", fbeta))):
        if names and names[0] in losses:
            start = losses.index(names[0])
            factor = -SCALE * FACTORS.get(names[0], 1.0)
            yield _Group(slice(start, start + len(names)), chosen, factor)


class _Batch:
    """The models of a data set, ordered by loss, with one model per fold."""

    def __init__(self, X: Array, y: Array, folds: Folds, losses: list[str]) -> None:
        mask = np.zeros((len(folds), len(y)))
        for k, (rows, _) in enumerate(folds):
            mask[k, rows] = 1.0
        self.folds, models = len(folds), len(folds) * len(losses)
        self.blocks = list(_blocks(X, y, mask, models))
        numbers = models * max(block.mask.shape[1] for block in self.blocks)
        self.scratch = torch.empty(3, numbers, dtype=torch.float64)
        # The numbers of losses before those with a sigmoid, and before those of AnyLoss.
        self.mse, self.plain = (len({*names} & {*losses}) for names in (PLAIN[:1], PLAIN))
        self.positives, rows = mask @ y, mask.sum(1)
        self.negatives = rows - self.positives
        # The factors of the two sums: 1 / rows for MSE and BCE, else the derivatives of the metric.
        self.factors = np.tile(1 / rows, (2, len(losses), 1))
        groups = list(_groups(losses))
        self._update_factors(np.zeros((2, len(losses), self.folds)), groups)
        self.changing = [group for group in groups if group.metric.name not in LINEAR.values()]

    def gradient(self, weights: Tensor) -> Tensor:
        """The gradient of every model's loss, of the shape of the weights."""
        sums = torch.zeros(2, *weights.T.shape, dtype=torch.float64)
        soft = torch.zeros(2, len(weights), dtype=torch.float64)
        first = self.plain * self.folds
        for block in self.blocks:
            signal, decisions = self._signals(weights, block)  # views of the scratch memory
            ends = 0, block.positives, signal.shape[1]
            for k in (0, 1):
                part = slice(ends[k], ends[k + 1])
                if part.start < part.stop:
                    sums[k].addmm_(block.transposed[:, part], signal[:, part].T)
                    soft[k, first:] += decisions[:, part].sum(1)
        self._update_factors(soft.numpy().reshape(2, -1, self.folds), self.changing)
        factors = torch.from_numpy(self.factors.reshape(2, 1, -1))
        return torch.addcmul(factors[0] * sums[0], factors[1], sums[1]).T

    def _signals(self, weights: Tensor, block: _Block) -> tuple[Tensor, Tensor]:
        """The term of each row in the sums of each model, and AnyLoss's soft decisions."""
        shape = -1, self.folds, block.mask.shape[1]
        models, size = len(weights), block.mask.shape[1]
        z, a, derivative = (x[: models * size].view(shape) for x in self.scratch)
        torch.mm(weights, block.transposed, out=z.view(models, size))
        split, mse, plain = block.positives, self.mse, self.plain
        z[mse:].sigmoid_()
        z[:plain, :, :split] -= 1.0  # the targets of MSE are +1 and -1, those of BCE 1 and 0
        z[:mse, :, split:] += 1.0
        z[:plain] *= block.mask
        p, a, derivative = z[plain:], a[plain:], derivative[plain:]
        torch.add(SHIFT, p, alpha=SCALE, out=a).sigmoid_()
        # The derivative of both sigmoids, p (1 - p) a (1 - a), and 0 for the test rows of a fold.
        sigmoid_backward(block.mask.expand(p.shape), a, grad_input=derivative)
        sigmoid_backward(derivative, p, grad_input=p)
        a *= block.mask
        return z.view(models, size), a.view(-1, size)

    def _counts(self, soft: Array) -> Counts:
        return Counts(soft[0], self.positives - soft[0], soft[1], self.negatives - soft[1])

    def _update_factors(self, soft: Array, groups: list[_Group]) -> None:
        """Set the factors to the derivatives of the losses at these sums of soft decisions."""
        for part, chosen, factor in groups:
            found = binary_derivatives(self._counts(soft[:, part]), chosen, backend=NUMPY)
            self.factors[0, part] = factor * found.d_positive
            self.factors[1, part] = factor * found.d_negative
