"""The options that fitting and comparing share, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from anyloss.metrics import metric as find_metric
from anyloss.tabular.encoder import check_most
from anyloss.tabular.labels import Outcome
from anyloss.tabular.scoring import Scoring, check_known_average, scoring_of


@dataclass(frozen=True)
class TableOptions:
    """What is predicted for which metric, from which columns, and how the file is read."""

    targets: tuple[str, ...]
    metric: str = "f1"
    positive: str | float | None = None
    average: str = "auto"
    seed: int = 0
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    group: str | None = None
    time: str | None = None
    separator: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    max_categories: int | None = 20
    costs: tuple[str, ...] = ()  # the columns of costs, features or not

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str):
            raise TypeError(
                "the metric of a table must be a name or a formula, such as 'tp / (tp + fn)'; got "
                f"{type(self.metric).__name__}"
            )
        find_metric(self.metric)
        check_known_average(self.average)
        check_most(self.max_categories)
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise ValueError(
                f"expected one or more distinct label columns; got {list(self.targets)}"
            )
        if self.group is not None and self.time is not None:
            raise ValueError(
                "the test rows are whole groups (--group) or the latest rows (--time); got both: "
                "name one of them"
            )

    def scoring(self, outcome: Outcome) -> Scoring:
        """The metric and the average for an outcome."""
        columns = 1 if outcome.task == "binary" else len(outcome.classes)
        return scoring_of(self.metric, outcome.task, columns, self.average)

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults, besides the labels and the metric.

        >>> TableOptions(("left",), drop=("key",)).changed()
        {'drop': ['key']}
        """
        usual = {x.name: x.default for x in fields(self)}
        given = {name: x for name, x in asdict(self).items() if x != usual[name]}
        given = {name: list(x) if isinstance(x, tuple) else x for name, x in given.items()}
        named = ("targets", "metric", "costs")  # apart
        return {name: x for name, x in given.items() if name not in named}


def as_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """The label columns that a user has named, one or several.

    >>> as_targets("left"), as_targets(["a", "b"])
    (('left',), ('a', 'b'))
    """
    return (target,) if isinstance(target, str) else tuple(target)
