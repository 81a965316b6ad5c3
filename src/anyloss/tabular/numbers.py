"""Numbers in text: separators, currencies, percent signs and units, found for a whole column.

Of the ways to write a number, the one under which most cells are numbers is taken. A single
separator before three digits has two readings: `7.295` is 7295 if whole numbers such as `950` stand
beside it, and `7,295` is 7295 unless the file writes decimal commas elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from anyloss._core.backend import Array

CURRENCIES = (
    "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₴", "₫", "₦", "฿", "US$", "A$", "C$", "R$", "Rs",
    "kr", "Fr.", "zł", "USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "AUD", "CAD", "SEK",
    "NOK", "DKK", "PLN", "CZK", "BRL", "MXN", "RUB", "ZAR", "KRW", "TRY", "SGD", "HKD", "NZD",
)  # fmt: skip
UNITS = (
    "%", "‰", "mg", "g", "kg", "t", "lb", "lbs", "oz", "mm", "cm", "m", "km", "mi", "ft", "in",
    "l", "ml", "cl", "dl", "ms", "s", "sec", "min", "h", "hr", "hrs", "d", "day", "days",
    "week", "weeks", "month", "months", "y", "yr", "yrs", "year", "years", "B", "kB", "KB",
    "MB", "GB", "TB", "W", "kW", "MW", "kWh", "V", "A", "Hz", "kHz", "MHz", "GHz", "°C", "°F",
    "K", "C", "F", "px", "km/h", "mph", "bar", "Pa", "hPa", "kPa", "mmHg", "bpm", "m2", "m3",
    "m²", "m³", "cm²", "cm³", "km²", "k", "M",
)  # fmt: skip
_SPACES = re.compile("[\u00a0\u2007\u2009\u202f\\s]+")
_PREFIX = "|".join(re.escape(x) for x in sorted(CURRENCIES, key=len, reverse=True))
_SUFFIX = rf"{_PREFIX}|[^\W\d_]{{1,3}}[²³23]|[%‰]|°?[^\W\d_]{{1,12}}(?:/[^\W\d_]{{1,3}})?"
_CELL = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[-+])?\s*(?P<prefix>{_PREFIX})?\s*(?P<inner>[-+])?"
    r"(?P<number>\d[\d.,' ]*|[.,]\d+)(?P<exponent>[eE][-+]?\d+)?\s*"
    rf"(?P<suffix>{_SUFFIX})?(?P<trail>-)?\s*(?P<close>\))?"
)
FORMS = (
    (".", ""),
    (",", ""),
    (".", ","),
    (",", "."),
    (".", " "),
    (",", " "),
    (".", "'"),
    (",", "'"),
)
RARE = 0.005  # the share of whole numbers from which a single separator groups thousands


class NumberForm(NamedTuple):
    """How the numbers of a column are written."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def words(self) -> str:
        """The form in words, empty for plain numbers.

        >>> NumberForm(",", ".", "€").words()
        "decimal comma, thousands separator '.', unit '€'"
        """
        found = ["decimal comma"] if self.decimal == "," else []
        found += [f"thousands separator {self.thousands!r}"] if self.thousands else []
        found += [f"unit {self.unit!r}"] if self.unit else []
        return ", ".join(found)


def tidy(texts: Any) -> Any:
    """Texts without outer spaces; every kind of space, minus sign and apostrophe is a plain one."""
    found = texts.str.replace(_SPACES, " ", regex=True).str.strip()
    return found.str.replace("[\u2212\u2013]", "-", regex=True).str.replace(
        "[\u2019\u02bc`]", "'", regex=True
    )


