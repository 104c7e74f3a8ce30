"""Spans of time in text form."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Longer spans are a slip of the pen, and the store could not hold the moment at their end. Seconds.
SECONDS_MAX = 1_000 * 366 * 86_400
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")


def seconds(span: float | str | timedelta) -> float:
    """The seconds of a number of seconds, a timedelta or text: "30s", "5ms", "1h 30m".

    >>> seconds("1h 30m")
    5400.0
    """
    if isinstance(span, timedelta):
        amount = span.total_seconds()
    elif isinstance(span, str):
        parts = _SPAN.findall(span)
        if not parts or _SPAN.sub("", span):
            raise ValueError(f'{span!r} is not a span of time: write it as in "5ms", "30s", "5m", "1h 30m" or "2d"')
        amount = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    else:
        try:
            amount = float(span)
        except TypeError:
            raise TypeError(
                f"{span!r} is a {type(span).__qualname__}, and not a span of time: give seconds, a timedelta or text such as \"5m\""
            ) from None
    if not 0 <= amount <= SECONDS_MAX:
        raise ValueError(f"{span!r} is not a span of time: it is less than 0 or more than 1,000 years")
    return amount


def milliseconds(span: float | str | timedelta) -> int:
    """The span in whole milliseconds, rounded up."""
    return -int(-seconds(span) * 1000 // 1)
