"""Environments of their own for libraries that a benchmark compares with."""

from __future__ import annotations

import hashlib
import json
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def python_of(place: Path, installs: Sequence[Sequence[str]], files: Sequence[Path] = ()) -> Path:
    """The Python of an environment, which is made or brought up to date first.

    `installs` are the arguments of one `pip install` each, `files` what they depend on besides. The
    environment records both, and is only changed if one of them has changed.
    """
    python, stamp = place / "bin" / "python", place / "installed"
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    wanted = json.dumps([list(map(list, installs)), digests])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        venv.create(place, with_pip=True, symlinks=True)
    for arguments in installs:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *arguments], check=True)
    stamp.write_text(wanted)
    return python
