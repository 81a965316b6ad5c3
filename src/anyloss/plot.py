"""Pictures, one call each: they draw into the given matplotlib axes, or new ones, and return them.

matplotlib is optional (the extra `plot`) and is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import ConstraintSpec, read_constraints
from anyloss._core.documents import documented
from anyloss._core.step import Step
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.thresholds import best_threshold, columns, sweep

__all__ = ["confusion", "metric_surface", "step", "threshold_curve", "training"]

Axes: TypeAlias = Any
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#8a8a8a"  # Okabe and Ito: for colour-blind readers


def _axes(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "anyloss.plot needs matplotlib; install it with pip install 'anyloss[plot]'"
        ) from error
    return pyplot.subplots(figsize=(5.2, 3.6), layout="constrained")[1]


def _finished(ax: Axes, **texts: Any) -> Axes:
    ax.set(**texts)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


@documented
def threshold_curve(
    y_true: Array, y_score: Array, metric: MetricSpec | Metric = "f1", *,
    constraints: ConstraintSpec | None = None, weight: Array | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a metric over all thresholds, with the best threshold.

    With constraints, the metric of each constraint is drawn as well, and the thresholds that
    violate a constraint have a grey background.

    Args:
        y_true (array-like): the labels, from 0 to 1.
        y_score (array-like): the scores: probabilities, logits or any other finite numbers.
        constraints (str or list of str, optional): constraints such as `"recall >= 0.9"`.
        weight (array-like, optional): one weight per sample.
        ax (matplotlib.axes.Axes, optional): where to draw. Default: a new figure.

    Shape:
        - `y_true`, `y_score` and `weight`: `(n,)`.

    Returns:
        matplotlib.axes.Axes: the axes.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the columns are invalid, or no threshold satisfies the constraints.

    Examples:
        >>> ax = threshold_curve([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.7], "f1")
        >>> ax.get_title()
        'f1 is 0.857 at the threshold 0.25'
    """
    chosen, required = find_metric(metric), read_constraints(constraints)
    best = best_threshold(y_true, y_score, metric, constraints=constraints, weight=weight)
    y, s, w = columns(y_true, y_score, weight)
    cuts, cells = sweep(y, s, w)
    starts = np.unique(s)  # the score of a threshold holds from one score to the next
    places = np.concatenate([[starts[0] - 0.02 * (np.ptp(starts) or 1.0)], starts])
    ax = _axes(ax)
    ax.step(
        places,
        np.broadcast_to(chosen(*cells), cuts.shape),
        where="post",
        color=BLUE,
        label=chosen.name,
    )
    fits = np.ones(cuts.shape, dtype=bool)
    for each in required:
        values = np.broadcast_to(each.metric(*cells), cuts.shape)
        fits &= each.holds(values)
        ax.step(places, values, where="post", color=VERMILION, linewidth=1, label=str(each))
        ax.axhline(each.value, color=VERMILION, linewidth=0.8, linestyle=":")
    if required:
        ends = np.append(places[1:], places[-1])
        for low, high in zip(places[~fits], ends[~fits], strict=True):
            ax.axvspan(low, high, color=GREY, alpha=0.2, linewidth=0)
        ax.legend(frameon=False)
    ax.plot([best.threshold], [best.score], "o", color=BLUE)
    ax.axvline(best.threshold, color=GREY, linewidth=0.8, linestyle="--")
    title = f"{chosen.name} is {best.score:.3f} at the threshold {best.threshold:.3g}"
    return _finished(ax, xlabel="threshold", ylabel="score", title=title)


def step(steps: Step | Sequence[Step], *, derivative: bool = False, ax: Axes | None = None) -> Axes:
    """Draw steps, the soft decision over the probability, or their derivatives.

    Steps on the logit are drawn over the probability as well.

    Args:
        steps (Step or sequence of Step): the steps, from `anyloss.steps`.
        derivative (bool): whether to draw the derivatives. Default: False.
        ax (matplotlib.axes.Axes, optional): where to draw. Default: a new figure.

    Returns:
        matplotlib.axes.Axes: the axes, with one line per step.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an element is not a step.

    Examples:
        >>> from anyloss.steps import Amplified, Uniform
        >>> ax = step([Uniform(), Amplified(10.0)])
        >>> [line.get_label() for line in ax.get_lines()][1]
        'Amplified(scale=10.0, threshold=0.5)'
    """
    given = [steps] if isinstance(steps, Step) else list(steps)
    for each in given:
        if not isinstance(each, Step):
            raise TypeError(f"steps must be steps, such as Amplified(10.0); got {each!r}")
    ax, p = _axes(ax), np.linspace(1e-6, 1 - 1e-6, 801)
    for each in given:
        at, change = (np.log(p / (1 - p)), 1 / (p * (1 - p))) if each.on_logit else (p, 1.0)
        values = each.derivative(at) * change if derivative else each.value(at)
        ax.plot(p, values, label=repr(each))
    ax.legend(frameon=False, fontsize=7, loc="best" if derivative else "lower right")
    label = "derivative of the soft decision" if derivative else "soft decision"
    return _finished(ax, xlabel="probability", ylabel=label)


