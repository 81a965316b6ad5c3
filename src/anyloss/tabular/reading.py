"""CSV and Parquet files to data frames: encoding and separator are detected, oddities reported.

A file is read whole for fitting and in parts for predicting, by the same rules. Text columns that
are numbers but for a few cells (`?`, a blank) are numbers with gaps, with a warning.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

SEPARATORS = ",;\t|"
SAMPLE = 1 << 18  # bytes that are looked at for the separator
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# What pandas takes for a missing value.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
NUMBER_SHARE = 0.9  # of the cells of a text column that make it a column of numbers


class Form(NamedTuple):
    """How a CSV file is written, and the names in its first line."""

    encoding: str
    separator: str
    decimal: str
    names: list[str]


def read_table(
    path: Path | str,
    *,
    label: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
) -> Any:
    """A CSV (also `.csv.gz`) or Parquet file as a data frame.

    Of the column `label` only empty cells are missing: "None" or "NA" may be the name of a class.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("name;size\\nAnna;1,5\\nJörg;\\n", encoding="latin-1")
    >>> read_table(path).to_dict("list")
    {'name': ['Anna', 'Jörg'], 'size': [1.5, nan]}
    """
    names = [] if label is None else [label]
    (frame,) = read_parts(path, None, names=names, separator=separator, encoding=encoding)
    if label in frame and pd.api.types.infer_dtype(frame[label].dropna()) == "string":
        present = frame[label].str.strip().replace("", None).dropna()
        numbers = pd.to_numeric(present, errors="coerce")
        known = numbers if numbers.notna().all() else present
        frame[label] = known.reindex(frame.index)
    return frame


def read_parts(
    path: Path | str,
    rows: int | None,
    *,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    names: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
) -> Iterator[Any]:
    """The same in parts of so many rows, or in one; `columns` limits them, `texts` stay text.

    In a CSV file the columns `names` stay text too, and only their empty cells are missing.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"expected a CSV or Parquet file; {path} is a folder")
    if not path.is_file():
        raise ValueError(f"expected a CSV or Parquet file; {path} is not there")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: expected a line of names, then rows")
    if path.suffix == ".parquet":
        yield from _parquet_parts(path, rows, columns, texts)
        return
    form = find_form(path, separator, encoding)
    _check_names(path, form.names)
    wanted = form.names if columns is None else [x for x in form.names if x in set(columns)]
    options = {
        "sep": form.separator, "encoding": form.encoding, "decimal": form.decimal,
        "skipinitialspace": True, "index_col": False, "names": form.names, "header": 0,
        "dtype": {name: "str" for name in (*texts, *names) if name in form.names},
        "na_values": {name: [""] if name in names else MISSING for name in form.names},
        "keep_default_na": False, "low_memory": False,
    }  # fmt: skip
    empty = True
    try:
        with pd.read_csv(path, chunksize=rows or 1 << 62, **options) as found:
            for part in found:
                if len(part):
                    empty = False
                    yield part[wanted]
    except (pd.errors.ParserError, UnicodeError) as error:
        raise _unreadable(path, form.encoding, form.separator, error) from None
    if empty:
        raise ValueError(f"{path} has a line of names and no rows: expected rows below it")


def find_form(path: Path, separator: str | None = None, encoding: str | None = None) -> Form:
    """Look at the file for what was not said."""
    with _open(path) as file:
        sample = file.read(SAMPLE)
    if encoding is None:
        encoding = _encoding(path, sample)
    else:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(
                f"encoding must be one that Python knows, such as utf-8 or latin-1; got "
                f"{encoding!r}"
            ) from None
    if separator is not None and len(separator) != 1:
        raise ValueError(f"separator must be one character; got {separator!r}")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeError as error:
        raise _unreadable(path, encoding, separator, error) from None
    lines = list(io.StringIO(text, newline=""))  # `splitlines` takes more than line ends for one
    lines = lines[:-1] if len(sample) == SAMPLE and len(lines) > 1 else lines
    found = separator or _separator(lines)
    rows = _rows(lines, found)
    decimal = "," if found != "," and _has_decimal_commas(rows[1:]) else "."
    names = [name.strip() or f"column {k}" for k, name in enumerate(rows[0], 1)] if rows else []
    longest = max(map(len, rows), default=0)
    if longest > len(names):
        raise ValueError(
            f"{path} has rows of {longest} fields and {len(names)} names (separator {found!r}): "
            "give every column a name, or the right --separator"
        )
    return Form(encoding, found, decimal, names)


