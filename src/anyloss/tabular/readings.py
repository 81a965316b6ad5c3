"""How each column of a table is read: as numbers, dates or text, by which rule, with what gaps.

The rules are found once, for the table that a model is fitted to, and stored with the model, so
that a new table is read in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from anyloss.tabular.dates import DAYS, ISO, as_dates, find_date_form, is_dates, parse_dates
from anyloss.tabular.numbers import NumberForm, find_number_form, parse_numbers, tidy
from anyloss.tabular.sources import MOST_NAMED, Origin, cells_in_words

NUMBER_SHARE = 0.9  # a text column with this share of numbers becomes a column of numbers
MIXED_SHARE, MIXED_LEVELS = 0.5, 20  # above both, numbers and other texts are mixed by mistake
HUGE = 1e100  # larger numbers cannot be squared and summed
GAPS = {
    "-", "--", "---", ".", "..", "...", "?", "??", "*", "#", "n/a", "na", "nan", "n.a.", "n.a",
    "null", "none", "nil", "unknown", "missing", "undefined", "unspecified", "tbd", "k.a.",
    "unbekannt", "fehlt", "leer", "#n/a", "#na", "#value!", "#ref!", "#div/0!", "<na>",
    "(null)", "(none)", "(blank)", "inconnu", "desconocido", "", "not available",
    "not applicable", "not known", "not specified", "no data", "keine angabe",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How a column is read, and what was found in it.

    `Result.readings` holds them, in the order of the table.

    Attributes:
        name (str): the column.
        kind (str): `"numbers"`, `"dates"` or `"text"`.
        rule (str): how texts become numbers or dates, in words; empty for plain ones.
        rows (int): the number of rows.
        gaps (int): the number of missing values, those written as words among them.
        levels (int): the number of distinct values.
        low (str): the smallest value; empty for text.
        high (str): the largest value; empty for text.
        example (str): the first value, as it is written in the table; empty for identifiers.
        unread (int): the number of cells that are not what the column is, and count as missing.
        use (str): `"used"`, or why the column is not used.
        decimal (str): the decimal separator of numbers in text.
        thousands (str): their separator of thousands.
        unit (str): their unit.
        form (str): the format of dates in text.
        was_text (bool): whether the numbers or dates are written as text in the table.
        encoding (str): what the model receives, in words; empty for a column that is not used.

    Examples:
        >>> frame = pd.DataFrame({"price": ["$7,295", "$950", "unknown"]})
        >>> found, (reading,) = read_columns(frame)[:2]
        >>> found["price"].tolist(), reading.rule
        ([7295.0, 950.0, nan], "thousands separator ',', unit '$'")
    """

    name: str
    kind: str
    rule: str = ""
    rows: int = 0
    gaps: int = 0
    levels: int = 0
    low: str = ""
    high: str = ""
    example: str = ""
    unread: int = 0
    use: str = "used"
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    form: str = ""
    was_text: bool = False
    encoding: str = ""

    def to_json(self) -> dict[str, Any]:
        """The reading as a dictionary that JSON can hold."""
        return asdict(self)


def reading_from_json(stored: dict[str, Any]) -> Reading:
    """The reading that `Reading.to_json` has stored."""
    return Reading(**{x.name: stored[x.name] for x in fields(Reading)})


def read_columns(
    frame: Any, decimal: str = ".", texts: Sequence[str] = ()
) -> tuple[Any, list[Reading], list[str]]:
    """A table whose columns are numbers, dates or text, how each was read, and warnings.

    `decimal` is the decimal separator of the file. The columns `texts` stay text.

    >>> read_columns(pd.DataFrame({"pay": ["1.5"] * 19 + ["twenty"]}))[2]
    ["column 'pay': cells that are not numbers are treated as missing (1: 'twenty' in row 19)"]
    """
    columns, readings, warnings = {}, [], []
    origin = frame.attrs.get("origin")
    for name, series in frame.items():
        try:
            values, reading = _read(str(name), series, decimal, str(name) in texts, origin)
        except ValueError as error:
            raise ValueError(
                f"column {name!r}: {error}, or do not use the column (--drop)"
            ) from None
        columns[name] = values
        readings.append(reading)
        if reading.unread:
            warnings.append(unread_warning(reading, values, series, origin))
    return pd.DataFrame(columns, index=frame.index), readings, warnings