@documented
def metric_surface(
    metric: MetricSpec | Metric = "f1", *, prevalence: float = 0.1, ax: Axes | None = None
) -> Axes:
    """Draw a metric over recall and precision, for a share of positives.

    Recall, precision and the share of positives determine the four counts. Points that no
    classifier can reach stay white: there the false positives would outnumber the negatives.

    Args:
        prevalence (float): the share of positives, between 0 and 1. Default: 0.1.
        ax (matplotlib.axes.Axes, optional): where to draw. Default: a new figure.

    Returns:
        matplotlib.axes.Axes: the axes, with filled contours and their colour bar.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the metric is unknown or the prevalence is not between 0 and 1.

    Examples:
        >>> metric_surface("mcc", prevalence=0.2).get_title()
        'mcc, 20 % positives'
    """
    chosen = find_metric(metric)
    if not 0 < prevalence < 1:
        raise ValueError(f"prevalence must be strictly between 0 and 1; got {prevalence!r}")
    recall, precision = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0.01, 1, 100))
    tp = prevalence * recall
    fp = tp * (1 - precision) / precision
    reached = fp <= 1 - prevalence
    fp = np.where(reached, fp, 0.0)
    score = chosen(tp, prevalence - tp, fp, 1 - prevalence - fp)
    ax = _axes(ax)
    filled = ax.contourf(recall, precision, np.where(reached, score, np.nan), 20, cmap="cividis")
    ax.figure.colorbar(filled, ax=ax, label=chosen.name)
    title = f"{chosen.name}, {100 * prevalence:g} % positives"
    return _finished(ax, xlabel="recall", ylabel="precision", title=title)


def confusion(
    y_true: Array, y_pred: Array, *, labels: Sequence[Any] | None = None, shares: bool = False,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the confusion matrix of decisions: rows are true classes, columns predicted ones.

    Args:
        y_true (array-like): the true classes.
        y_pred (array-like): the predicted classes.
        labels (sequence, optional): the classes in the order of the rows. Default: all, sorted.
        shares (bool): whether to print the share of each row instead of the counts; the colours
            are shares in both cases. Default: False.
        ax (matplotlib.axes.Axes, optional): where to draw. Default: a new figure.

    Shape:
        - `y_true` and `y_pred`: `(n,)`.

    Returns:
        matplotlib.axes.Axes: the axes.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the columns are empty or have different lengths, or hold other classes than
            `labels`.

    Examples:
        >>> ax = confusion([0, 0, 1, 1, 1], [0, 1, 1, 1, 0])
        >>> [text.get_text() for text in ax.texts]
        ['1', '1', '1', '2']
    """
    truth, decided = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or truth.shape != decided.shape or not len(truth):
        raise ValueError(
            "y_true and y_pred must be columns of one length, with at least one sample; got shapes "
            f"{truth.shape} and {decided.shape}"
        )
    found = np.unique(np.concatenate([truth, decided]))
    names = found if labels is None else np.asarray(labels)
    if not np.isin(found, names).all():
        raise ValueError(f"labels must name every class; {found.tolist()} occur, got {list(names)}")
    order = np.argsort(names)
    at, to = (order[np.searchsorted(names, x, sorter=order)] for x in (truth, decided))
    counts = np.bincount(at * len(names) + to, minlength=len(names) ** 2).reshape(len(names), -1)
    of_row = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax = _axes(ax)
    ax.imshow(of_row, vmin=0, vmax=1, cmap="Blues")
    for (i, j), share in np.ndenumerate(of_row):
        text = f"{share:.2f}" if shares else f"{counts[i, j]:,}"
        ax.text(j, i, text, ha="center", va="center", color="white" if share > 0.6 else "black")
    ticks = range(len(names))
    ax.set_xticks(ticks, [str(x) for x in names])
    ax.set_yticks(ticks, [str(x) for x in names])
    return _finished(ax, xlabel="predicted", ylabel="true")


def training(
    history: Mapping[str, Sequence[float]] | Sequence[Any], *, ax: Axes | None = None
) -> Axes:
    """Draw what was recorded in each epoch of a training.

    Args:
        history (mapping, or sequence of named tuples): the values of each curve, such as
            `History.history` of Keras, or the `history` of `anyloss.torch.refine`. Values that are
            not finite leave a gap.
        ax (matplotlib.axes.Axes, optional): where to draw. Default: a new figure.

    Returns:
        matplotlib.axes.Axes: the axes, with one line per curve.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is nothing to draw.

    Examples:
        >>> ax = training({"loss": [0.6, 0.4, 0.3], "f1": [0.5, 0.7, 0.8]})
        >>> [line.get_label() for line in ax.get_lines()]
        ['loss', 'f1']
    """
    curves = history if isinstance(history, Mapping) else _curves(history)
    if not curves or not any(len(values) for values in curves.values()):
        raise ValueError(f"history must hold at least one epoch; got {history!r}")
    ax = _axes(ax)
    for name, values in curves.items():
        ax.plot(range(1, len(values) + 1), np.asarray(values, dtype=float), ".-", label=name)
    ax.legend(frameon=False)
    return _finished(ax, xlabel="epoch", ylabel="value")


def _curves(history: Sequence[Any]) -> dict[str, list[float]]:
    """The numbers of named tuples by name; an epoch of another stage leaves a gap."""
    curves: dict[str, list[float]] = {}
    for number, epoch in enumerate(history):
        fields = epoch._asdict()
        stage = fields.pop("stage", "")
        fields.pop("number", None)
        for name, value in fields.items():
            label = f"{name} ({stage})" if stage else name
            curves.setdefault(label, [float("nan")] * len(history))[number] = float(value)
    return {name: values for name, values in curves.items() if np.isfinite(values).any()}
