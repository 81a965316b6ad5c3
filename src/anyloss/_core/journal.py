"""A journal of finished work, one JSON line per unit, so that a stopped run can be continued.

The first line holds the settings. If the process was killed while it wrote a line, this incomplete
line is dropped when the journal is opened again. All other lines are kept, so that no unit is lost
and none is run twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Journal:
    """The results of all units in a file; use it in a `with` statement.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    >>> with Journal(path, {"rows": 5}) as journal:
    ...     journal.add("a", [{"score": 1.0}])
    >>> with Journal(path, {"rows": 5}) as journal:
    ...     journal.results
    {'a': [{'score': 1.0}]}
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.results: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b")
        try:
            self._lock()
            whole = self._read()
        except ValueError:
            self._file.close()
            raise
        self._file.truncate(whole)
        if not whole:
            self._write(self.settings)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, unit: str, rows: list[dict[str, Any]]) -> None:
        """Write the results of a unit to the file."""
        self.results[unit] = rows
        self._write({"unit": unit, "rows": rows})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()

    def _read(self) -> int:
        """Read all complete lines, and return their size in bytes."""
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            header = json.dumps(self.settings).encode()
            if not line.endswith(b"\n") and (number or header.startswith(line)):
                break
            try:
                entry = json.loads(line)
                if number:
                    self.results[entry["unit"]] = entry["rows"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"{self.path} is not a journal of this program (line {number + 1} is not "
                    "valid); choose another output, or delete the file"
                ) from None
            if number == 0 and entry != json.loads(header):
                raise ValueError(
                    f"{self.path} was started with other settings, {entry}; expected "
                    f"{self.settings}. Use the same settings, another output, or delete the journal"
                )
            whole += len(line)
        return whole

    def _lock(self) -> None:
        if os.name != "posix":
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run is writing {self.path}; wait until it ends, or stop it"
            ) from None