def unread_warning(reading: Reading, values: Any, series: Any, origin: Origin | None = None) -> str:
    """The warning about cells that are not what the column is, with their lines."""
    present = series[values.isna() & series.notna()]
    lost = present[~is_gap(present.astype(str))]
    more = " and others" if reading.unread > MOST_NAMED else ""
    return (
        f"column {reading.name!r}: cells that are not {reading.kind} are treated as missing "
        f"({reading.unread}: {cells_in_words(lost, origin)}{more})"
    )


def apply_reading(reading: Reading, series: Any, origin: Origin | None = None) -> tuple[Any, int]:
    """A column of a new table, read in the same way, and the number of cells that cannot be."""
    try:
        values, unread = _applied(reading, series)
        if reading.kind == "numbers":
            _check_finite(values, origin)
    except ValueError as error:
        raise ValueError(f"column {reading.name!r}: {error}") from None
    return values, unread


def _applied(reading: Reading, series: Any) -> tuple[Any, int]:
    if reading.kind == "text":
        text = (
            _as_text(series)
            if not isinstance(series.dtype, pd.CategoricalDtype)
            else series.astype(object)
        )
        return (_without_gaps(text) if _is_text(text) else text), 0
    native = _native(series)
    if native is not None:
        kind, values = native
        if kind == reading.kind:
            return values, 0
        if kind == "numbers" and reading.kind == "dates" and values.isna().all():
            return pd.Series(pd.NaT, index=series.index, dtype="datetime64[ns]"), 0
        raise ValueError(
            f"expected {reading.kind}, as in fit; got {kind}, such as "
            f"{str(series.dropna().iloc[0])!r}"
        )
    present = _without_gaps(_as_text(series)).dropna()
    return _converted(reading, present, series.index)


def _converted(reading: Reading, present: Any, index: Any) -> tuple[Any, int]:
    """Texts as numbers or dates; each distinct text is parsed once."""
    distinct = pd.Series(present.unique(), dtype=object).astype(str)
    if reading.kind == "numbers":
        form = NumberForm(reading.decimal, reading.thousands, reading.unit)
        found = parse_numbers(tidy(distinct), form).replace([np.inf, -np.inf], np.nan)
    else:
        texts = tidy(distinct)  # dates that were no text in fit may be text now
        found = parse_dates(texts, reading.form or find_date_form(texts) or ISO)
    mapped = present.map(dict(zip(distinct, found, strict=True)))
    values = mapped.reindex(index).astype(float if reading.kind == "numbers" else "datetime64[ns]")
    return values, int(mapped.isna().sum())


def is_gap(texts: Any) -> Any:
    """Whether each text means a missing value."""
    return tidy(texts).str.lower().isin(GAPS)


def _without_gaps(texts: Any) -> Any:
    distinct = pd.Series(texts.dropna().unique(), dtype=object).astype(str)
    gaps = set(distinct[is_gap(distinct).to_numpy(bool)]) if len(distinct) else set()
    return texts.where(~texts.isin(gaps), None) if gaps else texts


def _is_text(series: Any) -> bool:
    return pd.api.types.infer_dtype(series, skipna=True) in ("string", "empty")


def _as_text(series: Any) -> Any:
    """A column of mixed numbers and texts as text; anything else is left as it is."""
    if pd.api.types.infer_dtype(series, skipna=True) in ("mixed-integer", "mixed"):
        present = series.dropna()
        if present.map(lambda x: isinstance(x, str | int | float | bool)).all():
            return present.map(str).reindex(series.index)
    return series