def _unreadable(path: Path, encoding: str, separator: str | None, error: Exception) -> ValueError:
    parted = f" with the separator {separator!r}" if separator else ""
    return ValueError(
        f"{path} cannot be read as {encoding}{parted}: {str(error).strip()}; name the right ones "
        "(--encoding, --separator)"
    )


def _open(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _encoding(path: Path, sample: bytes) -> str:
    """By its mark, else UTF-8 if all of it is, else Latin-1; what is no text is refused."""
    for mark, name in BOMS.items():
        if sample.startswith(mark):
            return name
    control = sum(byte < 9 or 13 < byte < 32 for byte in sample[:4096])
    if b"\0" in sample or control > len(sample[:4096]) / 100:
        raise ValueError(
            f"{path} is not a text file (it holds control characters): expected CSV, or Parquet "
            "with the suffix .parquet"
        )
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _open(path) as file:
        try:
            while block := file.read(1 << 16):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8"


def _rows(lines: list[str], separator: str, most: int = 50) -> list[list[str]]:
    """The first rows, fields in quotes taken into account."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    return [row for row in islice(reader, most) if row]


def _separator(lines: list[str]) -> str:
    """The one that parts most of the first rows as it parts the names, and into most fields."""

    def agreement(separator: str) -> tuple[float, int]:
        try:
            sizes = [len(row) for row in _rows(lines, separator)]
        except csv.Error:
            sizes = []
        if not sizes or sizes[0] < 2:
            return 0.0, 0
        return sizes.count(sizes[0]) / len(sizes), sizes[0]

    return max(SEPARATORS, key=agreement)  # of equals the first, the comma


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    cells = [cell for row in rows for cell in row]
    commas, points = (
        sum(re.fullmatch(rf"[-+]?\d+{mark}\d+", cell) is not None for cell in cells)
        for mark in (",", r"\.")
    )
    return commas > points


def _check_names(path: Path, names: list[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if not names:
        raise ValueError(f"{path} has no line of names: expected names, then rows")
    if twice:
        raise ValueError(
            f"{path} has columns of one name, {', '.join(map(repr, twice[:5]))}: rename them"
        )


def _parquet_parts(
    path: Path, rows: int | None, columns: Sequence[str] | None, texts: Sequence[str]
) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_names(path, names)
            if not file.metadata.num_rows:
                raise ValueError(f"{path} has columns and no rows: expected rows")
            wanted = names if columns is None else [x for x in names if x in set(columns)]
            whole = rows is None
            found = [file.read(wanted)] if whole else file.iter_batches(rows, columns=wanted)
            for batch in found:
                part = batch.to_pandas()
                yield part.astype({x: "string" for x in texts if x in part})
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None


def numbers_in_text(frame: Any, names: Sequence[str] | None = None) -> list[str]:
    """Turn text columns that hold numbers into numbers, in place; what was lost, as warnings.

    By default those of which nine cells in ten are numbers; or all of `names`, whatever they hold.

    >>> frame = pd.DataFrame({"pay": ["1.5"] * 19 + ["?"], "city": ["Rome"] * 20})
    >>> numbers_in_text(frame)
    ["column 'pay': cells that are no numbers count as missing (1, such as '?')"]
    >>> float(frame["pay"].sum())
    28.5
    """
    told = []
    for name in frame.select_dtypes(["object", "string"]).columns:
        if names is not None and name not in names:
            continue
        present = frame[name].dropna()
        sample = present.iloc[:1000]
        if pd.api.types.infer_dtype(sample) != "string":
            continue
        likely = pd.to_numeric(sample, errors="coerce").notna().mean() > NUMBER_SHARE / 2
        if names is None and not likely:
            continue
        found = pd.to_numeric(present, errors="coerce").replace([np.inf, -np.inf], np.nan)
        lost = present[found.isna()]
        if names is None and len(lost) > (1 - NUMBER_SHARE) * len(present):
            continue
        frame[name] = found.astype(float).reindex(frame.index)
        if len(lost):
            told.append(
                f"column {name!r}: cells that are no numbers count as missing ({len(lost)}, such "
                f"as {lost.iloc[0][:40]!r})"
            )
    return told
