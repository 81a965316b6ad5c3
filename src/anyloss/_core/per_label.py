"""A step with one threshold per label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real

from anyloss._core.backend import Array, Backend
from anyloss._core.choices import listed
from anyloss._core.step import Step


def at_threshold(step: Step, threshold: float | Sequence[float] | None) -> Step:
    """The step at another threshold, or at one threshold for each label.

    >>> from anyloss.steps import Hard
    >>> at_threshold(Hard(), 0.3)
    Hard(threshold=0.3)
    """
    if threshold is None:
        return step
    if isinstance(threshold, Real):
        return step.at(float(threshold))
    steps = tuple(step.at(each) for each in listed("threshold", threshold))
    if not steps:
        raise ValueError("threshold must have at least one number; got none")
    return PerLabel(steps)


@dataclass(frozen=True)
class PerLabel(Step):
    """One step for each label, which differ in their thresholds.

    >>> import numpy as np
    >>> from anyloss.steps import Hard
    >>> at_threshold(Hard(), [0.3, 0.6]).value(np.array([[0.4, 0.4]])).tolist()
    [[1.0, 0.0]]
    """

    steps: tuple[Step, ...]

    def both(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        pairs = [step.both(*x, backend) for step, x in self._columns(p, q, backend)]
        a, b = zip(*pairs, strict=True)
        return backend.concat(list(a)), backend.concat(list(b))

    def density(self, p: Array, q: Array, backend: Backend) -> Array:
        columns = self._columns(p, q, backend)
        return backend.concat([step.density(*x, backend) for step, x in columns])

    def multiclass(self, p: Array, q: Array, backend: Backend) -> tuple[Array, Array]:
        raise ValueError(
            "one threshold per label needs labels that do not exclude each other "
            f"(task='multilabel'); got several classes and {len(self.steps)} thresholds"
        )

    def hard(self) -> PerLabel:  # type: ignore[override]  # it decides like `Hard`
        return PerLabel(tuple(step.hard() for step in self.steps))

    def check_dtype(self, dtype: str, tiny: float) -> None:
        for step in self.steps:
            step.check_dtype(dtype, tiny)

    def _columns(
        self, p: Array, q: Array, backend: Backend
    ) -> Iterator[tuple[Step, tuple[Array, Array]]]:
        labels = p.shape[backend.class_axis]
        if labels != len(self.steps):
            raise ValueError(
                f"threshold must be one number, or one per label, {labels}; got "
                f"{len(self.steps)} numbers"
            )
        at = [slice(None)] * len(p.shape)
        for k, step in enumerate(self.steps):
            at[backend.class_axis] = slice(k, k + 1)
            yield step, (p[tuple(at)], q[tuple(at)])