def _native(series: Any) -> tuple[str, Any] | None:
    """The kind and the values of a column that is not text."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return None
    if _is_text(_as_text(series)) and series.notna().any():
        return None
    inferred = pd.api.types.infer_dtype(series, skipna=True)
    if is_dates(series):
        return "dates", as_dates(series)
    if inferred == "period":
        return "dates", series.dt.to_timestamp().astype("datetime64[ns]")
    if inferred in ("timedelta64", "timedelta"):
        days = pd.to_timedelta(series) / pd.Timedelta(days=1)
        return "numbers", days.astype(float)
    if series.isna().all():  # also a column of texts of which none is there
        return "numbers", pd.Series(np.nan, index=series.index)
    if inferred in ("boolean", "integer", "floating", "mixed-integer-float", "decimal"):
        if dtype == np.float16:  # pandas cannot sort these
            return "numbers", series.astype(np.float32)
        return "numbers", _plain(series)
    types = sorted({type(value).__name__ for value in series.dropna()})
    raise ValueError(
        f"expected numbers, dates or text; got values of {', '.join(map(repr, types[:5]))}: "
        "convert them"
    )


def _plain(series: Any) -> Any:
    """Numbers in NumPy's types: integers and booleans with gaps are floats, as in a file.

    >>> _plain(pd.Series([1, None], dtype="Int64")).tolist()
    [1.0, nan]
    """
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return series
    if dtype.kind in "biu" and not series.isna().any():
        return series.astype({"b": bool, "i": np.int64, "u": np.uint64}[dtype.kind])
    if dtype.kind == "b":  # pyarrow has no floats for them
        series = series.astype(object)
    return pd.Series(series.to_numpy(np.float64, na_value=np.nan), index=series.index)


def _read(
    name: str, series: Any, decimal: str, stays: bool, origin: Origin | None
) -> tuple[Any, Reading]:
    """A column as numbers, dates or text, and its reading."""
    found = None if stays else _native(series)
    example = "" if not series.notna().any() else str(series.dropna().iloc[0])[:60]
    if found is not None:
        kind, values = found
        if kind == "numbers":
            _check_finite(values, origin)
        return values, _described(Reading(name, kind, example=example), values)
    if isinstance(series.dtype, pd.CategoricalDtype):
        return series, _described(Reading(name, "text", example=example), series)
    texts = _without_gaps(_as_text(series))
    reading = Reading(name, "text", example=example, was_text=True)
    present = texts.dropna()
    if len(present) and not stays:
        reading = _of_text(reading, present, decimal, origin)
    if reading.kind == "text":
        return texts, _described(reading, texts)
    values, unread = _converted(reading, present, series.index)
    if reading.kind == "numbers":
        _check_finite(values, origin)
    return values, _described(Reading(**{**asdict(reading), "unread": unread}), values)


def _of_text(reading: Reading, present: Any, decimal: str, origin: Origin | None) -> Reading:
    """What the texts of a column are: numbers, dates or text."""
    texts = tidy(present)
    sample = texts.iloc[:2000]
    form, share = find_number_form(sample, decimal)
    if share > NUMBER_SHARE / 2 and len(texts) > len(sample):
        form, share = find_number_form(texts, decimal)
    known = asdict(reading)
    codes = texts.str.fullmatch(r"0\d+").any() and not (form.thousands or form.unit)
    if share >= NUMBER_SHARE and codes and texts.str.fullmatch(r"\d+").all():
        return Reading(**{**known, "rule": "codes with leading zeros"})
    if share >= NUMBER_SHARE:
        given = {"kind": "numbers", "rule": form.words(), **form._asdict()}
        return Reading(**{**known, **given})
    dates = find_date_form(texts)
    if dates is not None:
        words = "dates, year first" if dates == ISO else f"dates, {DAYS[dates]}"
        return Reading(**{**known, "kind": "dates", "rule": words, "form": dates})
    if share > MIXED_SHARE and texts.nunique() > MIXED_LEVELS:
        wrong = texts[parse_numbers(texts, form).isna()]
        raise ValueError(
            f"{share:.0%} of the cells are numbers, and others are not, such as "
            f"{cells_in_words(wrong, origin)}: correct the cells"
        )
    return reading


def _check_finite(values: Any, origin: Origin | None) -> None:
    numbers = np.abs(values.to_numpy(float, na_value=np.nan))
    if not np.nanmax(numbers, initial=0.0) < HUGE:
        huge = values[numbers >= HUGE]
        raise ValueError(
            f"expected finite numbers below {HUGE:g}; got {cells_in_words(huge, origin)}: replace "
            "them with a smaller number or a missing value"
        )


def _described(reading: Reading, values: Any) -> Reading:
    present = values.dropna()
    low = high = ""
    if len(present) and reading.kind != "text":
        low, high = extent(present.min(), present.max())
    found = {
        "rows": len(values), "gaps": int(values.isna().sum()) - reading.unread,
        "levels": int(present.nunique()), "low": low, "high": high,
    }  # fmt: skip
    return Reading(**{**asdict(reading), **found})


def extent(low: Any, high: Any) -> tuple[str, str]:
    """The smallest and the largest number or date of a column as text.

    >>> extent(1, 2.5), extent(pd.Timestamp("2020-01-31"), pd.Timestamp("2021-05-01 10:30"))
    (('1', '2.5'), ('2020-01-31', '2021-05-01 10:30'))
    """
    if not isinstance(low, pd.Timestamp):
        return f"{float(low):.6g}", f"{float(high):.6g}"
    first, last = (x.isoformat(sep=" ", timespec="minutes") for x in (low, high))
    return first.removesuffix(" 00:00"), last.removesuffix(" 00:00")
