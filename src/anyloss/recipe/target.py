"""What a classifier is trained for: the labels, their weights, the metric and the task.

Logits have the axes `(members, samples, classes)`, labels `(samples, classes)`, with one column for
a binary task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from anyloss._core.backend import NUMPY, Array, softmax_back
from anyloss._core.choices import resolve_average
from anyloss._core.constraints import Constraint
from anyloss._core.costs import cost_labels
from anyloss._core.counts import Counts, counts_of_sums
from anyloss._core.functions import score
from anyloss._core.gradient import sample_derivatives
from anyloss._core.lagrangian import lagrangian, moved
from anyloss._core.scoring import check_average
from anyloss._core.shapes import Layout
from anyloss.decisions.search import best_decision, best_offsets
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.recipe.skeleton import HeldOutScores
from anyloss.steps import Hard, Step, Uniform
from anyloss.thresholds import nearest_threshold

RESAMPLES = 15  # of the rows, whose best offsets are averaged


class Resampled(NamedTuple):
    """The best offsets `(classes,)` of all rows, and those of resamples, NaN where one has none.

    Only the differences of the offsets of classes that exclude each other have a meaning.
    """

    best: Array
    draws: Array  # (resamples, classes)
    relative: bool

    @property
    def mean(self) -> Array:
        """The mean over the resamples."""
        found = np.isfinite(self.draws)
        number, total = found.sum(0), np.where(found, self.draws, 0.0).sum(0)
        return np.where(
            (number > 0) & np.isfinite(self.best), total / np.maximum(number, 1), self.best
        )

    def towards(self, trained: Array) -> Array:
        """The mean, moved towards the offsets that a model was trained at.

        The more the resamples of a class vary, the more it is moved (empirical Bayes: the offsets
        are normal around those trained, with one variance for all classes, and the means are
        normal around the offsets). A class without two resamples gets the one it was trained at.
        """
        if len(self.draws) < 2:
            return self.mean
        mean, draws = self.mean, self.draws[np.isfinite(self.draws).any(axis=1)]
        if self.relative:
            trained, mean = trained - trained.mean(), mean - mean.mean()
            draws = draws - np.nanmean(draws, axis=1, keepdims=True)
        found = (np.isfinite(draws).sum(0) > 1) & np.isfinite(mean)
        distance, variance = (mean - trained)[found], np.nanvar(draws[:, found], axis=0, ddof=1)
        spread = max(0.0, float(np.mean(distance**2 - variance))) if found.any() else 0.0
        moved = np.array(trained, dtype=float)
        moved[found] += distance * spread / np.maximum(spread + variance, 1e-30)
        return moved

    def rules(self, trained: Array) -> list[Array]:
        """The offsets of a model that was trained at some, those preferred first."""
        return [self.towards(trained), self.mean, self.best]


class Target(NamedTuple):
    """Labels `(samples, classes)`, weights, the metric, and the meaning of the columns."""

    y: Array
    weight: Array
    metric: Metric
    layout: Layout
    constraints: tuple[Constraint, ...] = ()

    def offsets(self, z: Array) -> tuple[Array, float]:
        """The offsets of logits `(samples, classes)` with the best score, and that score."""
        y, lay, task = self.y, self.layout, self.layout.task
        if lay.average != "binary":
            if task == "binary":  # the column as two classes
                y, z = np.hstack([1 - y, y]), np.hstack([np.zeros_like(z), z])
                lay = Layout("multiclass", lay.average, 2)
            offsets, reached = best_offsets(y, z, self.metric, lay, weight=self.weight)
            return (np.diff(offsets) if task == "binary" else offsets), reached
        column = z[:, 0] if task == "binary" else z[:, 1] - z[:, 0]
        found = nearest_threshold(y[:, -1], column, self.metric, self.constraints, self.weight)
        at = np.array([found.threshold])
        return (at if task == "binary" else np.append(0.0, at)), found.score

    def steady_offsets(self, z: Array, resamples: int = RESAMPLES) -> Array:
        """Offsets that vary less from sample to sample than the best ones.

        Those of several labels are shrunk towards a shared one, as in `TunedDecisionClassifierCV`,
        because few positives hardly determine one; others are averaged over resamples.
        """
        if self.layout.task == "multilabel":
            return self._shrunk_offsets(z)
        return self.averaged_offsets(z, resamples)

    def refined_offsets(self, z: Array, trained: Array, resamples: int = RESAMPLES) -> list[Array]:
        """The offsets of a model that was trained at some, those preferred first."""
        if self.layout.task == "multilabel":
            return [self._shrunk_offsets(z)]
        return self.resampled_offsets(z, resamples).rules(trained)

    def _shrunk_offsets(self, z: Array) -> Array:
        y, weight, metric, lay, _ = self
        z = np.asarray(z, dtype=float)
        found = best_decision(y, z, metric, lay, weight=weight, probabilities=False)
        thresholds: Array = found.decision.thresholds
        return thresholds

    def averaged_offsets(self, z: Array, resamples: int = RESAMPLES) -> Array:
        """The mean of the best offsets of resampled rows, which vary less from sample to sample."""
        return self.resampled_offsets(z, resamples).mean

    def resampled_offsets(self, z: Array, resamples: int = RESAMPLES) -> Resampled:
        """The best offsets of all rows, and those of resampled rows.

        How often a row is drawn is a Poisson number whose mean is its weight, so that a weight of 2
        is the row twice; the order of the rows does not matter. A draw counts for a class if it has
        samples with and without it. Where no draw does, the best offset of all rows is used.
        """
        best = self.offsets(z)[0]
        order = np.lexsort((*z.T, *self.y.T))
        y, z, ends = self.y[order], z[order], np.cumsum(self.weight[order])
        rng, draws = np.random.default_rng(0), np.full((resamples, len(best)), np.nan)
        for draw in draws:
            points = ends[-1] * rng.random(rng.poisson(ends[-1]))
            times = np.bincount(np.searchsorted(ends, points, side="right"), minlength=len(z))
            rows = times > 0
            drawn = self._replace(y=y[rows], weight=times[rows].astype(float))
            positives = drawn.weight @ drawn.y
            served = (positives > 0) & (positives < drawn.weight.sum())
            if served.any():
                found = drawn.offsets(z[rows])[0]
                served = np.resize(served, len(found)) & np.isfinite(found)
                draw[served] = found[served]
        return Resampled(best, draws, self.layout.task == "multiclass")

    def score(self, decision: Array) -> float:
        """The metric of decision values: a class is predicted above 0, or by arg-max."""
        if self.layout.task == "multiclass":
            predicted = np.arange(self.y.shape[1]) == decision.argmax(axis=1)[:, None]
        else:
            predicted = decision > 0
        return self._score(predicted.astype(float), Hard())

    def soft_score(self, p: Array) -> float:
        """The metric of soft decisions `(samples, classes)`: the probabilities themselves."""
        return self._score(p, Uniform())

    def held_out(self, decision: Array) -> HeldOutScores:
        """The hard and the soft score of decision values, as `decision_values` gives them."""
        p = decision if self.layout.task == "multiclass" else (1 + decision) / 2
        return HeldOutScores(self.score(decision), self.soft_score(p))

    def scores_at(self, z: Array, offsets: Array) -> HeldOutScores:
        """The hard and the soft score of logits with these offsets."""
        p = probabilities(z - offsets, self.layout.task)
        return HeldOutScores(self.score(z - offsets), self.soft_score(p))

    def _score(self, predicted: Array, step: Step) -> float:
        one = self.layout.task == "binary"
        return float(
            score(
                self.y[:, 0] if one else self.y,
                predicted[:, 0] if one else predicted,
                self.metric,
                step=step,
                average=self.layout.average,
                weight=self.weight,
                task=self.layout.task,  # type: ignore[arg-type]
            )
        )


def new_target(
    y: Array,
    metric: MetricSpec | Metric,
    task: str,
    average: str | None = "auto",
    weight: Array | None = None,
    constraints: tuple[Constraint, ...] = (),
) -> Target:
    """A target from labels `(samples,)` or `(samples, classes)` of 0 and 1; one-hot for multiclass.

    >>> new_target(np.array([0.0, 1.0]), "f1", "binary").layout.average
    'binary'
    """
    y = np.asarray(y, dtype=float)
    y = y.reshape(len(y), -1)
    chosen = find_metric(metric)
    check_average(chosen, average)
    average = resolve_average(average, task, y.shape[1], chosen.has_own_form)
    if average in (None, "samples"):
        raise ValueError(
            "training needs one number of all rows, and average=None gives one per class, "
            f"average='samples' one per row; got average={average!r}. Use 'macro', 'micro' or "
            "'weighted'"
        )
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    lay = Layout(task, average, y.shape[1], costs=chosen.cost_matrix)
    return Target(y, weight, chosen, lay, constraints)


def positive_class(
    classes: Array, index: Array, pos_label: Any, weight: Array | None, metric: Metric
) -> int:
    """The index of the positive one of two classes: `pos_label`, or by default the rarer one.

    A matrix of costs has the order of the classes, so that the second one is positive.

    >>> positive_class(np.array(["no", "yes"]), np.array([0, 0, 1]), None, None, find_metric("f1"))
    1
    """
    if metric.second_is_positive and (pos_label is None or pos_label != classes[1]):
        if pos_label is not None:
            raise ValueError(
                "the rows and columns of a cost matrix have the order of the classes "
                f"{classes.tolist()}, so that {classes[1]!r} is the positive one; got "
                f"pos_label={pos_label!r}. Leave it out"
            )
        return 1
    if pos_label is None:
        first, second = np.bincount(index, weights=weight, minlength=2)
        return 0 if first < second else 1
    found = np.flatnonzero(classes == pos_label)
    if len(found) != 1:
        raise ValueError(
            f"pos_label must be one of the classes {classes.tolist()}; got {pos_label!r}"
        )
    return int(found[0])


def check_known(y: Array, classes: Array) -> None:
    """Raise an error for labels that are none of the classes.

    >>> check_known(np.array([0, 2, 2]), np.array([0, 1]))
    Traceback (most recent call last):
        ...
    ValueError: y contains classes that were not present in fit, [2]; these were 0, 1
    """
    unknown = sorted({repr(x) for x in set(y.ravel().tolist()) - set(classes.tolist())})
    if unknown:
        shown, known = ", ".join(unknown[:5]), ", ".join(map(repr, classes.tolist()[:10]))
        raise ValueError(
            f"y contains classes that were not present in fit, [{shown}]; these were {known}"
        )


def probabilities(z: Array, task: str) -> Array:
    """The sigmoid of each logit, or the softmax over the classes."""
    if task == "multiclass":
        e = np.exp(z - z.max(axis=-1, keepdims=True))
        share: Array = e / e.sum(axis=-1, keepdims=True)
        return share
    sigmoid: Array = expit(z)
    return sigmoid


def decision_values(z: Array, task: str, shares: Array | None = None) -> Array:
    """The mean probability over the members, moved to -1 .. 1 (multiclass: left in 0 .. 1).

    `shares` `(members, samples)` weigh the members for each sample; by default all weigh alike.
    """
    p = probabilities(z, task)
    mean: Array = p.mean(axis=0) if shares is None else (shares[..., None] * p).sum(axis=0)
    return mean if task == "multiclass" else 2 * mean - 1


def cross_entropy(z: Array, y: Array, task: str) -> Array:
    """The cross-entropy of each sample."""
    if task == "multiclass":
        top = z.max(axis=-1)
        total = np.log(np.exp(z - top[..., None]).sum(axis=-1)) + top
        loss: Array = total - (y * z).sum(axis=-1)
        return loss
    return (np.logaddexp(0.0, z) - y * z).sum(axis=-1)


def counted_labels(y: Array, lay: Layout) -> tuple[Array, Array]:
    """The labels `(samples, classes)` as they are counted, and factors `(samples,)` of the weights.

    They are the labels and ones, except under a matrix of costs.
    """
    if lay.costs is None:
        return y, np.ones(len(y))
    labels, factor = cost_labels(y, None, lay.costs, NUMPY, y)
    return labels, factor[:, 0]


def soft_metric(target: Target, weight: Array) -> Callable[[Array], tuple[Array, Array]]:
    """A function of logits: the soft score of each member, and its gradient by the logits.

    The soft decision is the probability itself. `weight` has the axes `(members, samples)`. Under
    constraints it is the Lagrangian, whose multipliers, those of each member, move with each call.
    """
    task, (y, worth) = target.layout.task, counted_labels(target.y, target.layout)
    weight = np.asfortranarray(weight * worth)[..., None]  # as `forward` lays out its logits
    positives = np.einsum("mnk,nc->mc", weight, y)[:, None]
    total = np.broadcast_to(weight.sum(axis=1, keepdims=True), positives.shape)
    required = target.constraints
    now = sums = [np.zeros(positives.shape) for _ in required]

    def count(decided: Array) -> Counts:
        true_positives = np.einsum("nc,mnc->mc", y, decided)[:, None]
        return counts_of_sums(decided.sum(axis=1, keepdims=True), true_positives, positives, total)

    def gradient(z: Array) -> tuple[Array, Array]:
        nonlocal now, sums
        p = probabilities(z, task)
        parts = weight * p
        metric = lagrangian(target.metric, required, now) if required else target.metric
        score, d_positive, d_negative = sample_derivatives(count(parts), metric, target.layout)
        if required:
            now, sums = moved(sums, required, count(weight * (z > 0)), NUMPY)
        found = y * (d_positive - d_negative)
        found += d_negative
        if task == "multiclass":
            found *= weight
            return score.reshape(-1), softmax_back(found, p, NUMPY)
        found *= parts
        found *= 1 - p
        return score.reshape(-1), found

    return gradient
