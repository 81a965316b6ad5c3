"""Every named metric: a function of the four cells of the confusion matrix, higher is better.

A metric is its textbook line, written with operators only (`**0.5` for a root). Inside a metric a
division by zero is 0 with slope 0 (see `arithmetic`), which is scikit-learn's `zero_division=0`.

To add one: write its function here with a doctest, and add one row to `tests/test_metrics.py`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np

from anyloss._core.backend import NUMPY, Array
from anyloss._core.cell import Cell
from anyloss._core.formula import CELLS, Formula, Written

MetricFunction = Callable[..., Any]
MetricSpec = str | MetricFunction

METRICS: dict[str, MetricFunction] = {}
RANKING = {"auroc", "auc", "roc_auc", "roc_auc_score", "average_precision", "auprc", "pr_auc"}
_TEXTBOOK: dict[MetricFunction, MetricFunction] = {}  # without the guard for plain numbers


def _named(*aliases: str) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric under its own name and its usual other names, safe for plain numbers."""

    def register(function: MetricFunction) -> MetricFunction:
        @wraps(function)
        def safe(tp: Array, fn: Array, fp: Array, tn: Array, **params: float) -> Array:
            return _evaluate(function, tp, fn, fp, tn, params)

        _TEXTBOOK[safe] = function
        for name in (function.__name__, *aliases):
            METRICS[name] = safe
        return safe

    return register


def _evaluate(
    function: MetricFunction, tp: Array, fn: Array, fp: Array, tn: Array, params: Mapping[str, Any]
) -> Array:
    """Call a metric by keyword; floats and NumPy arrays get the safe arithmetic on the way."""
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


