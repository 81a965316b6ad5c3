"""A progress bar for long commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, *, stderr: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar, and the callback that updates it with what is done, the total and a name."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=stderr),
    ) as bar:  # fmt: skip
        task = bar.add_task(label)
        yield lambda done, total, name: bar.update(task, completed=done, total=total)
