"""Predictions for a file of any size, which is read and written in parts."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss._core.outputs import check_output, replacing
from anyloss.tabular.drift import Drift
from anyloss.tabular.encodings import Means, Texts
from anyloss.tabular.labels import Outcome
from anyloss.tabular.model import TableModel, calibrated_values, decision_values
from anyloss.tabular.preparing import check_column
from anyloss.tabular.reading import read_parts
from anyloss.tabular.row_costs import decisions_of_least_cost
from anyloss.tabular.scoring import as_columns
from anyloss.tabular.sources import STANDARD_INPUT, local_file

PART = 50_000  # rows
# The columns that are written.
PREDICTION, VALUE, PROBABILITY = "prediction", "decision_value", "probability"
DANGEROUS = re.compile(r"[=+\-@\t\r]")  # how a spreadsheet formula starts
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?")
Write = Callable[[Any], None]


def predict_table(
    model: TableModel,
    source: Path | str,
    out: Path | str,
    *,
    id_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    rows: int = PART,
    allow_drift: bool = False,
    probabilities: bool = False,
    on_rows: Callable[[int], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> int:
    """Predict the class of each row of a file, and write the predictions to another file.

    The output has the columns `prediction` (the label) and `decision_value` (from 0 to 1; above 0.5
    the prediction is the positive class), after the id column if there is one. Several classes have
    a column `decision_value: <class>` each, and several labels also a column `prediction: <label>`
    of 0 and 1 each. With `probabilities`, a column `probability` (or `probability: <class>` each)
    has the calibrated probability of the positive class. A model with costs decides each row by its
    least expected cost, and writes these probabilities as well. The file is read in parts, so that
    it may be larger than the memory. Columns are matched by name; missing values and values that
    the fit has not seen are allowed. In a CSV output, text that a spreadsheet would run as a
    formula gets a leading apostrophe.

    Args:
        model (TableModel): the model, from `load` or `Result.model`.
        source (Path or str): the CSV, Parquet or Excel file with the rows; `"-"` is CSV from the
            standard input.
        out (Path or str): the output file, `.csv` or `.parquet`.
        id_column (str, optional): a column to copy to the output. Default: the id column of the
            fit, if the file has it.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        sheet (str, optional): the sheet of an Excel file. Default: the only one with cells.
        rows (int): the number of rows per part. Default: 50,000.
        allow_drift (bool): whether to predict even if more than a tenth of the cells of a column
            cannot be read as in the training table. Default: False.
        probabilities (bool): whether to write calibrated probabilities too. Default: False.
        on_rows (callable, optional): a callback. It receives the number of finished rows after each
            part.
        on_warning (callable, optional): a callback. It receives a text about each column of numbers
            with cells that are not numbers, which are treated as missing; and, at the end, about
            what differs from the training rows: values that they do not have, columns with another
            distribution, and another share of predictions.

    Returns:
        int: the number of rows.

    Raises:
        ValueError: if a file cannot be read or written, if a column is missing or became
            unreadable, or if `out` is the source itself.

    Examples:
        >>> import tempfile
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> model = fit_table(frame, "target", "f1", model="linear").model
        >>> folder = Path(tempfile.mkdtemp())
        >>> frame.to_csv(folder / "new.csv", index=False)
        >>> predict_table(model, folder / "new.csv", folder / "predictions.csv")
        569
        >>> list(pd.read_csv(folder / "predictions.csv"))
        ['prediction', 'decision_value']
    """
    out = Path(out)
    check_output(out, (".csv", ".parquet"))
    if str(source) != STANDARD_INPUT and out.exists() and out.samefile(source):
        raise ValueError(
            f"the predictions would overwrite their source {source}; choose another output"
        )
    options: dict[str, Any] = {"separator": separator, "encoding": encoding, "sheet": sheet}
    with local_file(source) as file:
        columns = output_columns(model.outcome, probabilities or model.costs is not None)
        paid = [] if model.costs is None else model.costs.columns()
        ids = _id_columns(model, _first_row(model, file, options), id_column, columns)
        parts = _parts(model, file, rows, paid, ids, options)
        return _write(model, parts, out, ids, columns, allow_drift, on_rows, on_warning)


def estimate_prevalence(
    model: TableModel, source: Path | str, *, separator: str | None = None,
    encoding: str | None = None, sheet: str | None = None,
) -> float:  # fmt: skip
    """Estimate the share of positive rows in a file without labels, for `with_prevalence`.

    It is found by expectation-maximisation from the calibrated probabilities (see
    `anyloss.sklearn.estimate_priors`), and right if only the shares of the classes have changed. Of
    very many rows, a part that is spread over the file is used.

    Args:
        model (TableModel): the model, for two classes.
        source (Path or str): the file.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        sheet (str, optional): the sheet of an Excel file. Default: the only one with cells.

    Returns:
        float: the share, between 0 and 1.

    Raises:
        ValueError: if the file cannot be read, or the model cannot be moved to other shares.

    Examples:
        >>> import tempfile
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> model = fit_table(frame, "target", "f1", model="linear").model
        >>> file = Path(tempfile.mkdtemp()) / "new.csv"
        >>> frame[frame["target"] == 1].to_csv(file, index=False)  # 0 is the positive class
        >>> estimate_prevalence(model, file) < 0.1
        True
    """
    if str(source) == STANDARD_INPUT:
        raise ValueError(
            "the share of positive rows is estimated from the whole file before it is predicted, "
            "and the standard input is read once: write it to a file (--prevalence)"
        )
    model.check_movable()
    options: dict[str, Any] = {"separator": separator, "encoding": encoding, "sheet": sheet}
    _first_row(model, source, options)
    kept, stride = list[Array](), 1
    for part in _parts(model, source, PART, [], [], options):
        kept.append(model.encoder.transform(model.read(part))[::stride])
        while sum(map(len, kept)) > 2 * PART:
            kept, stride = [x[::2] for x in kept], 2 * stride
    return float(model.classifier.estimate_priors(np.concatenate(kept))[1])


def _first_row(model: TableModel, file: Path | str, options: dict[str, Any]) -> Any:
    """The first row of a file; an error if it has no column that the model needs."""
    there = next(read_parts(file, 1, **options))
    if not there.columns.isin(model.columns()).any():
        check_column(model.columns()[0], there)
    return there


def _parts(
    model: TableModel, file: Path | str, rows: int, paid: list[str], ids: list[str],
    options: dict[str, Any],
) -> Iterator[Any]:  # fmt: skip
    """The columns of a file that the model needs, in parts."""
    return read_parts(
        file, rows, columns=list(dict.fromkeys([*model.columns(), *paid, *ids])), names=ids,
        texts=[*model.columns(Texts, Means), *ids],
        written=[x.name for x in model.readings if x.was_text and x.kind != "text"], **options,
    )  # fmt: skip


def _id_columns(
    model: TableModel, there: Any, id_column: str | None, columns: tuple[list[str], list[str]]
) -> list[str]:
    """The id column of a table, if there is one."""
    if id_column is not None:
        check_column(id_column, there)
    ids = [x for x in (id_column or model.id_column,) if x is not None and x in there]
    names, values = columns
    if taken := [x for x in ids if x in [*names, *values]]:
        raise ValueError(
            f"the id column must not have the name of an output column; got {taken[0]!r}: rename it"
        )
    return ids


def _write(
    model: TableModel, parts: Iterable[Any], out: Path, ids: list[str],
    outputs: tuple[list[str], list[str]], allow_drift: bool,
    on_rows: Callable[[int], None] | None, on_warning: Callable[[str], None] | None,
) -> int:  # fmt: skip
    """Predict the parts of a table, write the predictions, and return the number of rows."""
    done, drift = 0, Drift(model.profile)
    with replacing(out) as place, _ROWS[out.suffix.lower()](place, ids, *outputs) as write:
        for part in parts:
            read = model.read(part, on_warning)
            X = model.encoder.transform(read)
            values = decision_values(model.classifier, X, model.outcome.task)
            numbers, decided = as_columns(values), model.outcome.decide(values)
            if len(outputs[1]) > numbers.shape[1]:
                p = calibrated_values(model.classifier, X, model.outcome.task)
                numbers = np.hstack([numbers, as_columns(p)])
                if model.costs is not None:
                    decided = decisions_of_least_cost(p, model.costs.read(part, model.readings))
            drift.add(part, read, decided)
            found = {name: part[name].to_numpy() for name in ids}
            labels = as_columns(model.outcome.names(decided))
            for names, array in zip(outputs, (labels, numbers), strict=True):
                found |= dict(zip(names, array.T, strict=True))
            write(pd.DataFrame(found))
            done += len(part)
            if on_rows is not None:
                on_rows(done)
        if not allow_drift:
            drift.check()
    if on_warning is not None:
        for text in drift.warnings():
            on_warning(text)
    return done


def output_columns(outcome: Outcome, probabilities: bool = False) -> tuple[list[str], list[str]]:
    """The names of the columns of predictions, and of decision values and probabilities.

    >>> output_columns(Outcome("binary", ("left",), ("no", "yes")), probabilities=True)
    (['prediction'], ['decision_value', 'probability'])
    """
    each = [] if outcome.task == "binary" else outcome.classes
    labels = [f"{PREDICTION}: {x}" for x in each] if outcome.task == "multilabel" else []
    kinds = (VALUE, PROBABILITY) if probabilities else (VALUE,)
    numbers = [name for x in kinds for name in [f"{x}: {y}" for y in each] or [x]]
    return labels or [PREDICTION], numbers


@contextmanager
def _csv_rows(
    path: Path, ids: list[str], predictions: list[str], values: list[str]
) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8", newline="") as file:
        names = [neutral(name) for name in (*ids, *predictions, *values)]
        csv.writer(file, lineterminator="\n").writerow(names)

        def write(rows: Any) -> None:
            texts = [x for x in (*ids, *predictions) if rows[x].dtype.kind not in "iu"]
            safe = {x: rows[x].map(neutral, na_action="ignore") for x in texts}
            rows.assign(**safe).to_csv(file, index=False, header=False, lineterminator="\n")

        yield write


@contextmanager
def _parquet_rows(
    path: Path, ids: list[str], predictions: list[str], values: list[str]
) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    decided = pyarrow.string() if predictions == [PREDICTION] else pyarrow.int64()
    fields = [(name, pyarrow.string()) for name in ids]
    fields += [(name, decided) for name in predictions]
    schema = pyarrow.schema([*fields, *((name, pyarrow.float64()) for name in values)])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        yield lambda rows: file.write_table(pyarrow.Table.from_pandas(rows, schema))


_ROWS = {".csv": _csv_rows, ".parquet": _parquet_rows}


def neutral(text: str) -> str:
    """Text that no spreadsheet reads as a formula; numbers are unchanged.

    >>> neutral("=cmd()"), neutral("-5"), neutral("Rome")
    ("'=cmd()", '-5', 'Rome')
    """
    risky = DANGEROUS.match(text) and not NUMBER.fullmatch(text)
    return f"'{text}" if risky else text
