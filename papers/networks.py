"""AnyLoss's multi-layer perceptron by a clean protocol, all folds and losses trained at once.

One hidden layer of two sigmoid nodes with batch normalisation before them, Adam, 100 epochs of
shuffled batches: so say the paper and its code. The authors built one network per data set (or per
loss) and trained it on through all ten folds, so that from the second fold on it had seen the test
rows; and the size of the training set stood for that of the batch in some losses. Here every
fold and every loss starts from the same fresh weights.

A fold's batch is gathered once for all losses: with the losses as the last axis, one batched
product gives all hidden nodes, and the slopes of the losses are those of `anyloss._core.gradient`.
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
from anyloss._core.gradient import binary_slopes
from anyloss.steps import Amplified, RaisedCosine, Step
from anyloss.torch.batch import BACKENDS
from papers import runs, slp
from papers.data import Rows

HIDDEN, EPOCHS, SEED = 2, 100, 100
BATCHES, FEW_BATCHES = 20, 2  # an epoch's; few for the losses that the paper gives half of the rows
BETAS, TINY = (0.9, 0.999), 1e-7  # Adam's, as in Keras
SHRINK = 1e-3  # added to the variance in batch normalisation, as in Keras
# What stands behind L_ and S_ in the name of a loss: the metric that it aims at.
AIMED = dict(zip(("A", "F1", "F0.5", "F2", "G", "B"), slp.SCORES.values(), strict=True))
SETTINGS = {
    "model": "multi-layer perceptron, fresh weights for every fold and loss",
    "folds": slp.FOLDS,
    "seeds": {"folds": slp.SEED, "weights and batches": SEED},
    "hidden": HIDDEN,
    "epochs": EPOCHS,
    "batches per epoch": [BATCHES, FEW_BATCHES],
}


class Goal(NamedTuple):
    """What a network is trained for: MSE, BCE, or one of AIMED under a step, and how."""

    aim: str
    step: Step
    rate: float
    batches: int = BATCHES


def goal(name: str, rate: float, scale: float = slp.SCALE) -> Goal:
    """A loss by its name in the paper: MSE, BCE, L_F1, ... or S_A, S_F and S_B (score-oriented).

    >>> goal("L_B", 0.005).batches, goal("L_F2", 0.005).batches
    (2, 20)
    """
    step = RaisedCosine(0.1) if name.startswith("S_") else Amplified(scale)
    aim = "F1" if name == "S_F" else name.removeprefix("L_").removeprefix("S_")
    return Goal(aim, step, rate, FEW_BATCHES if name in ("L_G", "L_B") else BATCHES)


def scores(
    X: Array,
    y: Array,
    goals: Mapping[str, Goal],
    hidden: int = HIDDEN,
    epochs: int = EPOCHS,
    *,
    kept: bool = False,
) -> dict[str, dict[str, float]]:
    """The mean test scores of the ten folds per goal and metric; `hidden` 0 is a linear model.

    `kept` is the authors' flaw: one network per goal, trained on from fold to fold.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (np.hypot(*X.T) < 0.6).astype(float)
    >>> found = scores(X, y, {"BCE": goal("BCE", 0.01), "L_F1": goal("L_F1", 0.01)}, epochs=20)
    >>> found["L_F1"]["f1"] > found["BCE"]["f1"]
    True
    """
    folds = slp.paper_folds(y)
    rows, labels = (torch.from_numpy(x.astype(np.float32)) for x in (X, y))
    found: dict[str, dict[str, float]] = {}
    for batches in sorted({goal.batches for goal in goals.values()}):
        names = [name for name, goal in goals.items() if goal.batches == batches]
        decide = _kept if kept else _fresh
        with slp.one_thread():
            decisions = decide(rows, labels, folds, [goals[x] for x in names], hidden, epochs)
        for k, name in enumerate(names):
            each = slp.test_scores([decided[:, k] for decided in decisions], y, folds)
            found[name] = {key: float(values.mean()) for key, values in each.items()}
    return {name: found[name] for name in goals}


def job(
    name: str,
    read: Callable[[], Rows],
    goals: Mapping[str, Goal],
    key: Any,
    hidden: int = HIDDEN,
    *,
    kept: bool = False,
) -> runs.Job:
    """Train for these goals; the key tells them in a journal."""
    train = partial(scores, goals=goals, hidden=hidden, kept=kept)
    return runs.Job(name, read, key, lambda X, y: runs.score_rows(train(X, y)))


def _fresh(
    rows: Tensor, labels: Tensor, folds: slp.Folds, goals: list[Goal], hidden: int, epochs: int
) -> list[Array]:
    """The decisions on the test rows of each fold, a column per goal."""
    net = _Network(rows.shape[1], hidden, len(folds), len(goals))
    _fit(net, rows, labels, folds, goals, epochs)
    return [net.decisions(rows, k, *fold) for k, fold in enumerate(folds)]


def _kept(
    rows: Tensor, labels: Tensor, folds: slp.Folds, goals: list[Goal], hidden: int, epochs: int
) -> list[Array]:
    """The same, of networks that are not reset between the folds."""
    net, found = _Network(rows.shape[1], hidden, 1, len(goals)), []
    for fold in folds:
        _fit(net, rows, labels, [fold], goals, epochs)
        found.append(net.decisions(rows, 0, *fold))
    return found


def _fit(
    net: _Network, rows: Tensor, labels: Tensor, folds: slp.Folds, goals: list[Goal], epochs: int
) -> None:
    """Adam for all folds and goals at once."""
    pull = _Pull(goals)
    rates = torch.tensor([goal.rate for goal in goals])
    first, second = torch.zeros_like(net.weights), torch.zeros_like(net.weights)
    for step, batch in enumerate(_batches(folds, goals[0].batches, epochs), start=1):
        logits = net.logits(rows[batch])
        (slope,) = torch.autograd.grad(logits, net.weights, pull(logits.detach(), labels[batch]))
        with torch.no_grad():
            first.lerp_(slope, 1 - BETAS[0])
            second.lerp_(slope.square(), 1 - BETAS[1])
            width = (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
            net.weights -= width * rates * first / (second.sqrt() + TINY)


def _batches(folds: slp.Folds, batches: int, epochs: int) -> Iterator[Tensor]:
    """Training rows of every fold, shuffled anew in each epoch: (folds, rows of the batch).

    Folds may differ by a row or two: the longer ones leave out as many, others in each epoch.
    """
    shuffle = np.random.default_rng(SEED)
    size = min(len(rows) for rows, _ in folds)
    for _ in range(epochs):
        order = np.stack([shuffle.permutation(rows)[:size] for rows, _ in folds])
        yield from map(torch.from_numpy, np.array_split(order, batches, axis=1))


class _Pull:
    """The gradient of every goal's loss by the logits, in closed form (`_core.gradient`)."""

    def __init__(self, goals: list[Goal]) -> None:
        self.plain = [(k, goal.aim) for k, goal in enumerate(goals) if goal.aim not in AIMED]
        self.soft = soft = [k for k, goal in enumerate(goals) if goal.aim in AIMED]
        self.steps = _places([goals[k].step for k in soft])
        self.metrics = _places([goals[k].aim for k in soft])

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """Of the shape of the logits (folds, rows, goals); labels are (folds, rows)."""
        p, q = z.sigmoid(), z.neg().sigmoid()
        pull = torch.empty_like(z)
        for k, name in self.plain:
            # The decision of MSE's linear output is at 0.5, that is at z = 0.
            error = p[..., k] - y if name == "BCE" else 2 * (z[..., k] + 0.5 - y)
            pull[..., k] = error / y.shape[1]
        if self.soft:
            pull[..., self.soft] = self._soft(p[..., self.soft], q[..., self.soft], y)
        return pull

    def _soft(self, p: Tensor, q: Tensor, y: Tensor) -> Tensor:
        backend = BACKENDS[p.dtype]
        a, b, slope = (torch.empty_like(p) for _ in range(3))
        for step, places in self.steps:
            pair = p[..., places], q[..., places]
            a[..., places], b[..., places] = step.both(*pair, backend)
            slope[..., places] = step.density(*pair, backend)
        sides = torch.stack([y, 1 - y], 1)  # (folds, 2, rows): sums over positives and negatives
        tp, fp = np.moveaxis(torch.bmm(sides, a).double().numpy(), 1, 0)
        fn, tn = np.moveaxis(torch.bmm(sides, b).double().numpy(), 1, 0)
        worth = np.empty((len(y), 2, p.shape[2]), dtype=np.float32)
        for aim, places in self.metrics:
            counts = Counts(*(x[:, places] for x in (tp, fn, fp, tn)))
            found = binary_slopes(counts, AIMED[aim], backend=NUMPY)
            worth[:, 0, places], worth[:, 1, places] = -found.A, -found.B
        return torch.bmm(sides.mT, torch.from_numpy(worth)) * slope * p * q