def find_number_form(texts: Any, decimal: str = ".") -> tuple[NumberForm, float]:
    """The form under which most of these texts are numbers, and the share of those that are.

    `decimal` is the decimal separator of the file. Units that differ raise an error.

    >>> find_number_form(pd.Series(["7.295 €", "950 €"]))
    (NumberForm(decimal=',', thousands='.', unit='€'), 1.0)
    """
    cells = _split(texts)
    numbers = cells["number"].dropna()
    if numbers.empty:
        return NumberForm(), 0.0
    best = max(
        FORMS,
        key=lambda form: (_matches(numbers, *form).mean(), _plausible(numbers, form, decimal)),
    )
    valid = cells.loc[numbers.index[_matches(numbers, *best)]]
    if len(valid) <= len(texts) / 2:  # a column of text
        return NumberForm(*best), len(valid) / len(texts)
    unit = _unit(valid)
    return NumberForm(*best, unit), int(valid["unit"].isin(["", unit]).sum()) / len(texts)


def parse_numbers(texts: Any, form: NumberForm) -> Any:
    """The numbers of texts that are written in a form; NaN where a text is not."""
    cells = _split(texts)
    right = cells["number"].notna()
    right &= _matches(cells["number"].fillna(""), form.decimal, form.thousands)
    right &= cells["unit"].isin(["", form.unit]) if form.unit != "%" else cells["unit"].eq("%")
    plain = cells["number"].fillna("")
    plain = plain.str.replace(form.thousands, "", regex=False) if form.thousands else plain
    plain = plain.str.replace(form.decimal, ".", regex=False) + cells["exponent"].fillna("")
    values = pd.to_numeric(plain.where(right), errors="coerce").astype(float)
    return values * np.where(cells["negative"], -1.0, 1.0)


def _split(texts: Any) -> Any:
    """The parts of each cell: the digits, the exponent, the unit and whether it is negative."""
    found = texts.str.extract(rf"^{_CELL.pattern}$")
    number = found["number"].str.strip()
    signs = [found[x].eq("-").fillna(False) for x in ("sign", "inner", "trail")]
    brackets = found["open"].notna() & found["close"].notna()
    whole = found["open"].notna() == found["close"].notna()
    unit = found["prefix"].fillna("") + found["suffix"].fillna("")
    return pd.DataFrame(
        {
            "number": number.where(whole),
            "exponent": found["exponent"],
            "unit": unit,
            "negative": signs[0] | signs[1] | signs[2] | brackets,
        }
    )


def _matches(numbers: Any, decimal: str, thousands: str) -> Array:
    d, t = re.escape(decimal), re.escape(thousands)
    whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{t}\d{{3}})+)" if thousands else r"\d+"
    pattern = rf"(?:{whole}(?:{d}\d*)?|{d}\d+)"
    return numbers.str.fullmatch(pattern).fillna(False).to_numpy(bool)


def _plausible(numbers: Any, form: tuple[str, str], decimal: str) -> float:
    """How plausible a form is among those with as many numbers."""
    mark = {(",", ""): ",", (".", ","): ",", (".", ""): ".", (",", "."): "."}.get(form)
    if mark is None:
        return 0.0
    single = numbers.str.fullmatch(rf"[1-9]\d{{0,2}}{re.escape(mark)}\d{{3}}")
    other = numbers[~single.fillna(False)]
    groups = form[1] == mark  # the mark separates thousands in this form
    if not single.any() or not other.str.fullmatch(r"\d{1,3}").all():
        return 0.5 - 0.1 * bool(form[1]) if form[0] == decimal else 0.0
    beside = len(other) >= max(1, RARE * len(numbers)) and int(other.astype(int).max()) >= 100
    if mark == "," and decimal != ",":
        beside = True  # without any sign of decimal commas, a comma groups thousands
    return 1.0 if groups == beside else 0.0


def _unit(cells: Any) -> str:
    """The unit that all cells share; cells without it are fine, except beside percent."""
    sizes = cells["unit"].value_counts()
    units = [x for x in sizes.index if x]
    if not units:
        return ""
    known = {*CURRENCIES, *UNITS}
    if len(units) > 1 and all(x in known for x in units):
        shown = ", ".join(repr(x) for x in units[:5])
        raise ValueError(f"the cells have different units ({shown}): convert them to one unit")
    if units[0] == "%" and "" in sizes:
        raise ValueError(
            f"some cells have a percent sign and {sizes['']} have none, so that their size is not "
            "known: write all of them in the same way"
        )
    return str(units[0])
