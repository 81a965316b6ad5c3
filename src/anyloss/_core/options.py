"""The arguments that all front-ends share, and their checks."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypedDict, TypeVar

from anyloss._core.choices import (
    Activation,
    ClassWeights,
    Form,
    Options,
    PerSample,
    Reduction,
    Task,
    ZeroDivision,
    make_options,
)
from anyloss._core.costs import check_cost_options
from anyloss._core.counts import check_soft_labels
from anyloss._core.documents import documented
from anyloss._core.formula import CELLS
from anyloss._core.per_label import at_threshold
from anyloss._core.scoring import (
    check_average,
    check_form,
    check_number,
    check_squared,
)
from anyloss._core.step import Step, check_step
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import DEFAULT


class SharedSettings(TypedDict, total=False):
    """The arguments that all losses share besides the metric, by name and type."""

    step: Step | None
    threshold: float | Sequence[float] | None
    thresholds: Sequence[float] | None
    average: str | None
    smooth: float
    cross_entropy: float
    from_logits: bool
    activation: Activation
    squared: bool
    task: Task
    class_axis: int | None
    classes: Sequence[int] | None
    include_background: bool
    class_weights: ClassWeights | None
    per_sample: PerSample
    zero_division: ZeroDivision
    form: Form
    top_k: int
    soft_labels: bool
    ignore_index: int | None
    validate: bool


class FunctionSettings(SharedSettings, total=False):
    """The arguments of a loss function, with the parameters of the named metrics."""

    reduction: Reduction
    alpha: float
    beta: float
    fn_cost: float
    fp_cost: float


Shown = TypeVar("Shown", bound=Callable[..., Any])


def shows_options_of(base: Callable[..., Any], *hidden: str) -> Callable[[Shown], Shown]:
    """Add the keyword arguments of a base to the signature and the docstring of a function.

    A type checker sees these arguments through `Unpack`. `help`, notebooks and the API reference
    see the signature that is made here.
    """

    def show(own: Shown) -> Shown:
        mine = list(inspect.signature(own).parameters.values())
        mine = [each for each in mine if each.kind is not each.VAR_KEYWORD]
        names = {*hidden, *(each.name for each in mine)}
        shared = inspect.signature(base).parameters.values()
        rest = [x for x in shared if x.kind is x.KEYWORD_ONLY and x.name not in names]
        own.__signature__ = inspect.Signature([*mine, *rest])  # type: ignore[attr-defined]
        return documented(own, base)

    return show


class Settings(NamedTuple):
    """The checked arguments of a loss."""

    metric: Metric
    steps: tuple[Step, ...]
    smooth: float
    cross_entropy: float
    options: Options

    def describe(self, usual: Options = Options()) -> str:
        """The metric, the steps, and every option that differs from its default."""
        texts = [repr(self.metric), *map(repr, self.steps)]
        given = {"smooth": self.smooth, "cross_entropy": self.cross_entropy}
        defaults = {"smooth": 0.0, "cross_entropy": 0.0} | usual._asdict()
        for name, value in (given | self.options._asdict()).items():
            if value != defaults[name]:
                texts.append(f"{name}={value!r}")
        return ", ".join(texts)


def make_settings(
    metric: MetricSpec | Metric = "f1",
    *,
    step: Step | None = None,
    threshold: float | Sequence[float] | None = None,
    thresholds: Sequence[float] | None = None,
    average: str | None = "auto",
    smooth: float = 0.0,
    cross_entropy: float = 0.0,
    from_logits: bool = True,
    activation: Activation = "auto",
    squared: bool = False,
    task: Task = "auto",
    class_axis: int | None = None,
    classes: Sequence[int] | None = None,
    include_background: bool = True,
    class_weights: ClassWeights | None = None,
    per_sample: PerSample = False,
    zero_division: ZeroDivision = "auto",
    form: Form = "linear",
    reduction: Reduction = "mean",
    top_k: int = 1,
    soft_labels: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
    **params: float,
) -> Settings:
    """Check the arguments of a loss; `anyloss.torch.AnyLoss` explains them."""
    if params:
        check_names(metric, params)
    chosen = find_metric(metric, **params)
    check_average(chosen, average)
    check_number("smooth", smooth)
    check_number("cross_entropy", cross_entropy)
    check_form(chosen, form)
    if cross_entropy and average in (None, "none"):
        raise ValueError(
            "cross_entropy needs a loss of one number; got average=None, which gives one per "
            "class. Use another average, or cross_entropy=0"
        )
    if cross_entropy and reduction != "mean":
        raise ValueError(
            "cross_entropy is a mean and is added to the mean of the losses; got "
            f"reduction={reduction!r}. Use reduction='mean', or cross_entropy=0"
        )
    if cross_entropy and activation != "auto":
        raise ValueError(
            "cross_entropy has the activation of the task; got "
            f"activation={activation!r}. Use activation='auto', or cross_entropy=0"
        )
    options = make_options(
        average=average, from_logits=from_logits, activation=activation, squared=squared,
        per_sample=per_sample, task=task,
        class_axis=class_axis, classes=classes, include_background=include_background,
        class_weights=class_weights, zero_division=zero_division, form=form,
        reduction=reduction, top_k=top_k, soft_labels=soft_labels, ignore_index=ignore_index,
        validate=validate,
    )  # fmt: skip
    check_cost_options(chosen, options, smooth)
    if squared:
        check_squared(chosen)
    steps = make_steps(step, threshold, thresholds)
    for each in steps:
        check_soft_labels(soft_labels, each)
    return Settings(chosen, steps, smooth, float(cross_entropy), options)


# Arguments of other functions, and where they belong.
ELSEWHERE = {
    "weight": "pass weights with the batch, as in loss(input, target, weight)",
    "amplifying_scale": "write step=Amplified(scale); amplifying_scale is for the Keras losses",
    "axis_name": "it is for the functions of anyloss.jax",
    "constraints": "it is for AnyLoss, anyloss.jax.any_loss and the classifiers",
    "memory": "it is for anyloss.torch.AnyLoss",
    "sync": "it is for the losses of anyloss.torch",
    "group": "it is for the losses of anyloss.torch",
}


def check_names(metric: MetricSpec | Metric, given: Iterable[str]) -> None:
    """Refuse an unknown argument, and name the one that was probably meant."""
    chosen = find_metric(metric)
    own = list(inspect.signature(chosen.function).parameters.values())[len(CELLS) :]
    if any(each.kind is each.VAR_KEYWORD for each in own):
        return
    ours = [x for x in inspect.signature(make_settings).parameters if x != "params"]
    known = [*(each.name for each in own), *ours]
    for name in given:
        if name in ELSEWHERE:
            raise TypeError(f"{name!r} is not an argument here: {ELSEWHERE[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *ELSEWHERE], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
            raise TypeError(f"unknown argument {name!r}; {hint}")


def check_merged(name: str, given: Mapping[str, object], average: str | None) -> None:
    """Refuse the options that a score of merged counts does not have."""
    if average == "samples":
        raise ValueError(
            f"{name} merges the counts of batches and keeps no samples; got average='samples'"
        )
    for option in ("thresholds", "per_sample"):
        if option in given:
            raise ValueError(
                f"{name} merges the counts of batches and takes no {option}=; got "
                f"{option}={given[option]!r}"
            )


def make_steps(
    step: Step | None,
    threshold: float | Sequence[float] | None,
    thresholds: Sequence[float] | None,
) -> tuple[Step, ...]:
    """The step, or one step per threshold."""
    if step is not None:
        check_step(step)
    single = isinstance(threshold, Real)
    if threshold is not None and thresholds is not None and not single:
        raise ValueError(
            "threshold= with one number per label cannot be combined with thresholds=; got "
            f"{threshold!r} and {thresholds!r}. Leave out one of the two"
        )
    if single and (step is not None or thresholds is not None):
        raise ValueError(
            f"threshold={threshold} sets the threshold of the default step, and cannot be combined "
            "with step= or thresholds=. Set it in the step, as in "
            f"step=Linear(threshold={threshold})"
        )
    base = DEFAULT if step is None else step
    if thresholds is None:
        return (at_threshold(base, threshold),)
    if isinstance(thresholds, str) or not isinstance(thresholds, Iterable):
        raise TypeError(f"thresholds must be a sequence of numbers; got {thresholds!r}")
    steps = tuple(base.at(float(each)) for each in thresholds)
    if not steps:
        raise ValueError("thresholds must have at least one number; got none")
    return steps
