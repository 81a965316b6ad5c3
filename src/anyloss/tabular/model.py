"""`TableModel`: an encoder, a classifier and the names of the classes; saving and loading."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.recipe.constrained import certificate_to_json
from anyloss.recipe.folder import Writer, load_description, save_folder
from anyloss.tabular.automatic import KIND as KIND_AUTO
from anyloss.tabular.automatic import AutoClassifier
from anyloss.tabular.encoder import TableEncoder
from anyloss.tabular.labels import Outcome
from anyloss.tabular.portfolio import member_type
from anyloss.tabular.readings import Reading, apply_reading, reading_from_json, unread_warning
from anyloss.tabular.result import Result
from anyloss.tabular.row_costs import RowCosts, check_costs
from anyloss.tabular.usual import KIND as KIND_USUAL
from anyloss.tabular.usual import UsualClassifier

KIND = "TableModel"


@dataclass(frozen=True)
class TableModel:
    """A fitted model that takes the rows of a table.

    `fit_table` makes it (`Result.model`), and `load` reads it from a folder.

    Attributes:
        encoder (TableEncoder): the fitted encoder of the columns.
        classifier (estimator): the fitted classifier of encoded rows. Its classes are 0 and 1, or
            the numbers of the classes.
        outcome (Outcome): what the model predicts: the task, the label columns and the classes.
        readings (tuple of Reading): how the columns are read.
        profile (dict): the shares of the values of each column in the training rows, and of the
            predictions for the test rows, with which `predict_table` compares a new table.
        id_column (str or None): the column that identifies the rows. It is not a feature.
        costs (RowCosts or None): what errors cost, by which `predict_table` decides each row.
        caveat (str): what the certificate assumes about the rows that certified it, if anything.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> model = fit_table(frame, "target", "f1", model="linear").model
        >>> model.columns()
        ['mean area', 'mean texture']
        >>> values = model.decision_values(frame[:2])
        >>> values.shape, model.decide(values).tolist()
        ((2,), ['0', '0'])
    """

    encoder: TableEncoder
    classifier: Any
    outcome: Outcome
    readings: tuple[Reading, ...]
    profile: dict[str, Any]
    id_column: str | None = None
    costs: RowCosts | None = None
    caveat: str = ""

    def columns(self, *kinds: type) -> list[str]:
        """The names of the columns that the model needs.

        Args:
            *kinds (type): `Numbers`, `Dates`, `Texts` or `Means` of `anyloss.tabular.encodings`,
                for the columns of these kinds only.

        Returns:
            list of str: the names.
        """
        kept = self.encoder.columns_
        return [name for name, x in kept.items() if not kinds or isinstance(x, kinds)]

    def decision_values(self, frame: Any, on_warning: Callable[[str], None] | None = None) -> Array:
        """The mean probability of the ensemble for each row; above 0.5 the decision is positive.

        The values are shifted so that 0.5 is the threshold; of several classes, the one with the
        highest value is predicted. They are not calibrated; see `probabilities`.

        Args:
            frame (DataFrame): the rows. Columns are matched by name.
            on_warning (callable, optional): a callback. It receives a text about each column of
                numbers with cells that are not numbers; these cells are treated as missing.

        Returns:
            array: numbers from 0 to 1, of shape (n_samples,) for two classes, else
            (n_samples, n_classes).
        """
        frame = self.read(frame, on_warning)
        return decision_values(self.classifier, self.encoder.transform(frame), self.outcome.task)

    def read(self, frame: Any, on_warning: Callable[[str], None] | None = None) -> Any:
        """The columns that the model needs, read as in the table that it was fitted to.

        Args:
            frame (DataFrame): the rows. Columns are matched by name.
            on_warning (callable, optional): a callback, as in `decision_values`.

        Returns:
            DataFrame: columns of numbers, dates and text.
        """
        needed, columns, origin = set(self.columns()), {}, frame.attrs.get("origin")
        for reading in self.readings:
            if reading.name in needed and reading.name in frame:
                series = frame[reading.name]
                columns[reading.name], unread = apply_reading(reading, series, origin)
                if unread and on_warning is not None:
                    found = replace(reading, unread=unread)
                    on_warning(unread_warning(found, columns[reading.name], series, origin))
        return pd.DataFrame(columns, index=frame.index)

    def with_prevalence(self, share: float) -> TableModel:
        """The model for tables with another share of positive rows.

        The threshold that is best there takes the place of 0.5, and calibrated probabilities are
        moved to this share; see `AnyLossClassifier.with_priors`.

        Args:
            share (float): the share of positive rows, between 0 and 1.

        Returns:
            TableModel: the model.

        Raises:
            ValueError: if the share is not between 0 and 1, or the model cannot be moved: usual
                methods, several classes or labels, and certified models.
        """
        self.check_movable()
        if not 0 < share < 1:
            raise ValueError(f"the prevalence must be between 0 and 1; got {share} (--prevalence)")
        moved = self.classifier.with_priors([1 - share, share])
        # The share of predictions is not compared with that of the fit.
        return replace(self, classifier=moved, profile=self.profile | {"predicted": None})

    def check_movable(self) -> None:
        """Raise a ValueError if the model cannot be moved to other shares of positive rows."""
        if why := self.outcome.no_positive:
            raise ValueError(
                f"a prevalence is the share of a positive class (--prevalence); got {why}"
            )
        if getattr(self.classifier, "certificate_", None) is not None:
            raise ValueError(
                "the certificate holds for the share of positive rows where it was made; leave out "
                "the prevalence, or fit without a confidence level (--prevalence)"
            )
        if not hasattr(self.classifier, "with_priors"):
            raise ValueError(
                "another prevalence needs a model that is trained for the metric; fit one with "
                "--model linear, mlp or lightgbm (--prevalence)"
            )

    def with_costs(self, costs: RowCosts) -> TableModel:
        """The model that decides each row by its least expected cost.

        Args:
            costs (RowCosts): what errors cost: a column of the table that the model was fitted to,
                or a number.

        Returns:
            TableModel: the model.

        Raises:
            ValueError: if the model has no positive class, or constraints.
        """
        check_costs(costs, self.outcome, getattr(self.classifier, "constraints", None))
        # The share of predictions is not compared with that of the fit.
        return replace(self, costs=costs, profile=self.profile | {"predicted": None})

    def probabilities(self, frame: Any, on_warning: Callable[[str], None] | None = None) -> Array:
        """Calibrated probabilities of each row: the shares of positives that are to be expected.

        They are fitted to training rows that the members of the model did not see. The decisions
        do not follow from them by a threshold of 0.5, but by the one that is best for the metric.

        Args:
            frame (DataFrame): the rows. Columns are matched by name.
            on_warning (callable, optional): a callback, as in `decision_values`.

        Returns:
            array: of shape (n_samples,) for two classes, else (n_samples, n_classes).
        """
        X = self.encoder.transform(self.read(frame, on_warning))
        return calibrated_values(self.classifier, X, self.outcome.task)

    def decide(self, values: Array) -> Array:
        """The labels that follow from decision values.

        Args:
            values (array): the result of `decision_values`.

        Returns:
            array: the predicted classes as text, of shape (n_samples,); for several labels numbers
            0 and 1, of shape (n_samples, n_labels).
        """
        return self.outcome.names(self.outcome.decide(values))


def decision_values(classifier: Any, X: Array, task: str = "binary") -> Array:
    """The decision values of a classifier for encoded rows: of the class 1, or of all classes."""
    values: Array = classifier.predict_proba(X)
    return values[:, 1] if task == "binary" else values


def calibrated_values(classifier: Any, X: Array, task: str = "binary") -> Array:
    """The calibrated probabilities of the class 1, or of all classes, for encoded rows."""
    p: Array = classifier.calibrated_proba(X)
    return p[:, 1] if task == "binary" else p


def save(result: Result, path: Path | str, extras: Mapping[str, Writer] | None = None) -> None:
    """Write the model of a result to a folder, together with its scores.

    The folder holds `model.json` (the columns, the settings and the SHA-256 of each file),
    `classifier/` and `metrics.json`. It is written to a temporary place and then moved, so that an
    interrupted call leaves an older model unchanged.

    Args:
        result (Result): the result of `fit_table`.
        path (Path or str): the folder. An older model folder is replaced.
        extras (dict, optional): further files by name, each with a function that writes it to the
            path that it receives.

    Returns:
        None

    Raises:
        ValueError: if the path exists and is not a model folder, or cannot be written.

    Examples:
        >>> import tempfile
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> folder = Path(tempfile.mkdtemp()) / "model"
        >>> save(fit_table(frame, "target", "f1", model="linear"), folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['classifier', 'metrics.json', 'model.json']
    """
    model: TableModel = result.model
    description = {
        "classifier": type(model.classifier).__name__,
        "encoder": model.encoder.to_json(),
        "outcome": asdict(model.outcome),
        "readings": [x.to_json() for x in model.readings],
        "profile": model.profile,
        "id_column": model.id_column,
        "costs": None if model.costs is None else list(model.costs),
        "caveat": model.caveat,
        "metric": result.metric,
        "average": result.average,
        "settings": result.settings,
    }
    extras = {"metrics.json": lambda file: _write_metrics(result, file), **(extras or {})}
    save_folder(path, KIND, description, {"classifier": model.classifier.save}, extras)


def _write_metrics(result: Result, path: Path) -> None:
    stored = {
        name: getattr(result, name)
        for name in (
            "model_name", "metric", "average", "score", "interval", "train_score",
            "held_out_score", "candidates", "weights", "facts", "settings", "constraints",
        )
    }  # fmt: skip
    stored |= {
        "certificate": certificate_to_json(result.certificate),
        "outcome": asdict(result.outcome),
        "counts": {name: np.asarray(x).tolist() for name, x in vars(result.counts).items()},
        "baselines": [asdict(x) for x in result.baselines],
        "importances": [asdict(x) for x in result.importances],
        "effects": [x.to_json() for x in result.effects],
        "slices": [asdict(x) for x in result.slices],
        "costs": {name: x._asdict() for name, x in result.costs.items()},
        "warnings": [{"level": x.level, "text": x} for x in result.warnings],
    }
    if result.outcome.task == "multiclass":
        stored["confusion"] = confusion(result).astype(int).tolist()
    text = json.dumps(_finite(stored), indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(x: Any) -> Any:
    """Plain values in which numbers that JSON does not know are None."""
    if isinstance(x, Mapping):
        return {name: _finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def confusion(result: Result) -> Array:
    """The numbers of test rows: rows are the true classes, columns the predicted ones."""
    return result.y_test.T @ result.outcome.decide(result.p_test)


def load(path: Path | str) -> TableModel:
    """Read the model of a folder that `save` or `anyloss fit` has written.

    Nothing in the folder is executed.

    Args:
        path (Path or str): the folder.

    Returns:
        TableModel: the model.

    Raises:
        ValueError: if the path is not a model folder, or if a file of the model was changed.

    Examples:
        >>> import tempfile
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> folder = Path(tempfile.mkdtemp()) / "model"
        >>> save(result, folder)
        >>> model = load(folder)
        >>> bool((model.decision_values(frame) == result.model.decision_values(frame)).all())
        True
    """
    stored = load_description(path, KIND)
    try:
        kind, folder = _classifier_type(stored["classifier"]), Path(path) / "classifier"
        kept = stored["outcome"]
        outcome = Outcome(kept["task"], tuple(kept["targets"]), tuple(kept["classes"]))
        encoder = TableEncoder.from_json(stored["encoder"])
        readings = tuple(map(reading_from_json, stored["readings"]))
        costs = None if stored["costs"] is None else RowCosts(*stored["costs"])
        return TableModel(
            encoder, kind.load(folder), outcome, readings, stored["profile"], stored["id_column"],
            costs, stored["caveat"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a complete model folder ({error!r}): fit and save the model again"
        ) from None


def _classifier_type(name: str) -> Any:
    found = {KIND_AUTO: AutoClassifier, KIND_USUAL: UsualClassifier}.get(name)
    return member_type(name) if found is None else found