@_named("acc")
def accuracy(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Accuracy: the share of rows decided rightly.

    >>> accuracy(tp=6, fn=2, fp=2, tn=90)
    0.96
    """
    return (tp + tn) / (tp + fn + fp + tn)


@_named("ppv", "positive_predictive_value")
def precision(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Precision: the share of alarms that are right.

    >>> precision(tp=6, fn=2, fp=2, tn=90)
    0.75
    """
    return tp / (tp + fp)


@_named("sensitivity", "tpr", "true_positive_rate", "hit_rate", "pod")
def recall(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Recall: the share of positives that are found.

    >>> recall(tp=6, fn=2, fp=2, tn=90)
    0.75
    """
    return tp / (tp + fn)


@_named("tnr", "true_negative_rate", "selectivity")
def specificity(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Specificity: the share of negatives left alone.

    >>> specificity(tp=6, fn=2, fp=8, tn=92)
    0.92
    """
    return tn / (tn + fp)


@_named("negative_predictive_value")
def npv(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Negative predictive value: the share of all-clears that are right.

    >>> npv(tp=6, fn=8, fp=2, tn=92)
    0.92
    """
    return tn / (tn + fn)


@_named("f1_score", "f_measure", "dice")
def f1(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """F1, also Dice: the harmonic mean of precision and recall.

    >>> f1(tp=6, fn=2, fp=2, tn=90)
    0.75
    """
    return 2 * tp / (2 * tp + fp + fn)


@_named("fbeta_score", "f_beta")
def fbeta(tp: Array, fn: Array, fp: Array, tn: Array, *, beta: float = 1.0) -> Array:
    """F-beta: the weighted harmonic mean of precision and recall; recall counts beta times.

    >>> fbeta(tp=6, fn=2, fp=2, tn=90, beta=2)
    0.75
    """
    b2 = beta**2
    return (1 + b2) * tp / ((1 + b2) * tp + b2 * fn + fp)


@_named("g_mean", "geometric_mean")
def gmean(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """G-mean: the geometric mean of recall and specificity.

    >>> gmean(tp=64, fn=36, fp=0, tn=100)
    0.8
    """
    return (tp / (tp + fn) * tn / (tn + fp)) ** 0.5


@_named("h_mean", "harmonic_mean")
def hmean(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """H-mean: the harmonic mean of recall and specificity.

    >>> hmean(tp=6, fn=2, fp=5, tn=5)
    0.6
    """
    return 2 * (tp / (tp + fn)) * (tn / (tn + fp)) / (tp / (tp + fn) + tn / (tn + fp))


@_named("bacc", "balanced_acc")
def balanced_accuracy(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Balanced accuracy: the mean of recall and specificity. An absent class counts 0.

    >>> balanced_accuracy(tp=6, fn=2, fp=0, tn=10)
    0.875
    """
    return (tp / (tp + fn) + tn / (tn + fp)) / 2


def _correlation(covariance: Array, predicted: Array, actual: Array) -> Array:
    # Two roots, not the root of a product: four factors of 1e10 rows overflow float32.
    return covariance / (predicted**0.5 * actual**0.5)


def _correlation_parts(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    return tp * tn - fp * fn, (tp + fp) * (fn + tn), (tp + fn) * (fp + tn)


@_named("matthews", "matthews_corrcoef", "phi")
def mcc(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Matthews correlation coefficient: the correlation of decision and label, in [-1, 1].

    >>> mcc(tp=8, fn=2, fp=2, tn=8)
    0.6
    """
    return _correlation(*_correlation_parts(tp, fn, fp, tn))


@_named("iou", "csi", "threat_score", "critical_success_index")
def jaccard(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Jaccard index: hits over everything that is or was called positive.

    >>> jaccard(tp=6, fn=2, fp=2, tn=90)
    0.6
    """
    return tp / (tp + fn + fp)


@_named("kappa", "hss", "heidke")
def cohen_kappa(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Cohen's kappa, also Heidke skill score: agreement beyond chance.

    >>> cohen_kappa(tp=8, fn=2, fp=2, tn=8)
    0.6
    """
    return 2 * (tp * tn - fp * fn) / ((tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))


@_named("youden", "youden_j", "tss", "peirce", "bookmaker")
def informedness(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Informedness, also Youden's J and true skill statistic: recall + specificity - 1.

    >>> informedness(tp=6, fn=2, fp=0, tn=10)
    0.75
    """
    return tp / (tp + fn) + tn / (tn + fp) - 1


@_named("delta_p")
def markedness(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Markedness: precision + negative predictive value - 1.

    >>> markedness(tp=6, fn=0, fp=2, tn=10)
    0.75
    """
    return tp / (tp + fp) + tn / (tn + fn) - 1


@_named("fm")
def fowlkes_mallows(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """Fowlkes-Mallows index: the geometric mean of precision and recall.

    >>> fowlkes_mallows(tp=6, fn=3, fp=0, tn=90) == (6 / 9) ** 0.5
    True
    """
    return (tp / (tp + fp) * tp / (tp + fn)) ** 0.5


@_named("tversky_index")
def tversky(
    tp: Array, fn: Array, fp: Array, tn: Array, *, alpha: float = 0.5, beta: float = 0.5
) -> Array:
    """Tversky index: Jaccard with false alarms weighing `alpha` and misses `beta`.

    >>> tversky(tp=6, fn=2, fp=4, tn=90, alpha=0.25, beta=0.5)
    0.75
    """
    return tp / (tp + alpha * fp + beta * fn)


@_named("p4_metric")
def p4(tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
    """P4: the harmonic mean of precision, recall, specificity and negative predictive value.

    >>> p4(tp=8, fn=2, fp=2, tn=8)
    0.8
    """
    return 4 * tp * tn / (4 * tp * tn + (tp + tn) * (fp + fn))


@_named("cost_score")
def cost(
    tp: Array, fn: Array, fp: Array, tn: Array, *, fn_cost: float = 1.0, fp_cost: float = 1.0
) -> Array:
    """Cost saved: 1 for no error, 0 for every row wrong, each error at its price.

    >>> cost(tp=6, fn=2, fp=4, tn=88, fn_cost=10, fp_cost=1) == 1 - 24 / 172
    True
    """
    return 1 - (fn_cost * fn + fp_cost * fp) / (fn_cost * (tp + fn) + fp_cost * (fp + tn))


def _shares(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    """The cells as shares of all rows: products of them neither overflow nor vanish in float32."""
    rows = tp + fn + fp + tn
    return tp / rows, fn / rows, fp / rows, tn / rows


def _agreement_parts(tp: Array, fn: Array, fp: Array, tn: Array) -> tuple[Array, ...]:
    tp, fn, fp, tn = _shares(tp, fn, fp, tn)
    return tp * tn - fp * fn, (tp + fn) * (fn + tn)


# Genuine multiclass forms, from the cells of each class against the rest. With two classes all of
# them are the binary metric. In some, parts are summed over the classes, then combined (MCC becomes
# Gorodkin's R_K); the others are a mean of the classes' recalls, named by its power: 1 is the
# arithmetic mean, 0 the geometric, -1 the harmonic one.
SUMMED_FORMS: dict[MetricFunction, tuple[MetricFunction, MetricFunction]] = {
    mcc: (lambda tp, fn, fp, tn: _correlation_parts(*_shares(tp, fn, fp, tn)), _correlation),
    cohen_kappa: (_agreement_parts, lambda agreement, room: agreement / room),
    accuracy: (lambda tp, fn, fp, tn: (tp, tp + fn), lambda right, rows: right / rows),
}
RECALL_MEANS: dict[MetricFunction, int] = {balanced_accuracy: 1, gmean: 0, hmean: -1}


@dataclass(frozen=True)
class Metric:
    """A metric ready to use: call it with the four cells, by position or by keyword.

    >>> metric("fbeta", beta=2)
    metric('fbeta', beta=2)
    >>> metric("f1")(tp=6, fn=2, fp=2, tn=90)
    0.75
    >>> metric("f1").undefined_without, metric("specificity").undefined_without
    ((True, False), (False, True))
    """

    name: str
    function: MetricFunction
    params: Mapping[str, float] = field(default_factory=dict)
    # Whether a perfect decision gives 0/0 without a positive sample, and without a negative one.
    undefined_without: tuple[bool, bool] = field(default=(False, False), compare=False, repr=False)

    def __call__(self, tp: Array, fn: Array, fp: Array, tn: Array) -> Array:
        try:
            if type(tp) is Cell and not self.params and self.function in _TEXTBOOK:
                return _TEXTBOOK[self.function](tp, fn, fp, tn)  # straight to the formula
            return _evaluate(self.function, tp, fn, fp, tn, self.params)
        except ArithmeticError as error:
            raise ValueError(f"metric {self.name!r} is not finite here: {error}") from error
        except TypeError as error:
            raise TypeError(
                f"metric {self.name!r} could not be computed: {error}. A metric is a function of "
                "tp, fn, fp, tn written with + - * / and ** only (x**0.5 for a root)"
            ) from error

    @property
    def is_named(self) -> bool:
        """Whether it is one of `METRICS`, not a formula or a function of the user's."""
        return self.function in _TEXTBOOK

    @property
    def has_own_form(self) -> bool:
        """Whether the metric has a multiclass form of its own."""
        return self.function in SUMMED_FORMS or self.function in RECALL_MEANS

    def undefined(self, counts: Iterable[Array]) -> Array:
        """True where the formula is 0/0 at some counts: NumPy arrays or a framework's tensors."""
        function = _TEXTBOOK.get(self.function, self.function)
        cells = dict(zip(CELLS, counts, strict=True))
        if isinstance(cells["tp"], np.ndarray | np.number):
            with np.errstate(all="ignore"):
                value = function(**cells, **self.params)
        else:
            value = function(**cells, **self.params)
        return value != value  # NaN only

    def __hash__(self) -> int:  # as a static argument of jax.jit is
        return hash((self.name, *sorted(self.params.items())))

    def __repr__(self) -> str:
        params = "".join(f", {key}={value!r}" for key, value in self.params.items())
        return f"metric({self.name!r}{params})"


def metric(spec: MetricSpec | Metric, **params: float) -> Metric:
    """The metric behind a name, a formula or a function of `tp, fn, fp, tn`.

    >>> metric("balanced accuracy")(tp=6, fn=2, fp=0, tn=10)
    0.875
    >>> metric("tp / (tp + 0.5*fp + 2*fn)")(tp=6, fn=2, fp=4, tn=88)
    0.5
    >>> metric(lambda tp, fn, fp, tn: tp / (tp + fn))(tp=3, fn=1, fp=0, tn=0)
    0.75
    >>> metric("fbeta(beta=2)") == metric("fbeta", beta=2)
    True
    >>> metric("f1_scor")
    Traceback (most recent call last):
    ...
    ValueError: unknown metric 'f1_scor'; did you mean 'f1_score' or 'fbeta_score'?
    """
    if isinstance(spec, Metric):
        if params:
            raise TypeError(f"{spec!r} is complete already and takes no parameters; got {params}")
        return spec
    if isinstance(spec, str):
        found = _by_text(spec)
    elif callable(spec):
        found = Metric(getattr(spec, "__name__", type(spec).__name__), spec)
    else:
        raise TypeError(
            "a metric is a name, a formula such as 'tp / (tp + fn)' or a function of tp, fn, fp, "
            f"tn; got {type(spec).__name__}"
        )
    params = {**found.params, **params}
    _check_parameters(found, params)
    ours = found.function in METRICS.values()  # a callable of the user may have no hash
    for key, value in params.items():
        number = isinstance(value, int | float | np.number) and math.isfinite(value)
        if not number or (ours and value < 0):
            wanted = "a number >= 0" if ours else "a finite number"
            raise ValueError(f"{key} of metric {found.name!r} must be {wanted}; got {value!r}")
    found = Metric(found.name, found.function, params)
    _probe(found)
    return replace(found, undefined_without=_undefined_without(found))


def _undefined_without(chosen: Metric) -> tuple[bool, bool]:
    one, none = np.float64(1.0), np.float64(0.0)
    perfect = (none, none, none, one), (one, none, none, none)
    no_positive, no_negative = (bool(chosen.undefined(counts)) for counts in perfect)
    return no_positive, no_negative


def _check_parameters(chosen: Metric, params: Mapping[str, Any]) -> None:
    known = list(inspect.signature(chosen.function).parameters.values())[len(CELLS) :]
    if any(each.kind is each.VAR_KEYWORD for each in known):
        return
    for key in params:
        if key not in (each.name for each in known):
            taken = ", ".join(each.name for each in known) or "none"
            raise TypeError(
                f"unknown argument {key!r}; the parameters of metric {chosen.name!r} are: {taken}"
            )


def _key(text: str) -> str:
    """A name as it stands in METRICS, however it was written."""
    return "_".join(text.lower().replace("-", " ").split())


def _by_text(spec: str) -> Metric:
    name = _key(spec)
    if name in METRICS:
        return Metric(METRICS[name].__name__, METRICS[name])
    with_params = re.fullmatch(r"([\w\s-]+)\((.*)\)\s*", spec)
    if with_params and _key(with_params[1]) in METRICS:
        return _with_parameters(METRICS[_key(with_params[1])], with_params[2])
    if beta := re.fullmatch(r"f(\d+|\d*\.\d+)(?:_score)?", name):
        raise ValueError(f"unknown metric {spec!r}; write it as 'fbeta(beta={beta[1]})'")
    if set(name.split("_")) <= set(CELLS) or not name.isidentifier():  # "tp - fp" is "tp_fp" here
        return Metric(spec, Formula(spec))
    if name in RANKING:
        raise ValueError(
            f"{spec!r} is a metric of the ranking, not of the confusion matrix; see "
            "anyloss.torch.AUROCLoss and AveragePrecisionLoss"
        )
    near = difflib.get_close_matches(name, METRICS, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {sorted(METRICS)}"
    raise ValueError(f"unknown metric {spec!r}; {hint}")


def _with_parameters(function: MetricFunction, text: str) -> Metric:
    """A named metric and its parameters as they stand in its parentheses."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        params = {key.strip(): float(value) for key, value in pairs}
        if len(params) < len(pairs):
            raise ValueError
    except ValueError:
        raise ValueError(
            "parameters are written once and by name, as in 'fbeta(beta=2)', and a metric without "
            f"any stands alone, as 'f1'; got {function.__name__}({text})"
        ) from None
    return Metric(function.__name__, function, params)


def listed() -> list[tuple[str, str, list[str]]]:
    """Every metric: its name with its parameters, its formula, its other names.

    >>> listed()[1]
    ('precision', 'tp / (tp + fp)', ['ppv', 'positive_predictive_value'])
    """
    found = []
    for name, function in METRICS.items():
        if name == function.__name__:
            params = dict(list(inspect.signature(function).parameters.items())[len(CELLS) :])
            given = ", ".join(f"{x}={params[x].default:g}" for x in params)
            shown = f"{name}({given})" if params else name
            text = str(_TEXTBOOK[function](**{x: Written(x) for x in (*CELLS, *params)}))
            others = [x for x, same in METRICS.items() if same is function and x != name]
            found.append((shown, text, others))
    return found


def _probe(candidate: Metric) -> None:
    """Try a metric on a few plain counts, so that a bad one is refused here and not in training."""
    for tp, fn, fp, tn in ((5.0, 3.0, 2.0, 7.0), (1.0, 1.0, 1.0, 1.0)):
        value = candidate(tp=tp, fn=fn, fp=fp, tn=tn)
        if not isinstance(value, int | float | np.number):
            raise TypeError(
                f"metric {candidate.name!r} must give a number; got {type(value).__name__}"
            )
        if not math.isfinite(value):
            raise ValueError(
                f"metric {candidate.name!r} must give a finite number; got {value} for "
                f"tp={tp}, fn={fn}, fp={fp}, tn={tn}"
            )
