"""A clock that tests move."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from .._spans import milliseconds

if TYPE_CHECKING:
    from .._native import Engine

# Where a test's clock begins.
BEGINNING = datetime(2001, 9, 9, 1, 46, 40, tzinfo=timezone.utc)


class Clock:
    """The time of a test's store. It stands still until `advance` moves it.

    >>> import gristmill
    >>> from gristmill.testing import temporary_store
    >>> clock = Clock()
    >>> with temporary_store(gristmill.App(), clock) as app:
    ...     handle = app.job(abs).submit(-1, delay="1d")
    ...     before = app.drain()
    ...     clock.advance("1d")
    ...     before, app.drain()
    (0, 1)
    """

    def __init__(self, now: datetime = BEGINNING) -> None:
        self.now = now
        self._engine: Engine | None = None

    def now_ms(self) -> int:
        """The time in milliseconds since 1970."""
        return round(self.now.timestamp() * 1000)

    def open(self, place: str) -> Engine:
        """Opens a store with this clock."""
        from .._native import Engine

        self._engine = Engine.open_for_tests(place, self.now_ms())
        return self._engine

    def advance(self, span: float | str | timedelta) -> None:
        """Moves the clock forward. Schedules that are due by then submit their jobs, delayed jobs can run, and jobs that no
        worker started in time expire.

        >>> clock = Clock()
        >>> clock.advance("1h 30m")
        >>> clock.now
        datetime.datetime(2001, 9, 9, 3, 16, 40, tzinfo=datetime.timezone.utc)
        """
        by_ms = milliseconds(span)
        self.now += timedelta(milliseconds=by_ms)
        if self._engine is not None:
            self._engine.advance(by_ms)
