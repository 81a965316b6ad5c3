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
from anyloss.boosting.blocks import BlockMetric, BlockObjective
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
    """The arguments that a library passed, checked."""

    y: Array
    score: Array
    weight: Array | None
    native: bool


def _given(first: Any, second: Any, weight: Any) -> Given:
    """Distinguish `(margins, data set)` from `(labels, margins, weights)`, and check them."""
    native = hasattr(second, "get_label")
    if native:
        y, z, weight = second.get_label(), first, second.get_weight()
    else:
        y, z = first, second
    y, z = np.asarray(y, dtype=float), np.asarray(z, dtype=float)
    weight = None if weight is None or not np.size(weight) else np.asarray(weight, dtype=float)
    if y.ndim != 1 or z.shape != y.shape or (weight is not None and weight.shape != y.shape):
        raise ValueError(
            "expected one label, one margin and one weight per row, as f(margins, data set) or "
            "f(labels, margins, weights); got shapes "
            f"{y.shape}, {z.shape} and {None if weight is None else weight.shape}. Several classes "
            "are not supported: train one class against the rest"
        )
    if weight is not None and not weight.min() >= 0:
        raise ValueError(f"weights must be 0 or more, with no NaN; got {weight.min()}")
    return Given(y, z, weight, native)


def check_labels(y: Array, both: bool = True) -> None:
    """Raise an error for labels other than 0 and 1, and for a training set of one class."""
    if (y * y != y).any():
        raise ValueError(f"labels must be 0 and 1, with no NaN; got {np.unique(y)[:5].tolist()}")
    if both and y.min() == y.max():
        raise ValueError(f"training needs rows of both classes; got one class, {y[:1].tolist()}")


class Objective:
    """`n (1 - soft metric)` for LightGBM and XGBoost, native or scikit-learn.

    >>> f1 = objective("f1")
    >>> gradient, curvature = f1(np.array([1.0, 0.0]), np.zeros(2))  # labels, margins
    >>> gradient.tolist()
    [-0.375, 0.125]
    """

    def __init__(
        self, metric: Metric, step: Step, constraints: tuple[Constraint, ...] = ()
    ) -> None:
        self.metric, self.step = metric, step
        self.moving = MovingMetric(metric, constraints)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        y, margin, weight, _ = _given(y_true, y_pred, sample_weight)
        check_labels(y)
        metric = self.moving.at(margin, y, weight)
        return gradient_and_curvature(margin, y, metric, self.step, weight)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r}, {self.step!r})"


class EvalMetric:
    """The hard metric for LightGBM and XGBoost, native or scikit-learn; higher is better.

    XGBoost maximises a metric if its name begins with "pre@", and minimises it otherwise.
    """

    def __init__(self, metric: Metric, library: str, from_logits: bool) -> None:
        self.metric, self.library, self.from_logits = metric, library, from_logits
        plain = "".join(c if c.isalnum() or c in "_.+-*/()" else "" for c in metric.name)
        self.__name__ = plain if library == "lightgbm" else f"pre@0.5-{plain}"

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        y, z, weight, native = _given(y_true, y_pred, sample_weight)
        check_labels(y, both=False)
        caller = type(y_pred).__module__.split(".")[0]
        if native and caller in LIBRARIES and caller != self.library:
            raise ValueError(
                f"this metric is for {self.library}, but {caller} called it: use "
                f"eval_metric({self.metric.name!r}, {caller!r})"
            )
        if self.from_logits and len(z) > 1 and 0 < z.min() < z.max() < 1:
            warnings.warn(
                "all margins lie between 0 and 1. If they are probabilities, as with an objective "
                "of the library's own, use eval_metric(..., from_logits=False)",
                stacklevel=2,
            )
        value = hard_score(z, y, self.metric, weight, at=0.0 if self.from_logits else 0.5)
        if self.library == "lightgbm":
            return self.__name__, value, True
        return (self.__name__, value) if native else value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric.name!r}, {self.library!r})"


