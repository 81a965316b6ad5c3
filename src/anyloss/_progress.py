"""A progress bar per stage of training, for the front-ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stage_progress(shown: bool) -> Iterator[Callable[[str, int, int, float], None]]:
    """A callback that receives the stage, the step, the last step and a value; a bar if `shown`."""
    if not shown:
        yield lambda stage, step, total, value: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description} {task.completed} of {task.total}")
    with Progress(
        text, BarColumn(), TextColumn("{task.fields[value]}"), TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bar:  # fmt: skip
        tasks: dict[str, Any] = {}

        def on_step(stage: str, step: int, total: int, value: float) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, value="")
            bar.update(tasks[stage], completed=step, value=f"{value:.4f}")

        yield on_step
