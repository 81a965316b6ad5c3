"""A limit of time for a training: it is given up as soon as it cannot end in time.

The recipes report which share of their work is done. Nothing is limited outside of `Deadline.hold`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

Clock = Callable[[], float]
FROM = 0.1  # the share of the work from which on its end is predicted


class OutOfTime(Exception):
    """A training cannot end within its limit of time; `seconds` are those it would need."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the training would take {seconds:.1f} s")
        self.seconds = seconds


class Deadline:
    """The end of a limit of `seconds`, by a clock that tests replace.

    >>> times = iter([0.0, 1.0, 2.0])
    >>> deadline = Deadline(10.0, clock=lambda: next(times))
    >>> deadline.left(), deadline.left()
    (9.0, 8.0)
    """

    def __init__(self, seconds: float, clock: Clock = monotonic) -> None:
        self.clock = clock
        self.end = clock() + seconds

    def left(self) -> float:
        """The seconds that are left."""
        return self.end - self.clock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Within this block, a training that cannot end in time raises `OutOfTime`."""
        token = _running.set((self, self.clock()))
        try:
            yield
        finally:
            _running.reset(token)


_running: ContextVar[tuple[Deadline, float] | None] = ContextVar("running", default=None)


def is_limited() -> bool:
    """Whether the training has a limit of time."""
    return _running.get() is not None


def report(done: float = 0.0) -> None:
    """Report the share of the work that is done; 0 where it is not known."""
    running = _running.get()
    if running is None:
        return
    deadline, start = running
    now = deadline.clock()
    needed = (now - start) / done if done >= FROM else now - start
    if now >= deadline.end or start + needed > deadline.end:
        raise OutOfTime(needed)
