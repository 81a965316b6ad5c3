"""The messages of the commands, printed with their levels."""

from __future__ import annotations

from collections.abc import Iterable


def print_messages(texts: Iterable[str]) -> None:
    """Print messages as `level: text`, the most serious ones first."""
    from anyloss.tabular.messages import by_level

    for message in by_level(texts):
        print(f"{message.level}: {message}")
