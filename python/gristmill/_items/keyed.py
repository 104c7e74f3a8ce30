"""Items with deduplication keys, in portions of one transaction."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._options import text
from .portions import BYTES_MAX, JOBS_MAX, encoded
from .shape import Encoder

Id = tuple[int, int]


def keyed(items: Iterable[Any], key: Callable[[Any], str], encode: Encoder | None) -> Iterator[tuple[Any, str]]:
    """The payload and the key of each item. An error names its item by its number."""
    for number, item in enumerate(items):
        try:
            yield item if encode is None else encode(item), text("its key", key(item))
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {number}: {error}") from None


def keyed_portions(
    pairs: Iterable[tuple[Any, str]], to_plain: Callable[[Any], Any]
) -> Iterator[tuple[list[str], list[str]]]:
    """Payloads as JSON with their keys, in portions."""
    payloads: list[str] = []
    keys: list[str] = []
    size = 0
    for payload, key in pairs:
        payloads.append(encoded(payload, to_plain))
        keys.append(key)
        size += len(payloads[-1]) + len(key)
        if len(payloads) >= JOBS_MAX or size >= BYTES_MAX:
            yield payloads, keys
            payloads, keys, size = [], [], 0
    if payloads:
        yield payloads, keys


def parts_of(ids: list[Id]) -> list[tuple[int, ...]]:
    """The batches of a portion's jobs with their numbers of jobs; of a batch that has other jobs too, each job by itself."""
    runs = [(batch, [position for _, position in run]) for batch, run in itertools.groupby(ids, lambda id: id[0])]
    times = collections.Counter(batch for batch, _ in runs)
    parts: list[tuple[int, ...]] = []
    for batch, positions in runs:
        if times[batch] == 1 and len(positions) > 1 and positions == list(range(len(positions))):
            parts.append((batch, len(positions)))
        else:
            parts.extend((batch, 1, position) for position in positions)
    return parts
