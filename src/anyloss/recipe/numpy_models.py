"""The recipe for linear models and networks in NumPy: all members are trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint, ConstraintSpec, read_constraints
from anyloss.metrics import Metric, MetricSpec
from anyloss.recipe import deadlines
from anyloss.recipe.constrained import Promise, centred, check_task
from anyloss.recipe.features import Centred, read_features
from anyloss.recipe.folds import inner_folds
from anyloss.recipe.networks import Adam, Layers, backward, forward, new_layers
from anyloss.recipe.skeleton import HeldOutScores, refine_members
from anyloss.recipe.target import (
    Target,
    cross_entropy,
    decision_values,
    new_target,
    probabilities,
    soft_metric,
)
from anyloss.thresholds import best_threshold, nearest_threshold

REFINE_RATE, REFINE_RATE_OF_NETWORKS, REFINE_PENALTY = 0.1, 0.03, 2e-4
TASKS = ("binary", "multilabel", "multiclass")
START_RATE, START_STEPS, CHECK_EVERY = 0.02, 200, 10  # of networks
START_SHARE = 0.4  # of the time of a network, for a limit of time

OnStep = Callable[[str, int, int, float], None]  # the stage, the step, the last step, the value


def no_callback(stage: str, step: int, total: int, value: float) -> None:
    """The default of `on_step`: do nothing."""


@dataclass(frozen=True)
class Ensemble:
    """Members that decide together, per inner fold one as it started and one refined.

    Of a network only the started members are kept where refining did not help on held-out samples.

    Attributes:
        layers (list of array): the weights `(members, inputs, outputs)` and biases
            `(members, 1, outputs)` of each layer in turn.
        task (str): `"binary"`, `"multilabel"` or `"multiclass"`.
        start_score (float): the metric of the started members on the samples that each of them did
            not see, at the threshold that is best there, which makes it optimistic.
        held_out_score (float): the same for the members that are kept.
        history (array): the mean soft score before each refining step.
        checks (array): rows of a refining step and the metric of the refined members' decisions
            on held-out samples before it.
        held_out (array): the decision values of the samples, by the members that did not see them.
        threshold (float): the threshold of the decision values under constraints, otherwise 0: the
            best one on held-out samples, or the nearest one if none satisfies the constraints.

    Examples:
        >>> X = np.linspace(-2.0, 2.0, 100)[:, None]
        >>> found = fit(X, X[:, 0] > 1, "f1")
        >>> found.decide(np.array([[0.0], [1.5]]))[:, 0] > 0
        array([False,  True])
    """

    layers: Layers
    task: str
    start_score: float
    held_out_score: float
    history: Array
    checks: Array
    held_out: Array
    threshold: float = 0.0

    def decide(self, X: Array) -> Array:
        """Decision values `(n, classes)`: above 0 (multiclass: highest) for the prediction."""
        values = decision_values(forward(self.layers, read_features(X))[-1], self.task)
        return centred(values, self.threshold)


@dataclass(frozen=True)
class Started:
    """Members trained by cross-entropy, before the metric is known."""

    layers: Layers
    X: Array
    y: Array
    weight: Array
    task: str
    held: Array  # (members, samples): which samples each member did not see
    C: float = 1.0


def fit(
    X: Array, y: Array, metric: MetricSpec | Metric = "f1", *,
    task: str = "binary", average: str | None = "auto", weight: Array | None = None,
    groups: Array | None = None, hidden: Sequence[int] = (), C: float = 1.0, folds: int = 5,
    repeats: int = 2, steps: int = 300, patience: int | None = None, initial: Layers | None = None,
    seed: int = 0, on_step: OnStep = no_callback, constraints: ConstraintSpec | None = None,
) -> Ensemble:  # fmt: skip
    """Train a linear model or a network for a metric, without scikit-learn.

    The stages are those of `anyloss.recipe`: cross-entropy, the best threshold, then
    `1 - metric` of the soft counts. `anyloss.sklearn.AnyLossClassifier` is the same with
    standardisation, class labels and checks.

    Args:
        X (array or sparse matrix): the features, which should be standardised. A sparse matrix
            is never made dense.
        y (array): the labels, 0 or 1; one-hot for several classes.
        metric (str, callable or Metric): a name, a formula or a function. Default: `"f1"`.
        task (str): `"binary"`, `"multilabel"` or `"multiclass"`. Default: `"binary"`.
        average (str): how classes or labels are combined, as in `anyloss.score`.
        weight (array, optional): one weight per sample.
        groups (array, optional): the group of each sample. Samples of a group are held out
            together.
        hidden (sequence of int): the units of each hidden layer; none for a linear model.
        C (float): the inverse strength of the L2 penalty of the start, as in scikit-learn.
            Default: 1.
        folds (int): the number of inner folds. Default: 5.
        repeats (int): how often inner folds are drawn; there are `folds * repeats` members.
            Default: 2.
        steps (int): the number of refining steps. Default: 300.
        patience (int, optional): stop refining when the soft score of the held-out samples has
            not risen for this number of steps.
        initial (list of array, optional): the layers to start from.
        seed (int): the seed of folds and first weights. Default: 0.
        on_step (callable): receives the stage, the step, the last step and the last held-out
            value: the cross-entropy in the first stage, then the metric.
        constraints (str or list of str, optional): constraints for two classes, such as
            `"recall >= 0.9"`. The threshold is the best one that satisfies them on held-out
            samples; nothing is promised about new ones.

    Shape:
        - `X`: `(n, features)`.
        - `y`: `(n,)` or `(n, classes)`.

    Returns:
        Ensemble: the members and their held-out scores.

    Raises:
        ValueError: if the task is unknown, the weights have another shape, there are fewer than 2
            folds or 1 repeat, or no threshold satisfies the constraints on held-out samples.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y = (X[:, 0] + rng.normal(size=300) > 1.5).astype(float)
        >>> fit(X, y, "f1").decide(X).shape
        (300, 1)
    """
    started = start(
        X, y, task=task, weight=weight, groups=groups, hidden=hidden, C=C, folds=folds,
        repeats=repeats, initial=initial, seed=seed, on_step=on_step,
    )  # fmt: skip
    required = read_constraints(constraints)
    found = finish(
        started, metric, average=average, steps=steps, patience=patience, on_step=on_step,
        constraints=required,
    )  # fmt: skip
    if required:  # an error, if none satisfies them
        best_threshold(
            started.y[:, 0], found.held_out[:, 0], metric, constraints=required,
            weight=started.weight,
        )  # fmt: skip
    return found


def start(
    X: Array, y: Array, *, task: str = "binary", weight: Array | None = None,
    groups: Array | None = None, hidden: Sequence[int] = (), C: float = 1.0, folds: int = 5,
    repeats: int = 2, initial: Layers | None = None, seed: int = 0, on_step: OnStep = no_callback,
) -> Started:  # fmt: skip
    """The first stage of `fit`, which any number of metrics can share."""
    X = read_features(X)
    y = np.asarray(y, dtype=float).reshape(X.shape[0], -1)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    if task not in TASKS or weight.shape != (len(y),) or folds < 2 or repeats < 1:
        raise ValueError(
            f"expected a task of {TASKS}, one weight per sample, at least 2 folds and 1 repeat; "
            f"got {task!r}, weights {weight.shape} for {len(y)} samples, {folds} folds, {repeats} "
            "repeats"
        )
    rng = np.random.default_rng(seed)
    rows = X.sparse if isinstance(X, Centred) else X  # which rows are equal is the same
    held = inner_folds(rows, y, task, folds, repeats, rng, groups)
    sizes = [X.shape[1], *hidden, y.shape[1]]
    layers = new_layers(sizes, len(held), rng) if initial is None else [x.copy() for x in initial]
    started = Started(layers, X, y, weight, task, held, C)
    if not hidden:
        return replace(started, layers=_logistic(started))
    lifted = replace(started, weight=weight * _lift(y, weight, task))
    return replace(started, layers=train_cross_entropy(lifted, on_step)[0])


def _lift(y: Array, weight: Array, task: str) -> Array:
    """Weights per sample that bring the classes halfway to balance; the mean weight stays.

    A network that is stopped early learns common classes first. With the square root of the
    balanced class weights it learns rare ones in time too, and its probabilities stay moderate. A
    linear model gains nothing by it. Samples with several labels keep their weight.
    """
    if task == "multilabel":
        return np.ones(len(y))
    classes = np.hstack([1 - y, y]) if task == "binary" else y
    lift = classes @ (np.maximum(weight @ classes, np.finfo(float).tiny) ** -0.5)
    return lift * (weight.sum() / (weight @ lift))


def finish(
    started: Started,
    metric: MetricSpec | Metric = "f1",
    *,
    average: str | None = "auto",
    steps: int = 300,
    patience: int | None = None,
    on_step: OnStep = no_callback,
    constraints: tuple[Constraint, ...] = (),
) -> Ensemble:
    """The other stages of `fit`: the threshold, refining for the metric, the ensemble."""
    check_task(Promise(constraints), started.task)
    if constraints and patience is not None:
        raise ValueError(
            "early stopping follows the soft score of held-out rows, which does not know the "
            "constraints; leave out early stopping, or constraints="
        )
    target = new_target(started.y, metric, started.task, average, started.weight, constraints)
    members = _NumpyMembers(started, target, steps, patience, on_step)
    found = refine_members(members)
    used = [members.layers] if found.share < 1 else []
    used += [members.refined] if found.share > 0 else []
    layers = [np.concatenate(x) for x in zip(*used, strict=True)]
    return Ensemble(
        layers, started.task, found.start_score, found.held_out_score, members.history,
        members.checks, members.mixed(found.share), members.threshold(found.share),
    )  # fmt: skip


class _NumpyMembers:
    """The members of all inner folds, as the skeleton of the recipe uses them."""

    def __init__(
        self, started: Started, target: Target, steps: int, patience: int | None, on_step: OnStep
    ) -> None:
        self.started, self.target = started, target
        self.steps, self.patience, self.on_step = steps, patience, on_step
        self.layers = [x.copy() for x in started.layers]
        judge = np.where(started.held.any(axis=0), started.held, 1.0)
        self.judge: Array = judge / judge.sum(axis=0)  # the members' shares in a held-out decision

    @property
    def shares(self) -> tuple[float, ...]:
        # What has many weights can overfit its training samples while it is refined: a network, or
        # a linear model of at least as many columns as samples. Other linear models hardly can.
        samples, columns = self.started.X.shape
        return (0.5, 0.0) if len(self.layers) > 2 or columns >= samples else (0.5,)

    def move_threshold(self) -> float:
        z = (self.judge[..., None] * forward(self.layers, self.started.X)[-1]).sum(axis=0)
        if self.started.task == "multiclass" and len(self.layers) > 2:
            # The best offsets of several classes follow the noise of a few rows; those of a linear
            # model are not better for the mean over resamples.
            offsets = self.target.averaged_offsets(z)
            score = self.target.score(z - offsets)
        else:
            offsets, score = self.target.offsets(z)
        self.layers[-1] -= offsets
        return score

    def refine(self) -> None:
        self.refined, self.history, self.checks = _refine(self)
        self._decisions = [self._decide(x) for x in (self.layers, self.refined)]

    def _decide(self, layers: Layers) -> Array:
        z = forward(layers, self.started.X)[-1]
        return decision_values(z, self.started.task, self.judge)

    def mixed(self, share: float) -> Array:
        """The decision values of the held-out samples with this share of the refinement."""
        first, second = self._decisions
        return (1 - share) * first + share * second

    def threshold(self, share: float) -> float:
        """The threshold of these values under the constraints; 0 without constraints."""
        target = self.target
        if not target.constraints:
            return 0.0
        column = self.mixed(share)[:, 0]
        return nearest_threshold(
            target.y[:, 0], column, target.metric, target.constraints, target.weight
        ).threshold

    def held_out(self, share: float) -> HeldOutScores:
        return self.target.held_out(centred(self.mixed(share), self.threshold(share)))


def _logistic(started: Started) -> Layers:
    """Logistic regression per member, with an L2 penalty on all but the bias, by L-BFGS."""
    task, found = started.task, []
    start = np.concatenate([x[0] for x in started.layers])
    for held in started.held:
        x, y, w = started.X[~held], started.y[~held], started.C * started.weight[~held]
        total = w.sum()

        def loss(
            flat: Array, x: Array = x, y: Array = y, w: Array = w, total: float = total
        ) -> tuple[float, Array]:
            both = flat.reshape(x.shape[1] + 1, -1)
            coef, z = both[:-1], x @ both[:-1] + both[-1]
            deadlines.report()
            value = w @ cross_entropy(z, y, task) + (coef**2).sum() / 2
            error = w[:, None] * (probabilities(z, task) - y)
            slope = np.concatenate([x.T @ error + coef, error.sum(axis=0, keepdims=True)])
            return value / total, slope.ravel() / total

        options = {"maxiter": 300}
        end = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
        start = end.reshape(start.shape)  # the next member's rows are mostly the same
        found.append(start)
    both = np.stack(found)
    return [both[:, :-1], both[:, -1:]]


def train_cross_entropy(
    started: Started, on_step: OnStep = no_callback, steps: int = START_STEPS
) -> tuple[Layers, Array]:
    """Train by Adam; each member is kept as it was when its held-out cross-entropy was lowest.

    The second value is the step at which that was. A member without held-out samples is trained to
    the end.
    """
    layers, X, y, task, held = started.layers, started.X, started.y, started.task, started.held
    share, judge = (_shares(rows * started.weight) for rows in (~held, held))
    adam = Adam(layers, START_RATE, 1 / float(started.C * started.weight.sum()))
    best, at, kept = np.full(len(held), np.inf), np.zeros(len(held)), [x.copy() for x in layers]
    values = None
    for k in range(steps + 1):
        deadlines.report(START_SHARE * k / max(steps, 1))
        values = forward(layers, X, values)
        if k % CHECK_EVERY == 0 or k == steps:
            loss = (judge * cross_entropy(values[-1], y, task)).sum(axis=1)
            better = (loss < best) | ~held.any(axis=1)
            best, at = np.where(better, loss, best), np.where(better, k, at)
            for x, keep in zip(layers, kept, strict=True):
                keep[better] = x[better]
            on_step("cross-entropy", k, steps, float(loss.mean()))
        if k < steps:
            error = share[..., None] * (probabilities(values[-1], task) - y)
            adam.step(backward(layers, X, values, error))
    return kept, at


def _shares(weight: Array) -> Array:
    """The share of each sample in a member's total weight; 0 for a member without samples."""
    total = weight.sum(axis=1, keepdims=True)
    return weight / np.where(total > 0, total, 1.0)


