"""Requests to a server, by the standard library's client: kept connections, a token, limits, safe repeats."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import select
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from .._errors import StoreError
from .._operations.requests import refused

# Where all operations are.
BASE = "/api/v1"
# The environment's variable that holds the token.
TOKEN_VARIABLE = "GRISTMILL_TOKEN"
# How long a server may take to accept a connection, and to answer what does not wait. Seconds.
CONNECT_S, ANSWER_S = 5.0, 60.0
# Connections that wait for the next request, and how long. Seconds.
IDLE_MAX, IDLE_S_MAX = 8, 20.0
# How often a request is sent at most, and the pauses between; a server may ask for longer ones. Seconds.
ATTEMPTS_MAX, PAUSE_FIRST_S, PAUSE_S_MAX = 6, 0.1, 5.0
# Bytes of one answer.
ANSWER_BYTES_MAX = 256 << 20
# Refusals by which a server says that it has done nothing, and that it may be asked again.
REPEATABLE = ("too_many", "stopping", "not_ready")


class Connection:
    """The connections to one server. Threads may share them; a fork makes its own."""

    def __init__(self, base_url: str, token: str | None = None) -> None:
        parts = urlsplit(base_url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query or parts.username:
            raise ValueError(f"{base_url!r} is not the address of a server: write it as in https://jobs.example:8378")
        token = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()
        if token and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(f"refusing to send a token to {base_url} in clear text: use https://")
        if any(not 32 < ord(letter) < 127 for letter in token):
            raise ValueError(f"{TOKEN_VARIABLE} is not one line of text without spaces: give it as `gristmill token create` printed it")
        self.base_url = base_url.rstrip("/")
        self._address = (parts.hostname, port)
        self._path = parts.path.rstrip("/") + BASE
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()

    def send(self, method: str, target: str, body: bytes | None = None, answer_s: float = ANSWER_S) -> tuple[int, bytes]:
        """The status and body of the answer. A request that may have stored something is not sent again."""
        pause_s = PAUSE_FIRST_S
        for attempt in range(1, ATTEMPTS_MAX + 1):
            client: http.client.HTTPConnection | None = None
            after_s: float | None = None
            try:
                client = self._connected(answer_s)
                client.request(method, self._path + target, body, self._with_type(body))
                response = client.getresponse()
                answer = _read(response)
            except (OSError, http.client.HTTPException) as error:
                if client is not None:
                    client.close()
                    if method not in ("GET", "HEAD"):
                        raise StoreError(
                            f"the connection to {self.base_url} broke before the answer ({_reason(error)}): the request may or"
                            " may not be stored; give jobs a key= to submit them again safely"
                        ) from error
                problem = f"{self.base_url} cannot be reached: {_reason(error)}"
            else:
                self._keep(client, response)
                if response.status not in (429, 503) or (method == "POST" and _code(answer) not in REPEATABLE):
                    return response.status, answer
                after_s = _seconds(response.getheader("Retry-After"))
                problem = str(refused(response.status, answer))
            if attempt == ATTEMPTS_MAX:
                raise StoreError(problem)
            time.sleep(min(pause_s if after_s is None else after_s, PAUSE_S_MAX))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        raise AssertionError("the last attempt raises")

    def open(self, target: str, headers: dict[str, str], silence_s: float) -> http.client.HTTPResponse:
        """Begins a GET whose answer comes in pieces, on its own connection, which the answer closes."""
        try:
            client = self._new(silence_s)
            client.request("GET", self._path + target, headers={**self._headers, **headers, "Connection": "close"})
            response = client.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"{self.base_url} cannot be reached: {_reason(error)}") from error
        if response.status != 200:
            raise refused(response.status, _read(response))
        return response

    def close(self) -> None:
        """Closes the kept connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for client, _ in idle:
            client.close()

    def _with_type(self, body: bytes | None) -> dict[str, str]:
        return self._headers if body is None else {**self._headers, "Content-Type": "application/json"}

    def _connected(self, answer_s: float) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                client, since = self._idle.pop()
            sock = client.sock
            # A connection that can be read before a request was closed by the server.
            if sock is not None and time.monotonic() - since < IDLE_S_MAX and not select.select([sock], [], [], 0)[0]:
                sock.settimeout(answer_s)
                return client
            client.close()
        return self._new(answer_s)

    def _new(self, answer_s: float) -> http.client.HTTPConnection:
        host, port = self._address
        client: http.client.HTTPConnection
        if self._tls is None:
            client = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        else:
            client = http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=self._tls)
        client.connect()
        client.sock.settimeout(answer_s)
        return client

    def _keep(self, client: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < IDLE_MAX:
                self._idle.append((client, time.monotonic()))
                return
        client.close()


def is_loopback(host: str) -> bool:
    """Reports whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = response.read(ANSWER_BYTES_MAX + 1)
    if len(answer) > ANSWER_BYTES_MAX:
        raise http.client.HTTPException(f"the answer is over {ANSWER_BYTES_MAX} bytes")
    return answer


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _code(answer: bytes) -> Any:
    try:
        return json.loads(answer)["code"]
    except (ValueError, KeyError, TypeError):
        return None


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None
