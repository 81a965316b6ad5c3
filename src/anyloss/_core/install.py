"""How a missing package is installed."""

from __future__ import annotations

import shlex
from pathlib import Path


def install_command(extra: str) -> str:
    """The command that installs an extra; in a clone, with the versions that are tested.

    >>> "[benchmark]" in install_command("benchmark")
    True
    """
    clone = Path(__file__).resolve().parents[3]
    tested = clone / "constraints.txt"
    if not (tested.is_file() and (clone / "pyproject.toml").is_file()):
        return f"pip install 'anyloss[{extra}]'"
    return f"pip install -c {shlex.quote(str(tested))} -e {shlex.quote(f'{clone}[{extra}]')}"
