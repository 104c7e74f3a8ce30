"""The options of jobs and of submits, checked when they are given."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from ._spans import milliseconds

Span = float | str | timedelta

# As everywhere in Gristmill, a job has three attempts; an item of a map or an executor has one.
RETRIES_DEFAULT = 2
# The limits of the engine: attempts of a job, priorities, and how many processes, threads or asynchronous jobs make sense.
RETRIES_MAX = 999
PRIORITY_MIN, PRIORITY_MAX = -32_768, 32_767
AT_ONCE_MAX = 10_000
BACKOFFS = ("jitter", "constant", "linear", "exponential")
ON_DUPLICATE = ("skip", "replace", "rerun", "reject")

# Options that are spans, by the names that the engine has for them.
SPANS = (("timeout", "timeout_ms"), ("complete_within", "complete_within_ms"), ("cached", "cached_ms"), ("expires", "expires_ms"))

# Options of a job, which a submit may change for its own jobs.
OPTIONS = ("retries", "retry_delay", "backoff", "timeout", "complete_within", "priority", "expires", "group", "cached")


def options_json(
    retries: int = 0,
    retry_delay: Span = 1.0,
    backoff: str = "jitter",
    timeout: Span | None = None,
    complete_within: Span | None = None,
    priority: int = 0,
    expires: Span | None = None,
    group: str | None = None,
    cached: Span | None = None,
) -> dict[str, Any]:
    """The options of a batch, in the engine's form."""
    delay_ms = milliseconds(retry_delay)
    options: dict[str, Any] = {
        "priority": whole_number("priority", priority, PRIORITY_MIN, PRIORITY_MAX),
        "retry": {
            "attempts_max": whole_number("retries", retries, 0, RETRIES_MAX) + 1,
            "backoff": one_of("backoff", backoff, BACKOFFS),
            "delay_ms": delay_ms,
            "delay_ms_max": max(delay_ms, 300_000),
        },
    }
    if timeout is not None:
        options["timeout_ms"] = milliseconds(timeout)
        if options["timeout_ms"] == 0:
            raise ValueError(f"timeout={timeout!r}: no attempt could end in time; omit it for no limit")
    for name, span in (("complete_within", complete_within), ("cached", cached)):
        if span is not None:
            options[f"{name}_ms"] = milliseconds(span)
            if options[f"{name}_ms"] == 0:
                raise ValueError(f"{name}={span!r}: give a span of at least 1 ms, or omit it")
    if group is not None:
        options["group"] = text("group", group)
    if expires is not None:
        options["expires_ms"] = milliseconds(expires)
    return options


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments for these options."""
    retry = options["retry"]
    arguments = {
        "retries": retry["attempts_max"] - 1,
        "retry_delay": retry["delay_ms"] / 1000,
        "backoff": retry["backoff"],
        "priority": options["priority"],
        "group": options.get("group"),
    }
    for name, key in SPANS:
        if key in options:
            arguments[name] = options[key] / 1000
    return arguments


def unique_json(key: object, on_duplicate: str, unique_for: Span | None) -> str | None:
    """The rules of deduplication, in the engine's form; None without a key."""
    one_of("on_duplicate", on_duplicate, ON_DUPLICATE)
    if key is None:
        if on_duplicate != "skip" or unique_for is not None:
            raise ValueError("on_duplicate= and unique_for= are about jobs of the same key: give key=, too")
        return None
    if not callable(key):
        text("key", key)
    unique: dict[str, Any] = {"on_duplicate": on_duplicate}
    if unique_for is not None:
        unique["period_ms"] = milliseconds(unique_for)
    return json.dumps(unique)


def tag_pairs(tags: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Tags as pairs of texts."""
    if tags is None:
        return []
    if not isinstance(tags, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'tags={tags!r}: give a dict of names and values, such as {{"customer": "7"}}')
    return [(text("a tag's name", name), str(value)) for name, value in tags.items()]


def check_names(call: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Refuses unknown options of a call."""
    names = list(known)
    for name in options:
        if name not in names:
            import difflib

            close = difflib.get_close_matches(name, names, 1)
            remedy = f"did you mean {close[0]}=?" if close else f"it has {', '.join(f'{name}=' for name in names)}"
            raise TypeError(f"{call} has no option {name}=: {remedy}")


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number of an option, checked against its limits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: give a whole number from {least} to {most:,}") from None
    if not least <= number <= most:
        raise ValueError(f"{name}={value!r}: give a whole number from {least} to {most:,}")
    return number


def at_once(name: str, value: int | None) -> int | None:
    """A number of processes, threads or jobs; None stands for the default."""
    return None if value is None else whole_number(name, value, 1, AT_ONCE_MAX)


def one_of(name: str, value: str, values: tuple[str, ...]) -> str:
    """A value of an option that has a fixed set of values."""
    if value not in values:
        raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, values))}")
    return value


def text(name: str, value: Any) -> str:
    """An option that is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, a {type(value).__qualname__}: give text, such as {str(value)!r}")
    return value


def names_of(values: Any) -> list[Any] | None:
    """Several names; a single one may be given alone."""
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return list(values)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
