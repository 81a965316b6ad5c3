"""The recipe itself: cross-entropy, the threshold into the bias, the metric, a vote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from anyloss._core.backend import Array
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe.folds import inner_folds
from anyloss.recipe.networks import Adam, Layers, backward, forward, new_layers
from anyloss.recipe.task import Task, cross_entropy, new_task, probabilities, soft_metric

REFINE_RATE, REFINE_RATE_OF_NETWORKS, REFINE_PENALTY = 0.1, 0.03, 2e-4
KINDS = ("binary", "multilabel", "multiclass")
START_RATE, START_STEPS, CHECK_EVERY = 0.02, 200, 10  # of networks

OnStep = Callable[[str, int, int, float], None]  # the stage, the step, of how many, the value


def ignore(stage: str, step: int, total: int, value: float) -> None:
    """What is done with the news of a step unless asked otherwise."""


@dataclass(frozen=True)
class Fit:
    """Members that vote: per fold one as it started (threshold in the bias) and one refined.

    Of a network only the started ones vote where refining did not help on held-out rows.

    `start_score` is the metric of the started members on the rows each of them did not see (with
    the threshold that is best there, so it is optimistic), `held_out_score` that of the vote;
    `history` is the mean soft score per refining step, `checks` has rows of a refining step and the
    metric of the refined members' decisions on held-out rows before it.
    """

    layers: Layers
    kind: str
    start_score: float
    held_out_score: float
    history: Array
    checks: Array

    def decide(self, X: Array) -> Array:
        """The vote `(rows, classes)`: above 0, or highest, for the class that is predicted."""
        return vote(forward(self.layers, X)[-1], self.kind)


def vote(z: Array, kind: str, shares: Array | None = None) -> Array:
    """The mean probability over the members, moved to -1 .. 1 (0 .. 1 for multiclass).

    `shares` `(members, rows)` tell how much a member counts for a row, if not all alike.
    """
    p = probabilities(z, kind)
    mean: Array = p.mean(axis=0) if shares is None else (shares[..., None] * p).sum(axis=0)
    return mean if kind == "multiclass" else 2 * mean - 1


@dataclass(frozen=True)
class Start:
    """Members trained by cross-entropy, before the metric is known."""

    layers: Layers
    X: Array
    y: Array
    weight: Array
    kind: str
    held: Array  # (members, rows): which rows each member did not see
    C: float = 1.0


def fit(
    X: Array,
    y: Array,
    metric: MetricSpec | Metric = "f1",
    *,
    kind: str = "binary",
    average: str | None = "auto",
    weight: Array | None = None,
    hidden: Sequence[int] = (),
    C: float = 1.0,
    folds: int = 5,
    repeats: int = 2,
    steps: int = 300,
    patience: int | None = None,
    begin: Layers | None = None,
    seed: int = 0,
    on_step: OnStep = ignore,
) -> Fit:
    """Train for a metric; `X` should be standardised, `y` is 0 or 1.

    `y` has shape `(rows,)` or `(rows, classes)`; `kind` is "binary", "multilabel" or "multiclass"
    (then `y` is one-hot). `C` is the inverse strength of the L2 penalty of the start, as in
    scikit-learn. With `patience`, refining stops when the soft score of the held-out rows has not
    risen for so many steps. `begin` are layers to start from. `on_step` is told the stage, the
    step, of how many, and the last held-out value: the loss of cross-entropy, then the metric.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (X[:, 0] + rng.normal(size=300) > 1.5).astype(float)
    >>> fit(X, y, "f1").decide(X).shape
    (300, 1)
    """
    begun = start(
        X, y, kind=kind, weight=weight, hidden=hidden, C=C, folds=folds, repeats=repeats,
        begin=begin, seed=seed, on_step=on_step,
    )  # fmt: skip
    return finish(begun, metric, average=average, steps=steps, patience=patience, on_step=on_step)


def start(
    X: Array,
    y: Array,
    *,
    kind: str = "binary",
    weight: Array | None = None,
    hidden: Sequence[int] = (),
    C: float = 1.0,
    folds: int = 5,
    repeats: int = 2,
    begin: Layers | None = None,
    seed: int = 0,
    on_step: OnStep = ignore,
) -> Start:
    """The first half of `fit`, which any number of metrics can share."""
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float).reshape(len(X), -1)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    if kind not in KINDS or weight.shape != (len(y),) or folds < 2 or repeats < 1:
        raise ValueError(
            f"expected a kind of {KINDS}, one weight per row, 2 folds and 1 repeat or more; got "
            f"{kind!r}, weights {weight.shape} for {len(y)} rows, {folds} folds, {repeats} repeats"
        )
    rng = np.random.default_rng(seed)
    held = inner_folds(X, y, kind, folds, repeats, rng)
    sizes = [X.shape[1], *hidden, y.shape[1]]
    layers = new_layers(sizes, len(held), rng) if begin is None else [x.copy() for x in begin]
    begun = Start(layers, X, y, weight, kind, held, C)
    if not hidden:
        return replace(begun, layers=_logistic(begun))
    lifted = replace(begun, weight=weight * _lift(y, weight, kind))
    return replace(begun, layers=descend(lifted, on_step)[0])


def _lift(y: Array, weight: Array, kind: str) -> Array:
    """Weights per row that bring the classes halfway to balance; the mean weight stays.

    A network that is stopped early learns common classes first. With the root of the weights under
    which all classes weigh the same, rare ones are learned in time too, and probabilities stay
    moderate. A linear model gains nothing by it. Rows of several labels are left as they are.
    """
    if kind == "multilabel":
        return np.ones(len(y))
    classes = np.hstack([1 - y, y]) if kind == "binary" else y
    lift = classes @ (np.maximum(weight @ classes, np.finfo(float).tiny) ** -0.5)
    return lift * (weight.sum() / (weight @ lift))


def finish(
    begun: Start,
    metric: MetricSpec | Metric = "f1",
    *,
    average: str | None = "auto",
    steps: int = 300,
    patience: int | None = None,
    on_step: OnStep = ignore,
) -> Fit:
    """The second half of `fit`: the threshold into the bias, the metric, the vote."""
    task = new_task(begun.y, metric, begun.kind, average, begun.weight)
    judge = np.where(begun.held.any(axis=0), begun.held, 1.0)
    judge = judge / judge.sum(axis=0)
    started = [x.copy() for x in begun.layers]
    held_out = (judge[..., None] * forward(started, begun.X)[-1]).sum(axis=0)
    offsets, start_score = task.offsets(held_out)
    started[-1] -= offsets
    refined, history, checks = _refine(started, begun, task, judge, steps, patience, on_step)
    first, second = (vote(forward(x, begun.X)[-1], begun.kind, judge) for x in (started, refined))
    layers, ended = [np.concatenate(x) for x in zip(started, refined, strict=True)], first + second
    # Refining a network can learn its rows by heart; a linear model is better off refined always.
    if len(started) > 2 and _promise(task, first) > _promise(task, ended / 2):
        layers, ended = started, first
    return Fit(layers, begun.kind, start_score, task.score(ended), history, checks)


def _promise(task: Task, vote: Array) -> float:
    """How good a held-out vote is: the metric of its decisions and, less noisy, of its shares."""
    p = vote if task.layout.task == "multiclass" else (1 + vote) / 2
    return task.score(vote) + task.soft_score(p)


def _logistic(begun: Start) -> Layers:
    """Logistic regression per member, with an L2 penalty on all but the bias, by L-BFGS."""
    kind, found = begun.kind, []
    start = np.concatenate([x[0] for x in begun.layers])
    for held in begun.held:
        x, y, w = begun.X[~held], begun.y[~held], begun.C * begun.weight[~held]
        total = w.sum()

        def loss(
            flat: Array, x: Array = x, y: Array = y, w: Array = w, total: float = total
        ) -> tuple[float, Array]:
            both = flat.reshape(x.shape[1] + 1, -1)
            coef, z = both[:-1], x @ both[:-1] + both[-1]
            value = w @ cross_entropy(z, y, kind) + (coef**2).sum() / 2
            error = w[:, None] * (probabilities(z, kind) - y)
            slope = np.concatenate([x.T @ error + coef, error.sum(axis=0, keepdims=True)])
            return value / total, slope.ravel() / total

        options = {"maxiter": 300}
        end = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
        start = end.reshape(start.shape)  # the next member's rows are mostly the same
        found.append(start)
    both = np.stack(found)
    return [both[:, :-1], both[:, -1:]]


def descend(
    begun: Start, on_step: OnStep = ignore, steps: int = START_STEPS
) -> tuple[Layers, Array]:
    """Cross-entropy by Adam: each member as it was when its held-out rows were predicted best.

    Also the step at which that was; a member that holds out nothing goes on to the end.
    """
    layers, X, y, kind, held = begun.layers, begun.X, begun.y, begun.kind, begun.held
    share, judge = (_shares(rows * begun.weight) for rows in (~held, held))
    adam = Adam(layers, START_RATE, 1 / float(begun.C * begun.weight.sum()))
    best, at, kept = np.full(len(held), np.inf), np.zeros(len(held)), [x.copy() for x in layers]
    values = None
    for k in range(steps + 1):
        values = forward(layers, X, values)
        if k % CHECK_EVERY == 0 or k == steps:
            loss = (judge * cross_entropy(values[-1], y, kind)).sum(axis=1)
            better = (loss < best) | ~held.any(axis=1)
            best, at = np.where(better, loss, best), np.where(better, k, at)
            for x, keep in zip(layers, kept, strict=True):
                keep[better] = x[better]
            on_step("cross-entropy", k, steps, float(loss.mean()))
        if k < steps:
            error = share[..., None] * (probabilities(values[-1], kind) - y)
            adam.step(backward(layers, X, values, error))
    return kept, at


def _shares(weight: Array) -> Array:
    """What part of a member's weight each row is; 0 for a member without rows."""
    total = weight.sum(axis=1, keepdims=True)
    return weight / np.where(total > 0, total, 1.0)


