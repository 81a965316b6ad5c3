"""What a loss has been told: the arguments that all front-ends share, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anyloss.counts import check_average, check_smooth
from anyloss.metrics import Metric, MetricSpec
from anyloss.metrics import metric as find_metric
from anyloss.steps import DEFAULT, Step, check_step


class Options(NamedTuple):
    """How a batch is to be read."""

    average: str | None = "auto"
    from_logits: bool = True
    per_sample: bool = False
    multiclass: bool = False
    ignore_index: int | None = None
    validate: bool = True


class Settings(NamedTuple):
    """What a loss has been told, checked once."""

    metric: Metric
    steps: tuple[Step, ...]
    smooth: float
    options: Options


def make_settings(
    metric: MetricSpec | Metric = "f1",
    *,
    step: Step | None = None,
    threshold: float | None = None,
    thresholds: Sequence[float] | None = None,
    average: str | None = "auto",
    smooth: float = 0.0,
    from_logits: bool = True,
    per_sample: bool = False,
    multiclass: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
    **params: float,
) -> Settings:
    """Check the arguments of a loss; `AnyLoss` explains them."""
    chosen = find_metric(metric, **params)
    check_average(chosen, average)
    check_smooth(smooth)
    if not (ignore_index is None or isinstance(ignore_index, int)):
        raise TypeError(f"ignore_index must be a whole number or None; got {ignore_index!r}")
    options = Options(average, from_logits, per_sample, multiclass, ignore_index, validate)
    return Settings(chosen, make_steps(step, threshold, thresholds), smooth, options)


def make_steps(
    step: Step | None, threshold: float | None, thresholds: Sequence[float] | None
) -> tuple[Step, ...]:
    """The step, or one per threshold."""
    if step is not None:
        check_step(step)
    if threshold is not None and (step is not None or thresholds is not None):
        raise ValueError(
            "threshold= is short for the default step at that threshold and stands alone; "
            f"otherwise say it in the step, as in step=Linear(threshold={threshold})"
        )
    base = DEFAULT if step is None else step
    if thresholds is None:
        return (base if threshold is None else base.at(threshold),)
    if isinstance(thresholds, int | float):
        raise TypeError(f"thresholds must be a list of numbers; got {thresholds!r}")
    steps = tuple(base.at(float(each)) for each in thresholds)
    if not steps:
        raise ValueError("thresholds must hold at least one number; got none")
    return steps
