"""Waits for the ends of many jobs of a server, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._errors import GristmillError

if TYPE_CHECKING:
    from .engine import RemoteEngine

# How soon the server is asked again; each further look is twice as late, until a job ends or another one is watched. Seconds.
LOOK_FIRST_S, LOOK_S_MAX = 0.025, 0.5
# Batches that one request asks for.
BATCHES_MAX = 200

Told = Callable[..., object]


class Watcher:
    """Reports the ends of jobs. Its thread lives while it watches any."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._watched: dict[int, list[tuple[int, Told]]] = {}
        self._changed = threading.Condition()
        self._is_running = False
        self._is_closed = False

    def watch(self, batch: int, position: int, told: Told) -> None:
        """Calls `told(state, value, error)` when the job has ended, or `told(None, message, None)` if that cannot be found out."""
        with self._changed:
            self._watched.setdefault(batch, []).append((position, told))
            self._changed.notify()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._look, name="gristmill-watcher", daemon=True).start()

    def close(self) -> None:
        """Ends the watches."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _look(self) -> None:
        pause_s = LOOK_FIRST_S
        while True:
            with self._changed:
                if self._is_closed or not self._watched:
                    self._is_running = False
                    watched, self._watched = self._watched, {}
                    break
                batches = list(self._watched)
            has_ended = False
            for first in range(0, len(batches), BATCHES_MAX):
                has_ended |= self._look_at(batches[first : first + BATCHES_MAX])
            with self._changed:
                if has_ended or (self._watched and self._changed.wait(pause_s)):
                    pause_s = LOOK_FIRST_S
                else:
                    pause_s = min(2 * pause_s, LOOK_S_MAX)
        for told in [told for waiting in watched.values() for _, told in waiting]:
            told(None, "the application was closed while the job was awaited", None)

    def _look_at(self, batches: list[int]) -> bool:
        """Reads some batches once; reports whether a job has ended."""
        try:
            lines = self._engine.outcome_lines(batches)
        except GristmillError as error:
            if len(batches) > 1:
                # One of them may not be there.
                return any([self._look_at([batch]) for batch in batches])
            return self._tell(batches[0], lambda position: (None, str(error), None))
        from .engine import ended

        outcomes: dict[int, dict[int, dict[str, Any]]] = {}
        for line in lines:
            batch, _, position = line["job"].partition(":")
            outcomes.setdefault(int(batch), {})[int(position)] = line
        has_ended = False
        for batch, of_batch in outcomes.items():

            def find(position: int, of_batch: dict[int, dict[str, Any]] = of_batch) -> Any:
                line = of_batch.get(position)
                if line is None:
                    return None
                return ended({**line, "failures": [line["error"]] if "error" in line else []})

            has_ended |= self._tell(batch, find)
        return has_ended

    def _tell(self, batch: int, find: Callable[[int], Any]) -> bool:
        with self._changed:
            waiting = self._watched.pop(batch, [])
            found = [(told, find(position)) for position, told in waiting]
            left = [watch for watch, (_, outcome) in zip(waiting, found) if outcome is None]
            if left:
                self._watched[batch] = left
        ended = [(told, outcome) for told, outcome in found if outcome is not None]
        for told, outcome in ended:
            told(*outcome)
        return bool(ended)
