"""CSV, Parquet and Excel files as data frames; the encoding and the separator are detected.

A file is read as a whole for fitting and in parts for predicting, by the same rules. What pandas
would misread is left as text for `anyloss.tabular.readings`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pandas as pd

from anyloss.tabular.broken import broken_rows, line_of_open_quote, too_many_fields
from anyloss.tabular.columns import check_distinct
from anyloss.tabular.excel import EXCEL, excel_frame
from anyloss.tabular.parquet import opened
from anyloss.tabular.sources import Origin, check_file, local_file

SEPARATORS = ",;\t|"
SAMPLE = 1 << 18  # bytes that the separator is detected from
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# The texts that pandas reads as a missing value.
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
SAMPLE_ROWS = 2000


class Form(NamedTuple):
    """The format of a CSV file, and the names in its first line."""

    encoding: str
    separator: str
    decimal: str
    names: list[str]
    written: list[str]  # the columns whose numbers pandas would misread


def read_table(
    path: Path | str,
    *,
    label: str | Sequence[str] = (),
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Any:
    """Read a CSV, Parquet or Excel file as a data frame.

    The encoding (UTF-8, UTF-16 with a byte-order mark, otherwise Latin-1), the separator (comma,
    semicolon, tab or vertical bar) and a decimal comma are detected.

    Args:
        path (Path or str): the file: `.parquet`, `.xlsx`, otherwise CSV. A file that ends in `.gz`
            is decompressed. `"-"` is CSV from the standard input.
        label (str or sequence of str): the label columns. Only their empty cells are missing
            values, because "None" or "NA" may be the name of a class. Default: none.
        columns (sequence of str, optional): the columns to read. Default: all.
        separator (str, optional): the separator of a CSV file. Default: detected.
        encoding (str, optional): the encoding of a CSV file. Default: detected.
        sheet (str, optional): the sheet of an Excel file. Default: the only one with cells.

    Returns:
        DataFrame: the table.

    Raises:
        ValueError: if the file is absent, empty or cannot be read, or if its columns do not have
            distinct names.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "people.csv"
        >>> _ = path.write_text("name;size\\nAnna;1,5\\nJörg;\\n", encoding="latin-1")
        >>> read_table(path).to_dict("list")
        {'name': ['Anna', 'Jörg'], 'size': [1.5, nan]}
    """
    names = [label] if isinstance(label, str) else list(label)
    with local_file(path) as file:
        (frame,) = read_parts(
            file, None, columns=columns, names=names, separator=separator, encoding=encoding,
            sheet=sheet,
        )  # fmt: skip
    for name in names:
        if name in frame and pd.api.types.infer_dtype(frame[name].dropna()) == "string":
            present = frame[name].str.strip().replace("", None).dropna()
            numbers = pd.to_numeric(present, errors="coerce")
            known = numbers if numbers.notna().all() else present
            frame[name] = known.reindex(frame.index)
    return frame


def read_parts(
    path: Path | str,
    rows: int | None,
    *,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    written: Sequence[str] | None = None,
    names: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Iterator[Any]:
    """Read a file in parts of so many rows, or as one part if `rows` is None.

    `columns` are the columns to read (None for all), and the columns `texts` stay text. In a CSV
    file the columns `written` (None: those whose numbers pandas would misread) and `names` stay
    text too; of `names`, only the empty cells are missing values. The attribute "decimal" of a part
    is the decimal separator of the file, and "origin" finds the lines of its rows.
    """
    path = Path(path)
    check_file(path)
    if sheet is not None and path.suffix.lower() not in EXCEL:
        raise ValueError(f"only an Excel file has sheets; got the sheet {sheet!r} of {path}")
    if path.suffix.lower() == ".parquet":
        yield from _parquet_parts(path, rows, columns, texts)
        return
    if path.suffix.lower() in EXCEL:
        yield from _excel_parts(path, rows, columns, texts, names, sheet)
        return
    form = find_form(path, separator, encoding)
    _check_names(path, form.names)
    wanted = form.names if columns is None else [x for x in form.names if x in set(columns)]
    texts = [*texts, *names, *(form.written if written is None else written)]
    options = {
        "sep": form.separator, "encoding": form.encoding, "decimal": form.decimal,
        "skipinitialspace": True, "index_col": False, "names": form.names, "header": 0,
        "dtype": {name: "str" for name in texts if name in form.names},
        "na_values": {name: [""] if name in names else MISSING for name in form.names},
        "keep_default_na": False, "low_memory": False,
    }  # fmt: skip
    empty = True
    try:
        with pd.read_csv(path, chunksize=rows or 1 << 62, **options) as found:
            for part in found:
                if len(part):
                    empty = False
                    part.attrs["decimal"] = form.decimal
                    part.attrs["origin"] = Origin(str(path), form.encoding, form.separator)
                    if rows is None:
                        part.attrs["warnings"] = broken_rows(
                            path, part, encoding=form.encoding, separator=form.separator,
                            columns=len(form.names),
                        )  # fmt: skip
                    yield part[wanted]
    except (pd.errors.ParserError, UnicodeError) as error:
        raise _unreadable(path, form.encoding, form.separator, error) from None
    if empty:
        raise ValueError(f"{path} has column names but no rows; expected rows below the names")


def find_form(path: Path, separator: str | None = None, encoding: str | None = None) -> Form:
    """Detect the format of a CSV file, except what is given."""
    with _open(path) as file:
        sample = file.read(SAMPLE)
    if encoding is None:
        encoding = _encoding(path, sample)
    else:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(
                "encoding must be one that Python knows, such as utf-8 or latin-1; got "
                f"{encoding!r}"
            ) from None
    if separator is not None and len(separator) != 1:
        raise ValueError(f"separator must be one character; got {separator!r}")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeError as error:
        raise _unreadable(path, encoding, separator, error) from None
    lines = list(io.StringIO(text, newline=""))  # `splitlines` also splits at other characters
    lines = lines[:-1] if len(sample) == SAMPLE and len(lines) > 1 else lines
    found = separator or _separator(lines)
    rows = _rows(lines, found)
    decimal = "," if _has_decimal_commas(rows[1:]) else "."
    names = [name.strip() or f"column {k}" for k, name in enumerate(rows[0], 1)] if rows else []
    longest = max(map(len, rows), default=0)
    if longest > len(names):
        raise ValueError(
            f"{path} has rows of {longest} fields but {len(names)} column names (separator "
            f"{found!r}): name every column, or set the separator (--separator)"
        )
    cells = _rows(lines, found, SAMPLE_ROWS)[1:]
    written = [
        x for k, x in enumerate(names) if _is_misread([r[k] for r in cells if k < len(r)], decimal)
    ]
    return Form(encoding, found, decimal, names, written)


def _unreadable(path: Path, encoding: str, separator: str | None, error: Exception) -> ValueError:
    split = f" with the separator {separator!r}" if separator else ""
    if (line := line_of_open_quote(error)) is not None:
        return ValueError(
            f"{path} cannot be read as {encoding}{split}: a quote in line {line} is never closed: "
            "remove it, or double it"
        )
    if (found := too_many_fields(error)) is not None:
        fields, at, there = found
        return ValueError(
            f"{path} has {there} fields in line {at}, and {fields} before{split}: quote texts "
            "that contain the separator, or name another separator (--separator)"
        )
    return ValueError(
        f"{path} cannot be read as {encoding}{split}: {str(error).strip()}; set the encoding and "
        "the separator (--encoding, --separator)"
    )


def _open(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _encoding(path: Path, sample: bytes) -> str:
    """The encoding of a byte-order mark, UTF-8 if the whole file is valid, otherwise Latin-1."""
    for mark, name in BOMS.items():
        if sample.startswith(mark):
            return name
    control = sum(byte < 9 or 13 < byte < 32 for byte in sample[:4096])
    if b"\0" in sample or control > len(sample[:4096]) / 100:
        raise ValueError(
            f"{path} is not a text file (it contains control characters); expected CSV, or "
            "Parquet with the suffix .parquet"
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
    """The fields of the first rows; quoted fields may contain the separator."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    return [row for row in islice(reader, most) if row]


