"""Constraints on a metric as text, such as `recall >= 0.9`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anyloss._core.backend import Array
from anyloss._core.formula import fault
from anyloss._core.lookup import metric as find_metric
from anyloss._core.metric import Metric

FORM = "a constraint is written as 'metric >= number' or 'metric <= number'"
ROUNDING = 1e-12  # a value that misses the number by its own rounding errors does not violate it

_COMPARE = re.compile(r"[<>]=?|[=!]=|=[<>]|[≥≤]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Constraint:
    """A metric with the least value that it must have, or the largest one.

    >>> (recall,) = read_constraints("recall >= 0.9")
    >>> recall.metric, recall.at_least, recall.value
    (metric('recall'), True, 0.9)
    >>> str(recall), bool(recall.holds(0.95))
    ('recall >= 0.9', True)
    """

    text: str
    metric: Metric
    at_least: bool
    value: float

    def holds(self, value: Array) -> Array:
        """Whether values of the metric satisfy the constraint."""
        return self.excess(value) >= -ROUNDING

    def excess(self, value: Array) -> Array:
        """How far values of the metric lie on the right side of the number."""
        return (value - self.value) * (1.0 if self.at_least else -1.0)

    def __str__(self) -> str:
        return self.text


ConstraintSpec = str | Constraint | Sequence[str | Constraint]


def is_constraint(spec: object) -> bool:
    """Whether an argument that may be a metric is meant as a constraint."""
    if isinstance(spec, str):
        return _COMPARE.search(spec) is not None
    return isinstance(spec, Constraint | list | tuple)


def read_constraints(spec: ConstraintSpec | None) -> tuple[Constraint, ...]:
    """The constraints of one text or of several, which must hold jointly.

    >>> [x.value for x in read_constraints(["recall >= 0.9", "fp / (fp + tn) <= 0.2"])]
    [0.9, 0.2]
    >>> read_constraints("recall > 0.9")
    Traceback (most recent call last):
    ...
    ValueError: a constraint is written as 'metric >= number' or 'metric <= number'; got '>'
        recall > 0.9
               ^
    """
    if spec is None:
        return ()
    given = [spec] if isinstance(spec, str | Constraint) else spec
    if not isinstance(given, list | tuple) or not all(
        isinstance(x, str | Constraint) for x in given
    ):
        raise TypeError(
            "constraints must be a text such as 'recall >= 0.9', or a list of such texts; got "
            f"{spec!r}"
        )
    if not given:
        raise ValueError("constraints must be None or name at least one; got an empty list")
    return tuple(_parse(x) if isinstance(x, str) else x for x in given)


def _parse(text: str) -> Constraint:
    found = list(_COMPARE.finditer(text))
    if not found:
        raise fault(text, f"{FORM}; got no >= or <=", len(text.rstrip()))
    for each in found[:1] if found[0][0] not in (">=", "<=") else found[1:]:
        more = "" if each is found[0] else "; write two constraints as a list"
        raise fault(text, f"{FORM}; got {each[0]!r}{more}", each.start())
    left, right = text[: found[0].start()], text[found[0].end() :]
    start = found[0].end() + len(right) - len(right.lstrip())
    if not _NUMBER.fullmatch(right.strip()):
        raise fault(text, f"{FORM}; got {right.strip()!r} in place of the number", start)
    return Constraint(
        " ".join(text.split()), _read_metric(left, text), found[0][0] == ">=", float(right)
    )


def _read_metric(left: str, text: str) -> Metric:
    """The metric on the left of a constraint; its errors show the place in the whole line."""
    start = len(left) - len(left.lstrip())
    if not left.strip() or _NUMBER.fullmatch(left.strip()):
        raise fault(text, f"{FORM}; got {left.strip()!r} in place of the metric", start)
    try:
        return find_metric(left.rstrip())
    except ValueError as error:
        message, *shown = str(error).split("\n")
        column = shown[-1].index("^") - 4 if shown else start
        raise fault(text, message, column) from None