def _places(things: list[Any]) -> list[tuple[Any, list[int]]]:
    """Each thing once, and where it stands.

    >>> _places(["f1", "mcc", "f1"])
    [('f1', [0, 2]), ('mcc', [1])]
    """
    known = list(dict.fromkeys(things))
    return [(x, [k for k, thing in enumerate(things) if thing == x]) for x in known]


class _Network:
    """The networks of all folds and goals: one tensor of weights, with the goals as last axis."""

    def __init__(self, columns: int, hidden: int, folds: int, goals: int) -> None:
        self.columns, self.hidden = columns, hidden
        start = _linear_start(columns) if hidden == 0 else _start(columns, hidden)
        shape = folds, len(start), goals
        self.weights = start[None, :, None].expand(shape).clone().requires_grad_()

    def _parts(self) -> tuple[Tensor, ...]:
        """Views: input weights (folds, columns, nodes, goals), then those of the hidden nodes."""
        nodes = max(self.hidden, 1)
        sizes = [self.columns * nodes, *[nodes] * (3 if self.hidden else 0), 1]
        first, *rest = torch.split(self.weights, sizes, dim=1)
        shape = len(first), self.columns, nodes, first.shape[-1]
        return first.reshape(shape), *(part[:, None] for part in rest)

    def logits(self, X: Tensor) -> Tensor:
        """Of rows (folds, rows, columns), normalised by their own mean: (folds, rows, goals)."""
        first, *rest = self._parts()
        H = torch.bmm(X, first.flatten(2)).reshape(*X.shape[:2], *first.shape[2:])
        return self._output(H, H, rest)

    def _output(self, H: Tensor, own: Tensor, rest: list[Tensor]) -> Tensor:
        """The output of nodes H (folds, rows, nodes, goals), normalised over the rows of `own`."""
        if not self.hidden:
            return H[:, :, 0] + rest[0][:, :, 0]
        variance, mean = torch.var_mean(own, 1, correction=0, keepdim=True)
        gain, shift, second, bias = rest
        nodes = ((H - mean) * (gain * (variance + SHRINK).rsqrt()) + shift).sigmoid()
        return (nodes * second).sum(2) + bias[:, :, 0]

    @torch.no_grad()
    def decisions(self, rows: Tensor, fold: int, train: Array, test: Array) -> Array:
        """On a fold's test rows, normalised as all of its training rows are."""
        first, *rest = (part[fold : fold + 1] for part in self._parts())
        H = (rows @ first[0].flatten(1)).reshape(1, len(rows), *first.shape[2:])
        z = self._output(H[:, test], H[:, train], rest)
        return np.asarray((z[0] > 0).numpy())


def _linear_start(columns: int) -> Tensor:
    return torch.zeros(columns + 1)


def _start(columns: int, hidden: int) -> Tensor:
    """He's weights into the hidden nodes, gain 1 and shift 0, Glorot's out of them, bias 0."""
    chance = torch.Generator().manual_seed(SEED)
    into = torch.randn(columns * hidden, generator=chance) * (2 / columns) ** 0.5
    limit = (6 / (hidden + 1)) ** 0.5
    out = (torch.rand(hidden, generator=chance) * 2 - 1) * limit
    return torch.cat([into, torch.ones(hidden), torch.zeros(hidden), out, torch.zeros(1)])
