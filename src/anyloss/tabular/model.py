"""A model of a table: the encoder, the classifier, the names of the classes; saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyloss._core.backend import Array
from anyloss.recipe.folder import Writer, load_description, save_folder
from anyloss.tabular.encoder import Numbers, TableEncoder
from anyloss.tabular.reading import numbers_in_text
from anyloss.tabular.result import Result

KIND = "TableModel"


@dataclass(frozen=True)
class TableModel:
    """Votes for rows of a table: above 0.5 for the positive class."""

    encoder: TableEncoder
    classifier: Any
    target: str
    positive: str
    negative: str
    id_column: str | None = None

    def columns(self, kind: type | None = None) -> list[str]:
        """The columns it needs, or those of one kind, `Numbers` or `Texts`."""
        kept = self.encoder.columns_
        return [name for name, x in kept.items() if kind is None or isinstance(x, kind)]

    def votes(self, frame: Any, note: Callable[[str], None] = lambda text: None) -> Array:
        """A number from 0 to 1 for each row; columns are found by name.

        `note` is told of cells of number columns that are no numbers and count as missing.
        """
        frame = frame[[x for x in self.columns() if x in frame]].copy(deep=False)
        for text in numbers_in_text(frame, self.columns(Numbers)):
            note(text)
        return votes_of(self.classifier, self.encoder.transform(frame))

    def decide(self, votes: Array) -> Array:
        """The names of the classes that these votes stand for."""
        return np.where(votes > 0.5, self.positive, self.negative)


def votes_of(classifier: Any, X: Array) -> Array:
    """The votes of a classifier of 0 and 1 for rows as the encoder gives them."""
    votes: Array = classifier.predict_proba(X)[:, 1]
    return votes


def save(result: Result, path: Path | str, papers: Mapping[str, Writer] | None = None) -> None:
    """Write the model of a result to a folder, `metrics.json` and other papers beside it."""
    model: TableModel = result.model
    description = {
        "classifier": type(model.classifier).__name__,
        "encoder": model.encoder.to_json(),
        "target": model.target,
        "positive": model.positive,
        "negative": model.negative,
        "id_column": model.id_column,
        "metric": result.metric,
        "settings": result.settings,
    }
    papers = {"metrics.json": lambda file: _write_metrics(result, file), **(papers or {})}
    save_folder(path, KIND, description, {"classifier": model.classifier.save}, papers)


def _write_metrics(result: Result, path: Path) -> None:
    told = {
        name: getattr(result, name)
        for name in (
            "model_name", "metric", "target", "positive", "negative", "score", "interval",
            "candidates", "facts", "warnings", "settings",
        )
    }  # fmt: skip
    told |= {
        "counts": dict(vars(result.counts)),
        "rivals": [asdict(x) for x in result.rivals],
        "importances": [asdict(x) for x in result.importances],
    }
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def load(path: Path | str) -> TableModel:
    """Read a model folder that `anyloss fit` has written; nothing in it is executed."""
    stored = load_description(path, KIND)
    try:
        kind, folder = _classifier(stored["classifier"]), Path(path) / "classifier"
        return TableModel(
            TableEncoder.from_json(stored["encoder"]), kind.load(folder), stored["target"],
            stored["positive"], stored["negative"], stored["id_column"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a complete model folder: {error!r}") from None


def _classifier(name: str) -> Any:
    if name == "LGBMAnyLossClassifier":
        from anyloss.boosting import LGBMAnyLossClassifier

        return LGBMAnyLossClassifier
    from anyloss.sklearn import AnyLossClassifier

    return {"AnyLossClassifier": AnyLossClassifier}[name]
