"""From a name, a formula or a function to a `Metric`, checked."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from anyloss._core.documents import documented
from anyloss._core.formula import CELLS, Formula, Written
from anyloss._core.metric import METRICS, TEXTBOOK, TITLES, Metric, MetricFunction, MetricSpec

RANKING = {"auroc", "auc", "roc_auc", "roc_auc_score", "average_precision", "auprc", "pr_auc"}


@documented
def metric(spec: MetricSpec | Metric, **params: float) -> Metric:
    """Return the metric for a name, a formula or a function.

    A name is one of `anyloss.METRICS`, in any case and with spaces, hyphens or underscores. Its
    parameters may follow in parentheses, as in `"fbeta(beta=2)"`. A formula is made of numbers,
    `tp`, `fn`, `fp`, `tn`, `+ - * / **`, parentheses and `sqrt( )`. It is parsed and never
    evaluated as code. A function takes `tp`, `fn`, `fp` and `tn` and uses the same operators; it
    must not branch or compare.

    Args:
        spec (str, callable or Metric): a name, a formula or a function of `tp, fn, fp, tn`. A
            `Metric` is returned as it is.

    Returns:
        Metric: the metric with its parameters. It has been evaluated once, so that a function that
        cannot be used raises an error here and not during training.

    Raises:
        ValueError: if the name is unknown, the formula is not valid, a parameter is out of range,
            or the metric is not finite for usual counts.
        TypeError: if `spec` is of another type, the metric does not have this parameter, or the
            function uses anything other than these operators.

    Examples:
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
            raise TypeError(
                f"{spec!r} is complete and takes no further parameters; got {params}. Give the "
                "parameters together with the name"
            )
        return spec
    if isinstance(spec, str):
        found = _by_text(spec)
    elif callable(spec):
        try:
            hash(spec)
        except TypeError:
            raise TypeError(
                f"a metric must be hashable; got {type(spec).__name__}, which is not. Write "
                "@dataclass(frozen=True) and no lists for a data class, or pass a function"
            ) from None
        found = Metric(getattr(spec, "__name__", type(spec).__name__), spec)
    else:
        raise TypeError(
            "a metric must be a name, a formula such as 'tp / (tp + fn)' or a function of tp, fn, "
            f"fp, tn; got {type(spec).__name__}"
        )
    params = {**found.params, **params}
    _check_parameters(found, params)
    found = Metric(found.name, found.function, params)
    _try(found)
    return replace(found, undefined_without=_undefined_without(found))


def _by_text(spec: str) -> Metric:
    """The metric for a name, with or without parameters, or for a formula."""
    name = _key(spec)
    if name in METRICS:
        return Metric(METRICS[name].__name__, METRICS[name])
    with_params = re.fullmatch(r"([\w\s-]+)\((.*)\)\s*", spec)
    if with_params and _key(with_params[1]) in METRICS:
        return _with_parameters(METRICS[_key(with_params[1])], with_params[2])
    if beta := re.fullmatch(r"f(\d+|\d*\.\d+)(?:_score)?", name):
        raise ValueError(
            f"unknown metric {spec!r}; write 'f1', or F-beta as 'fbeta(beta={beta[1]})'"
        )
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


def _key(text: str) -> str:
    """A name in the spelling of METRICS."""
    return "_".join(text.lower().replace("-", " ").split())


def _with_parameters(function: MetricFunction, text: str) -> Metric:
    """A named metric with the parameters that its parentheses contain."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        params = {key.strip(): float(value) for key, value in pairs}
        if len(params) < len(pairs):
            raise ValueError
    except ValueError:
        raise ValueError(
            "each parameter must be written once and by name, as in 'fbeta(beta=2)', and a metric "
            f"without parameters has no parentheses, as in 'f1'; got {function.__name__}({text})"
        ) from None
    return Metric(function.__name__, function, params)


def _check_parameters(chosen: Metric, params: Mapping[str, Any]) -> None:
    """Refuse parameters that the metric does not have, and values out of range."""
    own = list(inspect.signature(chosen.function).parameters.values())[len(CELLS) :]
    if not any(each.kind is each.VAR_KEYWORD for each in own):
        known = [each.name for each in own]
        for key in params:
            if key not in known:
                raise TypeError(
                    f"unknown argument {key!r}; the parameters of metric {chosen.name!r} are: "
                    f"{', '.join(known) or 'none'}"
                )
    ours = chosen.function in METRICS.values()
    for key, value in params.items():
        number = isinstance(value, int | float | np.number) and math.isfinite(value)
        if not number or (ours and value < 0):
            wanted = "a number >= 0" if ours else "a finite number"
            raise ValueError(f"{key} of metric {chosen.name!r} must be {wanted}; got {value!r}")


def _try(candidate: Metric) -> None:
    """Evaluate a metric once, so that an error occurs here and not during training."""
    for tp, fn, fp, tn in ((5.0, 3.0, 2.0, 7.0), (1.0, 1.0, 1.0, 1.0)):
        value = candidate(tp=tp, fn=fn, fp=fp, tn=tn)
        if not isinstance(value, int | float | np.number):
            raise TypeError(
                f"metric {candidate.name!r} must return a number; got {type(value).__name__}"
            )
        if not math.isfinite(value):
            raise ValueError(
                f"metric {candidate.name!r} must return a finite number; got {value} for "
                f"tp={tp}, fn={fn}, fp={fp}, tn={tn}"
            )


def _undefined_without(chosen: Metric) -> tuple[bool, bool]:
    one, none = np.float64(1.0), np.float64(0.0)
    perfect = (none, none, none, one), (one, none, none, none)
    no_positive, no_negative = (bool(chosen.undefined(counts)) for counts in perfect)
    return no_positive, no_negative


class Description(NamedTuple):
    """A named metric as tables show it."""

    name: str  # with its parameters and their defaults
    title: str
    formula: str
    aliases: list[str]


def listed() -> list[Description]:
    """All named metrics.

    >>> listed()[1][:3]
    ('precision', 'Precision', 'tp / (tp + fp)')
    >>> listed()[1].aliases
    ['ppv', 'positive_predictive_value']
    """
    return [_description(name) for name in METRICS if name == METRICS[name].__name__]


def _description(name: str) -> Description:
    function = METRICS[name]
    params = dict(list(inspect.signature(function).parameters.items())[len(CELLS) :])
    given = ", ".join(f"{x}={params[x].default:g}" for x in params)
    formula = str(TEXTBOOK[function](**{x: Written(x) for x in (*CELLS, *params)}))
    aliases = [x for x, same in METRICS.items() if same is function and x != name]
    return Description(f"{name}({given})" if params else name, TITLES[function], formula, aliases)
