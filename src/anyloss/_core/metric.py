"""What a metric is: a function of the four counts, with parameters and a few known properties.

`named` registers the metrics of `anyloss.metrics`; `Metric` is a metric that is ready to use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.cell import Cell
from anyloss._core.formula import CELLS

MetricFunction = Callable[..., Any]
MetricSpec = str | MetricFunction
ClassSums = tuple[MetricFunction, MetricFunction]

METRICS: dict[str, MetricFunction] = {}  # every name of every metric
TITLES: dict[MetricFunction, str] = {}
TEXTBOOK: dict[MetricFunction, MetricFunction] = {}  # the formulas, without safe arithmetic
# The forms for several classes, see `named`.
SUMMED_FORMS: dict[MetricFunction, ClassSums] = {}
RECALL_MEANS: dict[MetricFunction, int] = {}


def named(
    title: str,
    *aliases: str,
    class_sums: ClassSums | None = None,
    recall_mean: int | None = None,
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric under its own name and its aliases, and make it safe for plain numbers.

    A metric may have a form of its own for several classes, which equals the binary metric for two
    classes. It is computed from the counts of each class against the rest. `class_sums` is a pair
    of functions: the first one computes parts from the counts of a class, and the second one
    combines the sums of these parts over the classes. `recall_mean` is the power of a mean of the
    classes' recalls: 1 for the arithmetic, 0 for the geometric and -1 for the harmonic mean.
    """

    def register(function: MetricFunction) -> MetricFunction:
        @wraps(function)
        def safe(tp: Array, fn: Array, fp: Array, tn: Array, **params: float) -> Array:
            return evaluate(function, tp, fn, fp, tn, params)

        TITLES[safe], TEXTBOOK[safe] = title, function
        if class_sums is not None:
            SUMMED_FORMS[safe] = class_sums
        if recall_mean is not None:
            RECALL_MEANS[safe] = recall_mean
        for name in (function.__name__, *aliases):
            METRICS[name] = safe
        return safe

    return register


def evaluate(
    function: MetricFunction, tp: Array, fn: Array, fp: Array, tn: Array, params: Mapping[str, Any]
) -> Array:
    """Call a metric by keyword; floats and NumPy arrays are wrapped for safe arithmetic."""
    if type(tp) is Cell:
        result = function(tp=tp, fn=fn, fp=fp, tn=tn, **params)
        return result if type(result) is Cell else tp * 0.0 + result  # a constant function
    given = (tp, fn, fp, tn)
    if all(isinstance(x, int | float | np.number) for x in given):
        cells = [Cell(float(x)) for x in given]
    elif all(isinstance(x, int | float | np.number | np.ndarray) for x in given):
        cells = [Cell(np.asarray(x, dtype=float), backend=NUMPY) for x in given]
    else:
        return function(tp=tp, fn=fn, fp=fp, tn=tn, **params)
    result = function(**dict(zip(CELLS, cells, strict=True)), **params)
    return result.value if isinstance(result, Cell) else result


def _costs_of_class(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, Array]:
    return fp, tp + fn + fp + tn


