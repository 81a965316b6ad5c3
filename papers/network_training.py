"""AnyLoss's multi-layer perceptron by a clean protocol, with all folds and losses trained at once.

As in the paper and its code, a network has one hidden layer of two sigmoid units after batch
normalisation, and is trained by Adam for 100 epochs of shuffled batches. The authors made one
network per data set (or per loss) and trained it further through all ten folds, so that from the
second fold on it had seen the test rows. Some of their losses also used the size of the training
set in the place of the batch size. Here every fold and every loss starts from the same new weights.

The batch of a fold is gathered once for all losses. The losses are the last axis, so that one
batched product gives all hidden units. The derivatives of the losses are those of
`anyloss._core.gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyloss._core.backend import NUMPY, Array
from anyloss._core.counts import Counts
from anyloss._core.gradient import binary_derivatives
from anyloss.steps import Amplified, RaisedCosine, Step
from anyloss.torch.batch import BACKENDS
from papers import runs, slp
from papers.data import LabelledData

HIDDEN, EPOCHS, SEED = 2, 100, 100
BATCHES, FEW_BATCHES = 20, 2  # per epoch; 2 for the losses whose batches are half of the rows
BETAS, EPSILON = (0.9, 0.999), 1e-7  # of Adam, as in Keras
VARIANCE_EPSILON = 1e-3  # of batch normalisation, as in Keras
# By the part of a loss's name after L_ or S_: the metric that the loss aims at.
AIMED = dict(zip(("A", "F1", "F0.5", "F2", "G", "B"), slp.SCORES.values(), strict=True))
SETTINGS = {
    "model": "multi-layer perceptron, fresh weights for every fold and loss",
    "folds": slp.FOLDS,
    "seeds": {"folds": slp.SEED, "weights and batches": SEED},
    "hidden": HIDDEN,
    "epochs": EPOCHS,
    "batches per epoch": [BATCHES, FEW_BATCHES],
}


class LossSpec(NamedTuple):
    """A loss of the paper: MSE, BCE or one of AIMED with a step, and how it is trained."""

    aim: str
    step: Step
    rate: float
    batches: int = BATCHES


def loss_spec(name: str, rate: float, scale: float = slp.SCALE) -> LossSpec:
    """A loss by its name in the paper: MSE, BCE, L_F1, ... or S_A, S_F and S_B (score-oriented).

    >>> loss_spec("L_B", 0.005).batches, loss_spec("L_F2", 0.005).batches
    (2, 20)
    """
    step = RaisedCosine(0.1) if name.startswith("S_") else Amplified(scale)
    aim = "F1" if name == "S_F" else name.removeprefix("L_").removeprefix("S_")
    return LossSpec(aim, step, rate, FEW_BATCHES if name in ("L_G", "L_B") else BATCHES)


def scores(
    X: Array,
    y: Array,
    specs: Mapping[str, LossSpec],
    hidden: int = HIDDEN,
    epochs: int = EPOCHS,
    *,
    kept_weights: bool = False,
) -> dict[str, dict[str, float]]:
    """The mean test scores of the ten folds per loss and metric; `hidden` 0 is a linear model.

    `kept_weights` repeats the authors' flaw: one network per loss, trained further from fold to
    fold.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (np.hypot(*X.T) < 0.6).astype(float)
    >>> specs = {"BCE": loss_spec("BCE", 0.01), "L_F1": loss_spec("L_F1", 0.01)}
    >>> found = scores(X, y, specs, epochs=20)
    >>> found["L_F1"]["f1"] > found["BCE"]["f1"]
    True
    """
    folds = slp.paper_folds(y)
    rows, labels = (torch.from_numpy(x.astype(np.float32)) for x in (X, y))
    found: dict[str, dict[str, float]] = {}
    for batches in sorted({spec.batches for spec in specs.values()}):
        names = [name for name, spec in specs.items() if spec.batches == batches]
        decide = _decide_with_kept_weights if kept_weights else _decide
        with slp.one_thread():
            decisions = decide(rows, labels, folds, [specs[x] for x in names], hidden, epochs)
        for k, name in enumerate(names):
            each = slp.test_scores([decided[:, k] for decided in decisions], y, folds)
            found[name] = {key: float(values.mean()) for key, values in each.items()}
    return {name: found[name] for name in specs}


def job(
    name: str,
    read: Callable[[], LabelledData],
    specs: Mapping[str, LossSpec],
    key: Any,
    hidden: int = HIDDEN,
    *,
    kept_weights: bool = False,
) -> runs.Job:
    """Train with these losses; `key` identifies them in the journal."""
    train = partial(scores, specs=specs, hidden=hidden, kept_weights=kept_weights)
    return runs.Job(name, read, key, lambda X, y: runs.score_rows(train(X, y)))


def _decide(
    rows: Tensor, labels: Tensor, folds: slp.Folds, specs: list[LossSpec], hidden: int, epochs: int
) -> list[Array]:
    """Train, and decide on the test rows of each fold: a column per loss."""
    net = _Network(rows.shape[1], hidden, len(folds), len(specs))
    _fit(net, rows, labels, folds, specs, epochs)
    return [net.decisions(rows, k, *fold) for k, fold in enumerate(folds)]


def _decide_with_kept_weights(
    rows: Tensor, labels: Tensor, folds: slp.Folds, specs: list[LossSpec], hidden: int, epochs: int
) -> list[Array]:
    """The same with networks that are not reset between the folds."""
    net, found = _Network(rows.shape[1], hidden, 1, len(specs)), []
    for fold in folds:
        _fit(net, rows, labels, [fold], specs, epochs)
        found.append(net.decisions(rows, 0, *fold))
    return found


def _fit(
    net: _Network,
    rows: Tensor,
    labels: Tensor,
    folds: slp.Folds,
    specs: list[LossSpec],
    epochs: int,
) -> None:
    """Train all folds and losses at once by Adam."""
    logit_gradient = _LogitGradient(specs)
    rates = torch.tensor([spec.rate for spec in specs])
    first, second = torch.zeros_like(net.weights), torch.zeros_like(net.weights)
    for step, batch in enumerate(_batches(folds, specs[0].batches, epochs), start=1):
        logits = net.logits(rows[batch])
        d_logits = logit_gradient(logits.detach(), labels[batch])
        (gradient,) = torch.autograd.grad(logits, net.weights, d_logits)
        with torch.no_grad():
            first.lerp_(gradient, 1 - BETAS[0])
            second.lerp_(gradient.square(), 1 - BETAS[1])
            width = (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
            net.weights -= width * rates * first / (second.sqrt() + EPSILON)


def _batches(folds: slp.Folds, batches: int, epochs: int) -> Iterator[Tensor]:
    """The training rows of every fold, shuffled in each epoch: (folds, rows of the batch).

    Folds may differ by a row or two. The larger ones leave out as many, different ones per epoch.
    """
    shuffle = np.random.default_rng(SEED)
    size = min(len(rows) for rows, _ in folds)
    for _ in range(epochs):
        order = np.stack([shuffle.permutation(rows)[:size] for rows, _ in folds])
        yield from map(torch.from_numpy, np.array_split(order, batches, axis=1))


class _LogitGradient:
    """The gradient of every loss by the logits, in closed form (`anyloss._core.gradient`)."""

    def __init__(self, specs: list[LossSpec]) -> None:
        self.plain = [(k, spec.aim) for k, spec in enumerate(specs) if spec.aim not in AIMED]
        self.soft = soft = [k for k, spec in enumerate(specs) if spec.aim in AIMED]
        self.steps = _places([specs[k].step for k in soft])
        self.metrics = _places([specs[k].aim for k in soft])

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """Of the shape of the logits (folds, rows, losses), from labels (folds, rows)."""
        p, q = z.sigmoid(), z.neg().sigmoid()
        gradient = torch.empty_like(z)
        for k, name in self.plain:
            # MSE has a linear output, whose decision is at 0.5, that is at z = 0.
            error = p[..., k] - y if name == "BCE" else 2 * (z[..., k] + 0.5 - y)
            gradient[..., k] = error / y.shape[1]
        if self.soft:
            gradient[..., self.soft] = self._soft(p[..., self.soft], q[..., self.soft], y)
        return gradient

    def _soft(self, p: Tensor, q: Tensor, y: Tensor) -> Tensor:
        """The gradient of the soft metrics; `q` is 1 - p."""
        backend = BACKENDS[p.dtype]
        a, b, density = (torch.empty_like(p) for _ in range(3))
        for step, places in self.steps:
            pair = p[..., places], q[..., places]
            a[..., places], b[..., places] = step.both(*pair, backend)
            density[..., places] = step.density(*pair, backend)
        sides = torch.stack([y, 1 - y], 1)  # (folds, 2, rows): sums over positives and negatives
        tp, fp = np.moveaxis(torch.bmm(sides, a).double().numpy(), 1, 0)
        fn, tn = np.moveaxis(torch.bmm(sides, b).double().numpy(), 1, 0)
        derivatives = np.empty((len(y), 2, p.shape[2]), dtype=np.float32)
        for aim, places in self.metrics:
            counts = Counts(*(x[:, places] for x in (tp, fn, fp, tn)))
            found = binary_derivatives(counts, AIMED[aim], backend=NUMPY)
            derivatives[:, 0, places] = -found.d_positive
            derivatives[:, 1, places] = -found.d_negative
        return torch.bmm(sides.mT, torch.from_numpy(derivatives)) * density * p * q


def _places(items: list[Any]) -> list[tuple[Any, list[int]]]:
    """Each distinct item and its indices.

    >>> _places(["f1", "mcc", "f1"])
    [('f1', [0, 2]), ('mcc', [1])]
    """
    distinct = list(dict.fromkeys(items))
    return [(x, [k for k, item in enumerate(items) if item == x]) for x in distinct]


class _Network:
    """The networks of all folds and losses: one tensor of weights, with the losses last."""

    def __init__(self, columns: int, hidden: int, folds: int, losses: int) -> None:
        self.columns, self.hidden = columns, hidden
        start = torch.zeros(columns + 1) if hidden == 0 else _start(columns, hidden)
        shape = folds, len(start), losses
        self.weights = start[None, :, None].expand(shape).clone().requires_grad_()

    def _parts(self) -> tuple[Tensor, ...]:
        """Views: input weights (folds, columns, units, losses), then those of the hidden units."""
        units = max(self.hidden, 1)
        sizes = [self.columns * units, *[units] * (3 if self.hidden else 0), 1]
        first, *rest = torch.split(self.weights, sizes, dim=1)
        shape = len(first), self.columns, units, first.shape[-1]
        return first.reshape(shape), *(part[:, None] for part in rest)

    def logits(self, X: Tensor) -> Tensor:
        """The logits (folds, rows, losses) of a training batch (folds, rows, columns)."""
        first, *rest = self._parts()
        H = torch.bmm(X, first.flatten(2)).reshape(*X.shape[:2], *first.shape[2:])
        return self._output(H, H, rest)

    def _output(self, H: Tensor, own: Tensor, rest: list[Tensor]) -> Tensor:
        """The logits from units H (folds, rows, units, losses), normalised by the rows of `own`."""
        if not self.hidden:
            return H[:, :, 0] + rest[0][:, :, 0]
        variance, mean = torch.var_mean(own, 1, correction=0, keepdim=True)
        gain, shift, second, bias = rest
        scale = gain * (variance + VARIANCE_EPSILON).rsqrt()
        units = ((H - mean) * scale + shift).sigmoid()
        return (units * second).sum(2) + bias[:, :, 0]

    @torch.no_grad()
    def decisions(self, rows: Tensor, fold: int, train: Array, test: Array) -> Array:
        """The decisions on a fold's test rows, normalised by all of its training rows."""
        first, *rest = (part[fold : fold + 1] for part in self._parts())
        H = (rows @ first[0].flatten(1)).reshape(1, len(rows), *first.shape[2:])
        z = self._output(H[:, test], H[:, train], rest)
        return np.asarray((z[0] > 0).numpy())


def _start(columns: int, hidden: int) -> Tensor:
    """He's weights into the hidden units, gain 1 and shift 0, Glorot's out of them, bias 0."""
    generator = torch.Generator().manual_seed(SEED)
    into = torch.randn(columns * hidden, generator=generator) * (2 / columns) ** 0.5
    limit = (6 / (hidden + 1)) ** 0.5
    out = (torch.rand(hidden, generator=generator) * 2 - 1) * limit
    return torch.cat([into, torch.ones(hidden), torch.zeros(hidden), out, torch.zeros(1)])
