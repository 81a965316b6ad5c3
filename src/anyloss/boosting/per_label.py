"""Several labels as one model: a model of a library for each label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.boosting.libraries import Goal, Library, Plan, TreeData

Models = list[Any]  # one of the library per label, or a margin where all rows are alike


class PerLabel:
    """A library that trains one model per column of the labels.

    A label that no training row has, or all of them, has no model but a constant margin.
    """

    def __init__(self, library: Library) -> None:
        self.library, self.name, self.suffix = library, library.name, library.suffix

    def known(self) -> set[str]:
        return self.library.known()

    def rounds(self, parameters: dict[str, Any]) -> tuple[str, int]:
        return self.library.rounds(parameters)

    def train(
        self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None
    ) -> Models:
        return [
            self._train_label(part, plan, None if valid is None else _label(valid, k), goal)
            for k, part in enumerate(_labels(data))
        ]

    def _train_label(
        self, data: TreeData, plan: Plan, valid: TreeData | None, goal: Goal | None
    ) -> Any:
        if data.y.min() < data.y.max():
            return self.library.train(data, plan, valid, goal)
        log_odds = float(np.log(2 * len(data.y) + 1))  # those of half a row of the other kind
        return log_odds if data.y[0] else -log_odds

    def margin(self, model: Models, X: Any) -> Array:
        rows = X.shape[0]
        return np.column_stack(
            [
                np.full(rows, each) if isinstance(each, float) else self.library.margin(each, X)
                for each in model
            ]
        )

    def importances(self, model: Models) -> Array:
        trained = [self.library.importances(x) for x in model if not isinstance(x, float)]
        return np.sum(trained, axis=0)

    def save(self, model: Any, path: Path) -> None:
        self.library.save(model, path)

    def load(self, path: Path, parameters: dict[str, Any]) -> Any:
        return self.library.load(path, parameters)


def _label(data: TreeData, k: int) -> TreeData:
    margin = None if data.margin is None else data.margin[:, k]
    return data._replace(y=data.y[:, k], margin=margin)


def _labels(data: TreeData) -> Iterator[TreeData]:
    return (_label(data, k) for k in range(data.y.shape[1]))