def _refine(members: _NumpyMembers) -> tuple[Layers, Array, Array]:
    """Adam on `1 - metric` of the soft counts, all members at once."""
    started, target, patience = members.started, members.target, members.patience
    layers, X, steps = [x.copy() for x in members.layers], started.X, members.steps
    fitted, held = (
        soft_metric(target, rows * started.weight) for rows in (~started.held, started.held)
    )
    rate = REFINE_RATE if len(layers) == 2 else REFINE_RATE_OF_NETWORKS
    adam = Adam(layers, rate, REFINE_PENALTY)
    history: list[float] = []
    checks: list[tuple[int, float]] = []
    best, best_step, kept = -np.inf, 0, layers
    values = None
    for k in range(steps + 1):
        deadlines.report(START_SHARE + (1 - START_SHARE) * k / max(steps, 1))
        values = forward(layers, X, values)
        if k % CHECK_EVERY == 0 or k == steps:
            decisions = decision_values(values[-1], started.task, members.judge)
            checks.append((k, target.score(decisions)))
            members.on_step("metric", k, steps, checks[-1][1])
        if patience is not None:
            reached = held(values[-1])[0].mean()
            if reached > best:
                best, best_step, kept = reached, k, [x.copy() for x in layers]
            elif k - best_step >= patience:
                break
        if k < steps:
            scores, gradient = fitted(values[-1])
            history.append(float(scores.mean()))
            adam.step(backward(layers, X, values, -gradient))
    return (layers if patience is None else kept), np.array(history), np.array(checks)
