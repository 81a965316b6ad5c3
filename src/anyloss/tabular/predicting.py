"""Predictions for a file of any size: read, decided and written in parts."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from anyloss._core.outputs import aside, check_output
from anyloss.tabular.encoder import Texts
from anyloss.tabular.model import TableModel
from anyloss.tabular.preparing import check_column
from anyloss.tabular.reading import read_parts

PART = 50_000  # rows
DANGEROUS = re.compile(r"[=+\-@\t\r]")  # how a formula of a spreadsheet begins
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
Write = Callable[[Any], None]


def predict_table(
    model: TableModel,
    source: Path | str,
    out: Path | str,
    *,
    id_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    rows: int = PART,
    tell: Callable[[int], None] = lambda done: None,
    note: Callable[[str], None] = lambda text: None,
) -> int:
    """Write a class and a vote (0.5 decides) for each row of a file; how many rows there were.

    Columns are found by name, in any order. Values not seen in fitting, and gaps, are taken as
    `TableEncoder` takes them. The id column, here or in fitting, comes first in what is written.
    In a CSV file, text that a spreadsheet would run as a formula is put behind an apostrophe.

    `source` and `out` are CSV or Parquet files; `tell` is told how many rows are done, `note` of
    cells of number columns that are no numbers and count as missing.
    """
    out = Path(out)
    check_output(out, (".csv", ".parquet"))
    if out.exists() and out.samefile(source):
        raise ValueError(f"the predictions would replace their own source, {source}: name another")
    options: dict[str, Any] = {"separator": separator, "encoding": encoding}
    there = next(read_parts(source, 1, **options))
    if id_column is not None:
        check_column(id_column, there)
    ids = [x for x in (id_column or model.id_column,) if x is not None and x in there]
    if taken := [x for x in ids if x in ("prediction", "vote")]:
        raise ValueError(
            f"the id column must not be called {taken[0]!r}, as a column that is written is; "
            "rename it"
        )
    wanted, texts = [*model.columns(), *ids], [*model.columns(Texts), *ids]
    done = 0
    with aside(out) as place, _ROWS[out.suffix](place, ids) as write:
        for part in read_parts(source, rows, columns=wanted, texts=texts, names=ids, **options):
            write(_predicted(model, part, ids, note))
            done += len(part)
            tell(done)
    return done


def _predicted(model: TableModel, part: Any, ids: list[str], note: Callable[[str], None]) -> Any:
    votes = model.votes(part, note)
    found = {name: part[name].to_numpy() for name in ids}
    return pd.DataFrame(found | {"prediction": model.decide(votes), "vote": votes})


@contextmanager
def _csv_rows(path: Path, ids: list[str]) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8", newline="") as file:
        names = [neutral(name) for name in (*ids, "prediction", "vote")]
        csv.writer(file, lineterminator="\n").writerow(names)

        def write(rows: Any) -> None:
            safe = {x: rows[x].map(neutral, na_action="ignore") for x in (*ids, "prediction")}
            rows.assign(**safe).to_csv(file, index=False, header=False, lineterminator="\n")

        yield write


@contextmanager
def _parquet_rows(path: Path, ids: list[str]) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    texts = [(name, pyarrow.string()) for name in (*ids, "prediction")]
    schema = pyarrow.schema([*texts, ("vote", pyarrow.float64())])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        yield lambda rows: file.write_table(pyarrow.Table.from_pandas(rows, schema))


_ROWS = {".csv": _csv_rows, ".parquet": _parquet_rows}


def neutral(text: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers stay as they are.

    >>> neutral("=cmd()"), neutral("-5"), neutral("Rome")
    ("'=cmd()", '-5', 'Rome')
    """
    risky = DANGEROUS.match(text) and not NUMBER.fullmatch(text)
    return f"'{text}" if risky else text