def objective(
    metric: MetricSpec | Metric = "f1",
    library: str = "lightgbm",
    *,
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
    the curvature of `anyloss.boosting.core`. The start margin should be 0: with XGBoost's native
    interface set `base_score=0.0` (its default of 0.5 is a margin there); `XGBClassifier` needs no
    setting (0.5 is a probability there).

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        library (str): `"lightgbm"`, `"xgboost"` or `"catboost"`. Default: `"lightgbm"`.
        scale (float or str): the sharpness of the soft decision. `"auto"`, the default, is the
            probability itself; a number is AnyLoss's `sigmoid(scale (p - 1/2))`.
        step (Step, optional): any other step with a derivative, instead of `scale`.
        y_true (array, optional): for CatBoost only, which passes an objective blocks of rows: the
            labels of the training set, for the counts of the first tree.
        margin (array or float): for CatBoost only, with `y_true`: the start margins. Default: 0.
        sample_weight (array, optional): for CatBoost only, with `y_true`: the weights.
        constraints (str or list of str, optional): constraints such as `"recall >= 0.9"`. Each
            round maximises the Lagrangian, whose multipliers follow the hard decisions of the
            rounds before; one objective serves one fit then.
        **params (float): parameters of the metric, such as `beta=2` for `"fbeta"`.

    Shape:
        - `y_true`, `margin`, `sample_weight`: `(n,)`.

    Returns:
        callable: for LightGBM and XGBoost, a function that returns gradient and curvature. For
        CatBoost, an object to pass as `loss_function` and as `eval_metric`, together with the
        settings in `anyloss.boosting.blocks.SETTINGS`; one object serves one fit.

    Raises:
        ValueError: if the library is unknown, both `scale` and `step` are given, or CatBoost's
            arguments are given for another library.
        TypeError: if `step` has no derivative.
        ImportError: if the library is missing or too old.

    Examples:
        >>> objective("mcc", "xgboost", scale=10)
        Objective('mcc', Amplified(scale=10, threshold=0.5))
        >>> gradient, curvature = objective("f1")(np.array([1.0, 0.0]), np.zeros(2))
        >>> gradient.tolist(), curvature.tolist()
        ([-0.375, 0.125], [0.25, 0.25])
    """
    require(library)
    chosen, required = find_metric(metric, **params), read_constraints(constraints)
    if step is not None and (not isinstance(step, Step) or isinstance(step, Hard)):
        raise TypeError(
            f"step must be one of anyloss.steps with a derivative, not Hard; got {step!r}"
        )
    if step is not None and scale != "auto":
        raise ValueError(f"pass either scale or step; got scale={scale!r} and step={step!r}")
    step = step_of(scale) if step is None else step
    if library != "catboost":
        if y_true is not None or sample_weight is not None or np.any(margin):
            raise ValueError(
                f"y_true, margin and sample_weight are for CatBoost; {library} passes them "
                "itself (set the start margin by init_score or base_margin)"
            )
        return Objective(chosen, step, required)
    y = None if y_true is None else np.asarray(y_true, dtype=float)
    if y is not None:
        check_labels(y)
    elif sample_weight is not None or np.any(margin):
        raise ValueError("sample_weight and margin belong to labels: pass y_true as well")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return BlockObjective(chosen, step, y, margin, weight, required)


def eval_metric(
    metric: MetricSpec | Metric = "f1",
    library: str = "lightgbm",
    *,
    from_logits: bool = True,
    **params: float,
) -> Any:
    """The metric of the hard decisions as an evaluation metric, for example for early stopping.

    LightGBM and XGBoost pass margins if the objective is ours, and probabilities if it is their own
    (then use `from_logits=False`); CatBoost always passes margins. XGBoost reports the metric as
    "pre@0.5-f1", because it maximises names that begin with "pre@" and minimises others.

    Args:
        metric (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`.
            Default: `"f1"`.
        library (str): `"lightgbm"`, `"xgboost"` or `"catboost"`. Default: `"lightgbm"`.
        from_logits (bool): whether the library passes margins (True) or probabilities (False).
            Default: True.
        **params (float): parameters of the metric, such as `beta=2` for `"fbeta"`.

    Returns:
        callable: for LightGBM and XGBoost a function of labels and scores, for CatBoost an object.

    Raises:
        ValueError: if the library is unknown, or `from_logits=False` is given for CatBoost.
        ImportError: if the library is missing or too old.

    Examples:
        >>> eval_metric("f1")(np.array([1, 1, 0]), np.array([2.0, -1.0, -3.0]))
        ('f1', 0.6666666666666666, True)
    """
    require(library)
    chosen = find_metric(metric, **params)
    if library != "catboost":
        return EvalMetric(chosen, library, from_logits)
    if not from_logits:
        raise ValueError("CatBoost passes margins: use from_logits=True")
    return BlockMetric(chosen)
