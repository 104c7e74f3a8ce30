"""Requests to the operations of the HTTP API, which an engine carries out in this process, and a server remotely."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from .._errors import NotFound, StoreError
from .._values import to_plain

# Rows of one page of a listing.
PAGE_ROWS = 1_000


class Carrier(Protocol):
    """An engine, in this process or on a server."""

    def carry_out(self, operation: str, subject: str, request: str) -> str: ...


def ask(
    carrier: Carrier,
    operation: str,
    request: Mapping[str, Any] | None = None,
    subject: str | None = None,
    is_optional: bool = False,
) -> Any:
    """The answer to an operation of the HTTP API, by its `operationId`; `subject` is the job, schedule or tag that it is about. One
    that is refused raises `StoreError`; with `is_optional`, what is not there is None."""
    if subject in ("", ".", ".."):
        raise ValueError(f"{subject!r} is not a name")
    encoded = json.dumps(without_none(request or {}), default=to_plain, allow_nan=False)
    try:
        return json.loads(carrier.carry_out(operation, subject or "", encoded))
    except NotFound:
        if is_optional:
            return None
        raise


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
        told = error if remedy in error else f"{error}: {remedy}"
        return NotFound(told) if status == 404 else StoreError(told)
    except (ValueError, KeyError, TypeError):
        text = answer[:200].decode(errors="replace")
        return StoreError(f"the server answered with status {status}, not as Gristmill does: {text!r}; check its address")


def pages(
    carrier: Carrier,
    operation: str,
    rows: str,
    query: Mapping[str, Any],
    limit: int | None,
    subject: str | None = None,
    *,
    place: str = "after",
    page_rows_max: int = PAGE_ROWS,
) -> Iterator[Any]:
    """The rows of a listing, a page at a time, at most `limit`. `place` is the parameter that takes the `next` of a page."""
    after = None
    left = limit
    while left is None or left > 0:
        page_rows = page_rows_max if left is None else min(left, page_rows_max)
        page = ask(carrier, operation, {**query, place: after, "limit": page_rows}, subject)
        yield from page[rows]
        if left is not None:
            left -= len(page[rows])
        after = page.get("next")
        if after is None:
            return


def moment_ms(moment: datetime | float | None) -> int | None:
    """Milliseconds since 1970 of a datetime (local, if it has no time zone) or of `time.time()`'s seconds."""
    if moment is None:
        return None
    return int((moment.timestamp() if isinstance(moment, datetime) else moment) * 1000)


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
