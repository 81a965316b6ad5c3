"""Objectives and evaluation metrics in the form that each library expects.

LightGBM and XGBoost call a function of two or three arguments. Their native interfaces pass margins
and a data set, their scikit-learn interfaces pass labels, margins and weights; the type of the
second argument decides. CatBoost calls methods of an object; see `blocks`.
"""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.backend import Array
from anyloss._core.constraints import Constraint, ConstraintSpec, read_constraints
from anyloss._core.scoring import check_average
from anyloss.boosting import several
from anyloss.boosting.blocks import BlockMetric, BlockObjective, for_labels
from anyloss.boosting.constrained import MovingMetric
from anyloss.boosting.core import gradient_and_curvature, hard_score, step_of
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import Hard, Step

LIBRARIES = {"lightgbm": (4, 7), "xgboost": (3, 0), "catboost": (1, 2)}  # the oldest versions


def require(library: str) -> Any:
    """Import a library, or raise an error with the command that installs it."""
    if library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(LIBRARIES)}; got {library!r}")
    hint = "install it with: pip install 'anyloss[boosting]'"
    try:
        module = import_module(library)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"this needs {library}; {hint}") from error
    oldest, found = LIBRARIES[library], str(module.__version__)
    if tuple(int(x) for x in re.findall(r"\d+", found)[:2]) < oldest:
        wanted = ".".join(map(str, oldest))
        raise ImportError(f"this needs {library} {wanted} or newer; got {found}. {hint}")
    return module


class Given(NamedTuple):
    """The arguments that a library passed, checked: labels and scores `(n,)` or `(n, columns)`."""

    y: Array
    score: Array
    weight: Array | None
    native: bool


def _given(first: Any, second: Any, weight: Any, y_true: Array | None = None) -> Given:
    """Distinguish `(margins, data set)` from `(labels, margins, weights)`, and check them.

    `y_true` takes the place of the labels of a library that has one label per row.
    """
    native = hasattr(second, "get_label")
    if native:
        y, z, weight = second.get_label(), first, second.get_weight()
    else:
        y, z = first, second
    y, z = np.asarray(y if y_true is None else y_true, dtype=float), np.asarray(z, dtype=float)
    weight = None if weight is None or not np.size(weight) else np.asarray(weight, dtype=float)
    shaped = z.shape == y.shape and z.ndim in (1, 2)
    classes = z.ndim == 2 and y.shape == z.shape[:1] and z.shape[1] > 1
    if not (shaped or classes) or (weight is not None and weight.shape != y.shape[:1]):
        raise ValueError(
            "expected one label, one margin and one weight per row, as f(margins, data set) or "
            "f(labels, margins, weights); for several classes one margin per class, for several "
            f"labels also one label per column; got shapes {y.shape}, {z.shape} and "
            f"{None if weight is None else weight.shape}"
        )
    if weight is not None and not weight.min() >= 0:
        raise ValueError(f"weights must be 0 or more, with no NaN; got {weight.min()}")
    if not classes:
        check_labels(y, both=False)
    return Given(y, z, weight, native)


def check_labels(y: Array, both: bool = True) -> None:
    """Raise an error for labels other than 0 and 1, and for a training set of one class."""
    if (y * y != y).any():
        raise ValueError(f"labels must be 0 and 1, with no NaN; got {np.unique(y)[:5].tolist()}")
    if both:
        check_both(y)


def check_both(y: Array) -> None:
    """Raise an error for a training set of one class, or without a label or with all of them."""
    if y.min() == y.max():
        raise ValueError(f"training needs rows of both classes; got one class, {y[:1].tolist()}")


def check_several(metric: Metric, average: str) -> None:
    """Raise an error for an average that has no single number, or that the metric does not have."""
    check_average(metric, average)
    if average in (None, "none", "samples"):
        raise ValueError(
            "boosting needs one number of all rows, and average=None gives one per class, "
            f"average='samples' one per row; got average={average!r}. Use 'macro', 'micro' or "
            "'weighted'"
        )


class Objective:
    """`n (1 - soft metric)` for LightGBM and XGBoost, native or scikit-learn.

    >>> f1 = objective("f1")
    >>> gradient, curvature = f1(np.array([1.0, 0.0]), np.zeros(2))  # labels, margins
    >>> gradient.tolist()
    [-0.375, 0.125]
    """

    def __init__(
        self, metric: Metric, step: Step, average: str, y: Array | None = None,
        constraints: tuple[Constraint, ...] = (),
    ) -> None:  # fmt: skip
        self.metric, self.step, self.average, self.y = metric, step, average, y
        self.moving = MovingMetric(several.for_two_classes(metric, average), constraints)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        y, margin, weight, _ = _given(y_true, y_pred, sample_weight, self.y)
        check_both(y)
        if margin.ndim == 1:
            metric = self.moving.at(margin, y, weight)
            return gradient_and_curvature(margin, y, metric, self.step, weight)
        self.moving.check_columns(margin)
        y, lay = several.as_columns(y, margin, self.metric, self.average)
        return several.gradient_and_curvature(margin, y, self.metric, lay, self.step, weight)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r}, {self.step!r})"


