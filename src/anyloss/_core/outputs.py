"""Result files: checked before a run, and written completely or not at all."""

from __future__ import annotations

import os
import platform
import secrets
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
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"the output must end in {' or '.join(suffixes)}; got {out.name!r}")
    if out.exists() and not out.is_file():
        kind = "a folder" if out.is_dir() else "a pipe or a device"
        raise ValueError(f"the output must be a file; {out} is {kind}")
    target_of(out)


def check_new(out: Path, force: bool) -> None:
    """Refuse a path that exists, unless it shall be overwritten."""
    if out.exists() and not force:
        raise ValueError(f"{out} exists; choose another output, or overwrite it with --force")


def target_of(path: Path) -> Path:
    """The path itself, or what it is a link to; a link to nothing is refused."""
    if path.is_symlink() and not path.exists():
        raise ValueError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; choose another path, "
            "or remove the link"
        )
    return Path(os.path.realpath(path)) if path.is_symlink() else path


class NotWritten(ValueError):
    """The error for a path that cannot be written, such as on a full disk."""

    def __init__(self, path: Path, error: OSError | NotWritten) -> None:
        if isinstance(error, NotWritten):
            self.reason: str = error.reason
        else:
            self.reason = error.strerror or str(error)
        super().__init__(f"{path} cannot be written ({self.reason}); choose another path")


def write_table(table: Any, out: Path) -> None:
    """Write a data frame as CSV or Parquet, depending on the suffix."""
    with replacing(out) as part:
        if out.suffix.lower() == ".csv":
            table.to_csv(part, index=False)
        else:
            table.to_parquet(part, index=False)


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a temporary path; at the end, move the file from there to `out`.

    If `out` is a link, the file that it points to is replaced. If the block raises an error, the
    temporary file is deleted and `out` remains as it was. The file mode follows the umask.
    """
    place = target_of(out)
    part = place.with_name(f".{place.name}-{secrets.token_hex(4)}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(place)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and _concerns(error, part):
            raise NotWritten(out, error) from None
        raise


def _concerns(error: OSError, part: Path) -> bool:
    """Whether an error is about the file that is written, not about one that is read."""
    near = [part, part.parent, *part.parents]
    return error.filename is None or Path(os.fsdecode(error.filename)) in near


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
