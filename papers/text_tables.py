"""Tables as plain text, which are the same on a screen, in a pipe and in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text. A column is aligned to the right if all its cells are numbers or empty.

    >>> print(text_table(["loss", "ours"], [["BCE", "0.50"], ["L_F1", "10.50"]]))
    loss   ours
    BCE    0.50
    L_F1  10.50
    """
    table = [list(header), *map(list, rows)]
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(map(_is_number, column[1:])) for column in columns]
    lines = (
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    return not cell.strip("+-.0123456789e/() ±")


def signed(x: float, digits: int) -> str:
    """A difference with its sign, or 0 without a sign if it is 0 in these digits.

    >>> signed(-1e-9, 6), signed(0.25, 2)
    (' 0.000000', '+0.25')
    """
    shown = f"{x:+.{digits}f}"
    return shown if float(shown) else f" {0:.{digits}f}"


def truncated(x: float, digits: int) -> str:
    """A number whose further digits are cut off and not rounded.

    >>> truncated(0.9215, 3), truncated(0.29, 2)
    ('0.921', '0.29')
    """
    return f"{math.floor(round(x * 10**digits, 6)) / 10**digits:.{digits}f}"
