"""Payloads as JSON, in portions of one request or statement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._values import plain_keys

# Jobs and bytes of payloads in one portion.
JOBS_MAX, BYTES_MAX = 10_000, 4 << 20


def encoded(payload: Any, to_plain: Callable[[Any], Any]) -> str:
    """A payload as JSON; `to_plain` converts objects of types that JSON does not have."""
    try:
        try:
            return json.dumps(payload, default=to_plain, allow_nan=False, separators=(",", ":"))
        except TypeError as error:
            if not str(error).startswith("keys must be"):
                raise
            return json.dumps(plain_keys(payload), allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("a payload nests too deep, or contains itself") from None


def portions(payloads: Iterable[Any], to_plain: Callable[[Any], Any]) -> Iterator[list[str]]:
    """Payloads as JSON, in portions."""
    portion: list[str] = []
    size = 0
    for payload in payloads:
        portion.append(encoded(payload, to_plain))
        size += len(portion[-1])
        if len(portion) >= JOBS_MAX or size >= BYTES_MAX:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