class EvalMetric:
    """The hard metric for LightGBM and XGBoost, native or scikit-learn; higher is better.

    XGBoost maximises a metric if its name begins with "pre@", and minimises it otherwise.
    """

    def __init__(
        self, metric: Metric, library: str, from_logits: bool, average: str, y: Array | None
    ) -> None:
        self.metric, self.library, self.from_logits = metric, library, from_logits
        self.average, self.y = average, y
        self.two_classes = several.for_two_classes(metric, average)
        name = metric.name if metric.cost_matrix is None else "cost_matrix"
        plain = "".join(c if c.isalnum() or c in "_.+-*/()" else "" for c in name)
        self.__name__ = plain if library == "lightgbm" else f"pre@0.5-{plain}"

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        y, z, weight, native = _given(y_true, y_pred, sample_weight, self.y)
        classes = z.ndim > y.ndim  # of these, margins and probabilities decide alike
        caller = type(y_pred).__module__.split(".")[0]
        if native and caller in LIBRARIES and caller != self.library:
            raise ValueError(
                f"this metric is for {self.library}, but {caller} called it: use "
                f"eval_metric({self.metric.name!r}, {caller!r})"
            )
        if self.from_logits and not classes and len(z) > 1 and 0 < z.min() < z.max() < 1:
            warnings.warn(
                "all margins lie between 0 and 1. If they are probabilities, as with an objective "
                "of the library's own, use eval_metric(..., from_logits=False)",
                stacklevel=2,
            )
        at = 0.0 if self.from_logits else 0.5
        if z.ndim == 1:
            value = hard_score(z, y, self.two_classes, weight, at=at)
        else:
            y, lay = several.as_columns(y, z, self.metric, self.average)
            value = several.hard_score(z - at, y, self.metric, lay, weight)
        if self.library == "lightgbm":
            return self.__name__, value, True
        return (self.__name__, value) if native else value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r}, {self.library!r})"


def objective(
    metric: MetricSpec | Metric = "f1",
    library: str = "lightgbm",
    *,
    average: str = "auto",
    scale: float | str = "auto",
    step: Step | None = None,
    y_true: Array | None = None,
    margin: Array | float = 0.0,
    sample_weight: Array | None = None,
    constraints: ConstraintSpec | None = None,
    **params: float,
) -> Any:
    """A training objective that maximises the soft metric of the whole training set.

    It is `n (1 - score)` of the soft counts, with its exact gradient, also for weighted rows, and
    the curvature of `anyloss.boosting.core` (two classes) or `anyloss.boosting.several`. The shapes
    decide the task: one margin per row for two classes, several for classes (the labels are class
    numbers; set the library's number of classes) or labels (a matrix of 0 and 1). The start margin
    should be 0: with XGBoost's native interface set `base_score=0.0` (its default of 0.5 is a
    margin there); `XGBClassifier` needs no setting (0.5 is a probability there).

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        library (str): `"lightgbm"`, `"xgboost"` or `"catboost"`. Default: `"lightgbm"`.
        average (str): how several classes or labels are combined: `"macro"`, `"micro"`,
            `"weighted"`, or `"multiclass"` for a metric with a multiclass form. `"auto"`, the
            default, is the metric's own form if it has one, else `"macro"`.
        scale (float or str): the sharpness of the soft decision. `"auto"`, the default, is the
            probability itself; a number is AnyLoss's `sigmoid(scale (p - 1/2))`.
        step (Step, optional): any other step with a derivative, instead of `scale`.
        y_true (array, optional): the labels of the training set. CatBoost needs them for the counts
            of the first tree, because it passes an objective blocks of rows; LightGBM needs those
            of several labels, because its data sets have one label per row.
        margin (array or float): for CatBoost only, with `y_true`: the start margins. Default: 0.
        sample_weight (array, optional): for CatBoost only, with `y_true`: the weights.
        constraints (str or list of str, optional): constraints such as `"recall >= 0.9"`. Each
            round maximises the Lagrangian, whose multipliers follow the hard decisions of the
            rounds before; one objective serves one fit then.
        **params (float): parameters of the metric, such as `beta=2` for `"fbeta"`.

    Shape:
        - `y_true`: `(n,)`, or `(n, labels)`.
        - `margin`: `(n,)`, or `(n, classes)`.
        - `sample_weight`: `(n,)`.

    Returns:
        callable: for LightGBM and XGBoost, a function that returns gradient and curvature. For
        CatBoost, an object to pass as `loss_function` and as `eval_metric`, together with the
        settings in `anyloss.boosting.blocks.SETTINGS`; one object serves one fit.

    Raises:
        ValueError: if the library is unknown, both `scale` and `step` are given, the average does
            not suit, or arguments are given for another library.
        TypeError: if `step` has no derivative.
        ImportError: if the library is missing or too old.

    Examples:
        >>> objective("mcc", "xgboost", scale=10)
        Objective('mcc', Amplified(scale=10, threshold=0.5))
        >>> gradient, curvature = objective("f1")(np.array([1.0, 0.0]), np.zeros(2))
        >>> gradient.tolist(), curvature.tolist()
        ([-0.375, 0.125], [0.25, 0.25])
        >>> gradient, curvature = objective("f1")(np.array([1, 0, 2]), np.zeros((3, 3)))
        >>> gradient.round(4)[0].tolist()
        [0.1111, -0.2222, 0.1111]
    """
    require(library)
    chosen, required = find_metric(metric, **params), read_constraints(constraints)
    check_several(chosen, average)
    if step is not None and (not isinstance(step, Step) or isinstance(step, Hard)):
        raise TypeError(
            f"step must be one of anyloss.steps with a derivative, not Hard; got {step!r}"
        )
    if step is not None and scale != "auto":
        raise ValueError(f"pass either scale or step; got scale={scale!r} and step={step!r}")
    step = step_of(scale) if step is None else step
    y = None if y_true is None else np.asarray(y_true, dtype=float)
    if library != "catboost":
        labels = library == "lightgbm" and y is not None and y.ndim == 2
        if (y is not None and not labels) or sample_weight is not None or np.any(margin):
            raise ValueError(
                "y_true (of two classes or several), margin and sample_weight are for CatBoost; "
                f"{library} passes them itself (set the start margin by init_score or base_margin)"
            )
        return Objective(chosen, step, average, y, required)
    if y is None and (sample_weight is not None or np.any(margin)):
        raise ValueError("sample_weight and margin belong to labels: pass y_true as well")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if y is None or y.ndim == 1:
        if y is not None and (np.ndim(margin) < 2 and len(np.unique(y)) <= 2):
            check_labels(y)
        return BlockObjective(chosen, step, average, y, margin, weight, required)
    check_labels(y)
    return for_labels(BlockObjective)(chosen, step, average, y, margin, weight, required)


