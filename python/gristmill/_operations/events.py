"""Events as an iterator, for ordinary and for asynchronous code."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from .records import Event

# How long one call waits for an event, after which Ctrl-C and a timeout are looked at. Seconds.
LOOK_S = 0.25


class Events:
    """A listener to the events of a store: `for event in events` and `async for event in events`.

    It ends after `timeout` seconds without an event; without a timeout, it does not end by itself.

    >>> with app.events(timeout=10) as events:
    ...     handle = double.submit(1)
    ...     [event.type for event, _ in zip(events, range(1))]
    ['submitted']
    """

    def __init__(self, native: Any, timeout: float | None) -> None:
        self._native = native
        self._timeout = timeout
        self._is_closed = False

    def take(self, timeout: float | None = None) -> Event | None:
        """The next event; None after so many seconds without one.

        >>> app.events().take(timeout=0.01) is None
        True
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._is_closed:
            left = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
            found = self._native.take(max(left, 0.0))
            if found is not None:
                return Event.of(json.loads(found))
            if left <= 0:
                break
        return None

    def close(self) -> None:
        """Stops listening."""
        self._is_closed = True
        close = getattr(self._native, "close", None)
        if close is not None:
            close()

    def __del__(self) -> None:
        # No one closes the events of a loop that ended by `break`.
        self.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.take(self._timeout)
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._is_closed:
            # In a thread for a moment at a time: a task that is cancelled leaves no thread behind for longer.
            left = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
            event = await asyncio.to_thread(self.take, max(left, 0.0))
            if event is not None:
                return event
            if left <= 0:
                break
        raise StopAsyncIteration
