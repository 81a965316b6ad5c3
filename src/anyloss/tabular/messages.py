"""Messages about a table and its model, graded by what they ask of the reader.

This is the only place that defines the levels. The command line prints a message as `level: text`,
and the report marks it with its level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

STOP, WARNING, INFORMATION = "stop", "warning", "information"
LEVELS = {  # the most serious one first
    STOP: "Do not rely on the model before this is corrected.",
    WARNING: "Check this before you rely on the numbers.",
    INFORMATION: "This was done; nothing needs to be corrected.",
}


class Message(str):
    """A text with its level.

    `Result.warnings` and `Comparison.warnings` hold them. A message is a `str`, so that it can be
    searched, printed and stored like any other text; a plain text counts as a warning.

    Args:
        text (str): the text, without a full stop.
        level (str): `"stop"` (do not rely on the model before this is corrected), `"warning"`
            (check this before you rely on the numbers) or `"information"` (nothing needs to be
            corrected). Default: `"warning"`.

    Raises:
        ValueError: if the level is unknown.

    Examples:
        >>> found = Message("columns that are constant are not used: 'a'", "information")
        >>> found.level, "constant" in found
        ('information', True)
    """

    level: str

    def __new__(cls, text: str, level: str = WARNING) -> Self:
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}; got {level!r}")
        found = super().__new__(cls, text)
        found.level = level
        return found


def information(text: str) -> Message:
    """A message that asks for nothing."""
    return Message(text, INFORMATION)


def stop(text: str) -> Message:
    """A message that forbids to rely on the model."""
    return Message(text, STOP)


def by_level(texts: Iterable[str]) -> list[Message]:
    """Texts as messages, the most serious ones first.

    >>> [(x.level, str(x)) for x in by_level([information("a"), "b", stop("c")])]
    [('stop', 'c'), ('warning', 'b'), ('information', 'a')]
    """
    found = [x if isinstance(x, Message) else Message(x) for x in texts]
    return sorted(found, key=lambda x: list(LEVELS).index(x.level))