@dataclass(frozen=True)
class CostMatrix:
    """The costs of several classes above those of correct decisions: rows true, columns predicted.

    It stands in a `Metric` where others have their function of `tp, fn, fp, tn`, and refuses to be
    one. `anyloss._core.costs` makes the false positives of a class the costs of deciding for it.

    >>> CostMatrix(((0.0, 1.0), (5.0, 0.0))).name
    'cost_matrix([[0, 1], [5, 0]])'
    """

    costs: tuple[tuple[float, ...], ...]

    def __call__(self, tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
        classes = len(self.costs)
        raise ValueError(
            f"a cost matrix of {classes} classes is a function of every true and predicted class, "
            "not of tp, fn, fp and tn of a class against the rest. It is for "
            "scores, losses and classifiers of several classes with average='auto'; elsewhere use "
            "the metric 'cost' with fn_cost= and fp_cost="
        )

    @property
    def name(self) -> str:
        """The call that makes the metric."""
        rows = (f"[{', '.join(f'{x:g}' for x in row)}]" for row in self.costs)
        return f"cost_matrix([{', '.join(rows)}])"

    @property
    def class_sums(self) -> ClassSums:
        """The multiclass form: one minus the costs as a share of the largest possible ones.

        The counts are those of `anyloss._core.costs`: false positives are costs, and the counts of
        each class sum to the largest possible cost.
        """
        return _costs_of_class, lambda cost, most: 1 - len(self.costs) * cost / most

    @cached_property
    def largest(self) -> list[list[float]]:
        """The largest cost of each true class, `(C, 1)`, in a unit that makes the largest 1 to 2.

        The unit is a power of two, so that nothing is rounded.

        >>> CostMatrix(((0.0, 1.0, 1.0), (5.0, 0.0, 2.0), (10.0, 1.0, 0.0))).largest
        [[0.125], [0.625], [1.25]]
        """
        shares: list[list[float]] = self._in_unit.max(axis=1, keepdims=True).tolist()
        return shares

    @cached_property
    def savings(self) -> list[list[float]]:
        """How much less than the largest cost of its row each cost is, in the unit of `largest`."""
        less: list[list[float]] = (np.array(self.largest) - self._in_unit).tolist()
        return less

    @property
    def _in_unit(self) -> Array:
        costs = np.array(self.costs)
        return costs / 2.0 ** (math.frexp(costs.max())[1] - 1)

    def saved(self, decided: Array) -> Array:
        """The score of sums `(..., C, C)` of the samples: rows true, columns predicted.

        >>> float(CostMatrix(((0.0, 1.0), (3.0, 0.0))).saved(np.array([[8, 2], [1, 1]])))
        0.6875
        """
        costs = np.array(self.costs)
        cost = (decided * costs).sum(axis=(-2, -1))
        most = (decided.sum(axis=-1) * costs.max(axis=-1)).sum(axis=-1)
        return 1 - cost / np.where(most > 0, most, np.inf)


@dataclass(frozen=True)
class Metric:
    """A metric that is ready to use; `anyloss.metric` makes it.

    A metric is called with the four counts, `m(tp, fn, fp, tn)`, by position or by keyword. The
    counts are numbers or NumPy arrays. A division by zero gives 0, with a derivative of 0. Equal
    metrics have equal hashes.

    Attributes:
        name (str): the name in `anyloss.METRICS`, the text of the formula, or the name of the
            function.
        function (callable): the function of `tp, fn, fp, tn`.
        params (dict): the parameters of the metric, such as `{"beta": 2}`.
        undefined_without (tuple of bool): whether a perfect decision gives 0/0 without a positive
            sample, and without a negative sample.
        second_is_positive (bool): whether the second of two classes is the positive one, as in a
            matrix of costs. For other metrics classifiers take the rarer class by default.

    Examples:
        >>> from anyloss import metric
        >>> metric("f1")(tp=6, fn=2, fp=2, tn=90)
        0.75
        >>> metric("fbeta", beta=2)
        metric('fbeta', beta=2)
        >>> metric("f1").undefined_without, metric("specificity").undefined_without
        ((True, False), (False, True))
    """

    name: str
    function: MetricFunction
    params: Mapping[str, float] = field(default_factory=dict)
    undefined_without: tuple[bool, bool] = field(default=(False, False), compare=False, repr=False)
    second_is_positive: bool = False

    def __call__(self, tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
        try:
            if type(tp) is Cell and not self.params and self.function in TEXTBOOK:
                return TEXTBOOK[self.function](tp, fn, fp, tn)  # straight to the formula
            return evaluate(self.function, tp, fn, fp, tn, self.params)
        except ArithmeticError as error:
            raise ValueError(
                f"metric {self.name!r} is not finite for these counts: {error}"
            ) from error
        except TypeError as error:
            raise TypeError(
                f"metric {self.name!r} could not be computed: {error}. A metric is a function of "
                "tp, fn, fp, tn that uses + - * / and ** only (x**0.5 for a root)"
            ) from error

    @property
    def is_named(self) -> bool:
        """Whether the metric is one of `anyloss.METRICS`, not a user's formula or function."""
        return self.function in TEXTBOOK

    @property
    def title(self) -> str:
        """The title of a named metric, such as "Precision"; otherwise its name."""
        return TITLES[self.function] if self.is_named else self.name

    @property
    def meaning(self) -> str:
        """The first line of a named metric's docstring, to follow its title; otherwise "".

        >>> from anyloss import metric
        >>> metric("f1").title, metric("f1").meaning
        ('F1', 'the harmonic mean of precision and recall')
        """
        text = (self.function.__doc__ or "").partition("\n")[0] if self.is_named else ""
        return (text[:1].lower() + text[1:]).removesuffix(".")

    @property
    def has_own_form(self) -> bool:
        """Whether the metric has a form of its own for several classes."""
        return self.class_sums is not None or self.function in RECALL_MEANS

    @property
    def class_sums(self) -> ClassSums | None:
        """The form for several classes of sums over the classes, if the metric has one."""
        costs = self.cost_matrix
        return SUMMED_FORMS.get(self.function) if costs is None else costs.class_sums

    @property
    def cost_matrix(self) -> CostMatrix | None:
        """The costs of several classes, if the metric is made of them."""
        return self.function if isinstance(self.function, CostMatrix) else None

    def undefined(self, counts: Iterable[Array]) -> Array:
        """True where the formula is 0/0 at these counts: NumPy arrays or a framework's tensors."""
        function = TEXTBOOK.get(self.function, self.function)
        cells = dict(zip(CELLS, counts, strict=True))
        if isinstance(cells["tp"], (np.ndarray, np.number)):  # compilers know no union of these
            with np.errstate(all="ignore"):
                value = function(**cells, **self.params)
        else:
            value = function(**cells, **self.params)
        return value != value  # NaN only

    def __hash__(self) -> int:  # a static argument of jax.jit needs a hash
        return hash((self.name, *sorted(self.params.items())))

    def __repr__(self) -> str:
        if self.cost_matrix is not None:
            return self.name
        params = "".join(f", {key}={value!r}" for key, value in self.params.items())
        return f"metric({self.name!r}{params})"
