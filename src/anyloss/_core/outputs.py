"""Result files: refused before a run if they cannot be written, put in place in one move."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def check_output(out: Path, suffixes: Sequence[str] = (".csv",)) -> None:
    """Refuse an output that does not end in one of the suffixes, and a folder.

    >>> check_output(Path("scores.xlsx"))
    Traceback (most recent call last):
        ...
    ValueError: the output must end in .csv; got 'scores.xlsx'
    """
    if out.suffix not in suffixes:
        raise ValueError(f"the output must end in {' or '.join(suffixes)}; got {out.name!r}")
    if out.is_dir():
        raise ValueError(f"the output must be a file; {out} is a folder")


def write_table(table: Any, out: Path) -> None:
    """Write a data frame as CSV or Parquet, by its suffix."""
    with aside(out) as part:
        if out.suffix == ".csv":
            table.to_csv(part, index=False)
        else:
            table.to_parquet(part, index=False)


@contextmanager
def aside(out: Path) -> Iterator[Path]:
    """Where to write, until all is written and the file is put in place."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    try:
        yield part
        part.replace(out)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The version of Python, and those of the packages that are installed.

    >>> list(versions(["numpy", "no-such-package"]))
    ['python', 'numpy']
    """
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