def _separator(lines: list[str]) -> str:
    """The separator that splits most of the first rows into as many fields as the first line."""

    def agreement(separator: str) -> tuple[float, int]:
        try:
            sizes = [len(row) for row in _rows(lines, separator)]
        except csv.Error:
            sizes = []
        if not sizes or sizes[0] < 2:
            return 0.0, 0
        return sizes.count(sizes[0]) / len(sizes), sizes[0]

    return max(SEPARATORS, key=agreement)  # among equal ones the first, the comma


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    """Whether more cells have a decimal comma than a decimal point; three digits may be a group."""
    cells = [cell for row in rows for cell in row]
    commas, points = (
        sum(
            re.fullmatch(rf"[-+]?\d+{mark}(\d{{1,2}}|\d{{4,}})", cell) is not None for cell in cells
        )
        for mark in (",", r"\.")
    )
    return commas > points


def _is_misread(cells: list[str], decimal: str) -> bool:
    """Whether pandas would read codes with leading zeros as numbers, or thousands as decimals.

    >>> _is_misread(["7.295", "950"], "."), _is_misread(["7.295", "9.5"], ".")
    (True, False)
    """
    cells = [cell.strip() for cell in cells]
    if any(re.fullmatch(r"0\d+", cell) for cell in cells):
        return True
    marked = [cell for cell in cells if decimal in cell]
    group = rf"[-+]?[1-9]\d{{0,2}}({re.escape(decimal)}\d{{3}})+"
    return bool(marked) and all(re.fullmatch(group, cell) for cell in marked)


def _check_names(path: Path, names: list[str]) -> None:
    if not names:
        raise ValueError(f"{path} has no column names; expected a line of names, then rows")
    try:
        check_distinct(names)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parquet_parts(
    path: Path, rows: int | None, columns: Sequence[str] | None, texts: Sequence[str]
) -> Iterator[Any]:
    with opened(path) as file:
        names = file.schema_arrow.names
        _check_names(path, names)
        if not file.metadata.num_rows:
            raise ValueError(f"{path} has columns but no rows; expected rows")
        wanted = names if columns is None else [x for x in names if x in set(columns)]
        whole = rows is None
        found = [file.read(wanted)] if whole else file.iter_batches(rows, columns=wanted)
        for batch in found:
            part = batch.to_pandas()
            yield part.astype({x: "string" for x in texts if x in part})


def _excel_parts(
    path: Path, rows: int | None, columns: Sequence[str] | None, texts: Sequence[str],
    names: Sequence[str], sheet: str | None,
) -> Iterator[Any]:  # fmt: skip
    frame = excel_frame(path, sheet)
    _check_names(path, list(frame))
    for name in frame:
        missing = {""} if name in names else set(MISSING)
        cells = frame[name].where(~frame[name].isin(missing), None)
        as_text = name in (*texts, *names)
        frame[name] = (
            cells.map(str, na_action="ignore") if as_text else pd.Series(cells).infer_objects()
        )
    wanted = list(frame) if columns is None else [x for x in frame if x in set(columns)]
    frame.attrs["origin"] = Origin(str(path))
    for start in range(0, len(frame), rows or len(frame)):
        yield frame[wanted].iloc[start : start + (rows or len(frame))]