def _refine(
    started: Layers,
    begun: Start,
    task: Task,
    judge: Array,
    steps: int,
    patience: int | None,
    on_step: OnStep,
) -> tuple[Layers, Array, Array]:
    """Adam on `1 - metric` of the soft counts, all members at once."""
    layers, X = [x.copy() for x in started], begun.X
    fitted, held = (soft_metric(task, rows * begun.weight) for rows in (~begun.held, begun.held))
    rate = REFINE_RATE if len(layers) == 2 else REFINE_RATE_OF_NETWORKS
    adam = Adam(layers, rate, REFINE_PENALTY)
    history: list[float] = []
    checks: list[tuple[int, float]] = []
    best, best_step, kept = -np.inf, 0, layers
    values = None
    for k in range(steps + 1):
        values = forward(layers, X, values)
        if k % CHECK_EVERY == 0 or k == steps:
            checks.append((k, task.score(vote(values[-1], begun.kind, judge))))
            on_step("metric", k, steps, checks[-1][1])
        if patience is not None:
            reached = held(values[-1])[0].mean()
            if reached > best:
                best, best_step, kept = reached, k, [x.copy() for x in layers]
            elif k - best_step >= patience:
                break
        if k < steps:
            scores, slopes = fitted(values[-1])
            history.append(float(scores.mean()))
            adam.step(backward(layers, X, values, -slopes))
    return (layers if patience is None else kept), np.array(history), np.array(checks)