def eval_metric(
    metric: MetricSpec | Metric = "f1",
    library: str = "lightgbm",
    *,
    average: str = "auto",
    from_logits: bool = True,
    y_true: Array | None = None,
    **params: float,
) -> Any:
    """The metric of the hard decisions as an evaluation metric, for example for early stopping.

    LightGBM and XGBoost pass margins if the objective is ours, and probabilities if it is their own
    (then use `from_logits=False`, except for several classes, of which the highest score is
    predicted either way); CatBoost always passes margins. XGBoost reports the metric as
    "pre@0.5-f1", because it maximises names that begin with "pre@" and minimises others.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        library (str): `"lightgbm"`, `"xgboost"` or `"catboost"`. Default: `"lightgbm"`.
        average (str): how several classes or labels are combined, as in `objective`.
        from_logits (bool): whether the library passes margins (True) or probabilities (False).
            Default: True.
        y_true (array, optional): several labels of the rows that are evaluated: LightGBM needs
            them, because its data sets have one label per row; CatBoost needs to know that there
            are several.
        **params (float): parameters of the metric, such as `beta=2` for `"fbeta"`.

    Shape:
        - `y_true`: `(n, labels)`.

    Returns:
        callable: for LightGBM and XGBoost a function of labels and scores, for CatBoost an object.

    Raises:
        ValueError: if the library is unknown, the average does not suit, `from_logits=False` is
            given for CatBoost, or `y_true` is not a matrix of labels or is given for XGBoost.
        ImportError: if the library is missing or too old.

    Examples:
        >>> eval_metric("f1")(np.array([1, 1, 0]), np.array([2.0, -1.0, -3.0]))
        ('f1', 0.6666666666666666, True)
    """
    require(library)
    chosen = find_metric(metric, **params)
    check_several(chosen, average)
    y = None if y_true is None else np.asarray(y_true, dtype=float)
    if y is not None and (library == "xgboost" or y.ndim != 2):
        raise ValueError(
            "y_true is a matrix of several labels, for LightGBM and CatBoost; got shape "
            f"{y.shape} for {library}, which passes its labels itself"
        )
    if library != "catboost":
        return EvalMetric(chosen, library, from_logits, average, y)
    if not from_logits:
        raise ValueError("CatBoost passes margins: use from_logits=True")
    return (BlockMetric if y is None else for_labels(BlockMetric))(chosen, average)
