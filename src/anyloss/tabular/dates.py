"""Dates in text and as features: the format of a column, and the numbers that models receive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array

ISO = "ISO8601"
DAYS = {
    "%d.%m.%Y": "day.month.year", "%d.%m.%y": "day.month.year", "%m/%d/%Y": "month/day/year",
    "%d/%m/%Y": "day/month/year", "%m/%d/%y": "month/day/year", "%d/%m/%y": "day/month/year",
    "%Y/%m/%d": "year/month/day", "%Y.%m.%d": "year.month.day", "%m-%d-%Y": "month-day-year",
    "%d-%m-%Y": "day-month-year", "%d-%b-%Y": "day-month-year", "%d-%b-%y": "day-month-year",
    "%d %b %Y": "day month year", "%d %B %Y": "day month year", "%b %d, %Y": "month day, year",
    "%B %d, %Y": "month day, year",
}  # fmt: skip
TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
AMBIGUOUS = {"%m/%d/%Y": "%d/%m/%Y", "%m/%d/%y": "%d/%m/%y", "%m-%d-%Y": "%d-%m-%Y"}
YEARS = (1800, 2200)
SHARE = 0.9  # a column with this share of dates is one of dates
SAMPLE = 300
PARTS = ("year", "month", "weekday", "days", "hour")


def find_date_form(texts: Any) -> str | None:
    """The format of most of these texts, `"ISO8601"` for year-month-day; None if they are no dates.

    Dates whose day and month could be exchanged in every cell raise an error.

    >>> find_date_form(pd.Series(["31.01.2020", "1.2.2020 10:30"]))
    '%d.%m.%Y'
    """
    distinct = texts.drop_duplicates()
    sample = distinct.iloc[:SAMPLE]
    if not sample.str.contains(r"\d", regex=True).mean() > SHARE:
        return None
    if not sample.str.fullmatch(r"[\w\s.,/:+-]{6,35}").mean() > SHARE:
        return None
    for form in (ISO, *DAYS):
        if parse_dates(sample, form).notna().mean() <= SHARE:
            continue
        if parse_dates(distinct, form).notna().mean() <= SHARE:
            continue
        other = AMBIGUOUS.get(form)
        if other is not None and parse_dates(distinct, other).notna().mean() > SHARE:
            raise ValueError(
                f"the dates, such as {str(distinct.iloc[0])!r}, can be read as day or month first: "
                "write them as year-month-day"
            )
        return form
    return None


def parse_dates(texts: Any, form: str) -> Any:
    """The dates of texts in a format, with or without a time; NaT where a text is none."""
    if form == ISO:
        found = pd.to_datetime(texts, format=ISO, errors="coerce", utc=True).dt.tz_localize(None)
    else:
        found = pd.Series(pd.NaT, index=texts.index, dtype="datetime64[ns]")
        for time in TIMES:
            left = found.isna()
            if not left.any():
                break
            more = pd.to_datetime(texts[left], format=form + time, errors="coerce")
            found = found.where(~left, more.reindex(found.index).astype("datetime64[ns]"))
    return found.where(found.dt.year.between(*YEARS))


def is_dates(series: Any) -> bool:
    """Whether a column holds dates, and not text."""
    inferred = pd.api.types.infer_dtype(series, skipna=True)
    return inferred in ("datetime64", "datetime", "date")


def as_dates(series: Any) -> Any:
    """Dates of any type, without a time zone."""
    found = pd.to_datetime(series, utc=True, errors="coerce").dt.tz_localize(None)
    return found.astype("datetime64[ns]")


def date_parts(dates: Any, first: Any) -> dict[str, Array]:
    """The features of dates: year, month, weekday (Monday is 0), days since the first, hour.

    >>> noon = pd.Series(pd.to_datetime(["2024-02-29 12:00"]))
    >>> found = date_parts(noon, pd.Timestamp("2024-02-28"))
    >>> {name: float(x[0]) for name, x in found.items()}
    {'year': 2024.0, 'month': 2.0, 'weekday': 3.0, 'days': 1.5, 'hour': 12.0}
    """
    at = dates.dt
    days = (dates - first) / pd.Timedelta(days=1)
    values = (at.year, at.month, at.day_of_week, days, at.hour)
    return {
        name: np.asarray(x.to_numpy(np.float64, na_value=np.nan))
        for name, x in zip(PARTS, values, strict=True)
    }
