"""Events of a server: a thread reads the stream, and connects again if it breaks."""

from __future__ import annotations

import http.client
import queue
import socket
import threading
from typing import Any

from .._errors import GristmillError, StoreError
from .connection import Connection

# Events that were read and not taken; beyond them the stream is not read on.
EVENTS_WAITING_MAX = 1_000
# The server sends a sign of life every 15 s. Seconds.
SILENCE_S = 60.0
# The pause before another connection; and how often one is tried in vain. Seconds.
AGAIN_S, TRIES_MAX = 0.5, 20
# Bytes of one event.
EVENT_BYTES_MAX = 16 << 20


class RemoteEvents:
    """A listener to the events of a server."""

    def __init__(self, connection: Connection, after: str | None) -> None:
        self._connection = connection
        self._cursor = after
        self._events: queue.Queue[str | Exception] = queue.Queue(EVENTS_WAITING_MAX)
        self._closed = threading.Event()
        # The first connection is made here, so that a refusal is raised here, and no later event is missed.
        self._response = self._open()
        threading.Thread(target=self._listen, name="gristmill-events", daemon=True).start()

    def take(self, patience: float) -> str | None:
        """The next event as JSON; None after this many seconds without one."""
        try:
            event = self._events.get(timeout=max(patience, 0.0)) if patience > 0 else self._events.get_nowait()
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        """Stops listening."""
        self._closed.set()
        try:
            # Wakes the thread that reads.
            fp: Any = self._response.fp
            if fp is not None:
                fp.raw._sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass

    def _open(self) -> http.client.HTTPResponse:
        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        return self._connection.open("/events", headers, SILENCE_S)

    def _listen(self) -> None:
        tries = 0
        while not self._closed.is_set():
            try:
                while self._take_one():
                    tries = 0
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                pass
            self._response.close()
            while not self._closed.wait(AGAIN_S):
                tries += 1
                try:
                    self._response = self._open()
                    break
                except GristmillError as error:
                    if tries >= TRIES_MAX:
                        self._put(StoreError(f"the events of {self._connection.base_url} ended: {error}"))
                        return

    def _take_one(self) -> bool:
        """Reads one event; False at the end of the stream."""
        data: list[str] = []
        cursor = None
        while True:
            line = self._response.readline(EVENT_BYTES_MAX)
            if not line:
                return False
            text = line.decode().rstrip("\r\n")
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "id":
                cursor = value
            elif not text and data:
                self._cursor = cursor or self._cursor
                self._put("\n".join(data))
                return True

    def _put(self, event: str | Exception) -> None:
        while not self._closed.is_set():
            try:
                return self._events.put(event, timeout=SILENCE_S)
            except queue.Full:
                continue
