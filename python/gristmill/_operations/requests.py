"""Requests to the operations of the HTTP API, which an engine carries out in this process, and a server elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from .._errors import StoreError
from .._values import to_plain

# Rows of one page of a listing.
PAGE_ROWS = 1_000


class Carrier(Protocol):
    """An engine, here or elsewhere."""

    def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]: ...


def ask(
    carrier: Carrier,
    method: str,
    path: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    is_optional: bool = False,
) -> Any:
    """The answer to an operation. One that is refused raises `StoreError`; with `is_optional`, what is not there is None."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = f"{path}?{urlencode(given)}" if given else path
    encoded = None if body is None else json.dumps(body, default=to_plain, allow_nan=False).encode()
    status, answer = carrier.request(method, target, encoded)
    if status == 404 and is_optional:
        return None
    body = accepted(status, answer)
    return json.loads(body) if body else {}


def accepted(status: int, answer: bytes) -> bytes:
    """The body of an answer; a refusal raises `StoreError`."""
    if status >= 400:
        raise refused(status, answer)
    return answer


def refused(status: int, answer: bytes) -> StoreError:
    """A refusal as an exception: the problem and the remedy."""
    try:
        refusal = json.loads(answer)
        error, remedy = refusal["error"], refusal["remedy"]
        # Some errors name the remedy themselves.
        return StoreError(error if remedy in error else f"{error}: {remedy}")
    except (ValueError, KeyError, TypeError):
        text = answer[:200].decode(errors="replace")
        return StoreError(f"the server answered with status {status}, not as Gristmill does: {text!r}; check its address")


def pages(carrier: Carrier, path: str, rows: str, query: Mapping[str, Any], limit: int | None) -> Iterator[Any]:
    """The rows of a listing, a page at a time, at most `limit`."""
    after = None
    left = limit
    while left is None or left > 0:
        page_rows = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
        page = ask(carrier, "GET", path, {**query, "after": after, "limit": page_rows})
        yield from page[rows]
        if left is not None:
            left -= len(page[rows])
        after = page.get("next")
        if after is None:
            return


def part(text: str) -> str:
    """A name as a part of a path."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is not a name")
    return quote(text, safe="")


def moment_ms(moment: datetime | float | None) -> int | None:
    """Milliseconds since 1970 of a datetime (local, if it has no time zone) or of `time.time()`'s seconds."""
    if moment is None:
        return None
    return int((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are given."""
    return {name: value for name, value in members.items() if value is not None}
