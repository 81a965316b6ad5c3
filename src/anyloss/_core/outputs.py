"""Result files: checked before a run, and written completely or not at all."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def check_output(out: Path, suffixes: Sequence[str] = (".csv",)) -> None:
    """Refuse a path that is a folder or does not end in one of the suffixes.

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
    """Write a data frame as CSV or Parquet, depending on the suffix."""
    with replacing(out) as part:
        if out.suffix == ".csv":
            table.to_csv(part, index=False)
        else:
            table.to_parquet(part, index=False)


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a temporary path; at the end, move the file from there to `out`.

    If the block raises an error, the temporary file is deleted and `out` remains as it was.
    """
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
