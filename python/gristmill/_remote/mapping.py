"""Map over a server: items are jobs on the function's own queue, which the server's workers run."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._items.portions import portions
from .._items.shape import encoded_items
from .._map import BatchResults, Failed
from .._values import to_plain
from .engine import RemoteEngine, pieces

if TYPE_CHECKING:
    from .._items.shape import Encoder
    from .._job import Job

# Items and batches that are submitted and not yet yielded, at most.
ITEMS_MAX, BATCHES_MAX = 16_000, 100
# Items of one submit; an iterable that is slow submits what there is so often. Seconds.
CHUNK_ITEMS, CHUNK_S = 1_000, 0.05
# How long a request waits for the eldest batch to end. Seconds.
WAIT_S = 1.0
# How soon the server is asked for results that come in any order; each further look is twice as late. Seconds.
LOOK_FIRST_S, LOOK_S_MAX = 0.025, 0.5


def run_remote_map(
    job: Job[..., Any],
    engine: RemoteEngine,
    items: Iterable[Any],
    encode: Encoder | None,
    ordered: bool,
    return_exceptions: bool,
    options: dict[str, Any],
) -> Iterator[Any]:
    """The results of a map."""
    mapping = RemoteMap(job, engine, iter(items if encode is None else encoded_items(items, encode)), options)
    try:
        for value in mapping.results(ordered):
            if type(value) is Failed:
                if not return_exceptions:
                    raise value.error
                value = value.error
            yield value
    finally:
        mapping.close()


class RemoteMap:
    """A running map."""

    def __init__(self, job: Job[..., Any], engine: RemoteEngine, items: Iterator[Any], options: dict[str, Any]) -> None:
        self.job = job
        self.engine = engine
        self.items = items
        self.common = job.common(**options)
        self.is_fed = False
        self.in_flight = 0
        # Batches that are not yielded to their end, in the items' order.
        self.order: deque[Part] = deque()

    def has_room(self) -> bool:
        return not self.is_fed and self.in_flight < ITEMS_MAX and len(self.order) < BATCHES_MAX

    def feed(self) -> None:
        """Submits some items."""
        chunk: list[Any] = []
        until = time.monotonic() + CHUNK_S
        for item in self.items:
            chunk.append(item)
            if len(chunk) >= CHUNK_ITEMS or time.monotonic() >= until:
                break
        else:
            self.is_fed = True
        for portion in portions(chunk, to_plain):
            for batch, count, *position in self.engine.submit_encoded(self.common, portion):
                self.order.append(Part(batch, count, position[0] if position else 0))
                self.in_flight += count

    def look(self, parts: list[Part], wait_s: float) -> bool:
        """Reads the outcomes of some batches; reports whether there are new ones."""
        before = sum(part.results.missing for part in parts)
        lines = self.engine.outcome_lines([part.batch for part in parts], wait_s)
        by_batch = {part.batch: part for part in parts}
        for piece in pieces(lines):
            by_batch[piece[1]].take(piece, self.job)
        return sum(part.results.missing for part in parts) < before

    def results(self, ordered: bool) -> Iterator[Any]:
        pause_s = LOOK_FIRST_S
        while True:
            has_room = self.has_room()
            if has_room:
                self.feed()
            if not self.order:
                if self.is_fed:
                    return
                continue
            if ordered:
                self.look([self.order[0]], 0.0 if self.has_room() else WAIT_S)
            elif self.look(list(self.order), 0.0):
                pause_s = LOOK_FIRST_S
            elif not self.has_room():
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_S_MAX)
            for part in [self.order[0]] if ordered else list(self.order):
                ready = part.next_values(ordered)
                self.in_flight -= len(ready)
                if part.is_done():
                    self.order.remove(part)
                yield from ready

    def close(self) -> None:
        """Cancels the jobs whose results were not yielded."""
        for part in self.order:
            part.cancel(self.engine)
        self.order.clear()


class Part:
    """The items of one batch. A single item may share its batch with jobs of other submits."""

    def __init__(self, batch: int, count: int, first: int) -> None:
        self.batch = batch
        self.first = first
        self.results = BatchResults(batch, count)
        self.yielded: set[int] = set()

    def take(self, piece: tuple[Any, ...], job: Job[..., Any]) -> None:
        count = len(self.results.results)
        if piece[0] == "failed":
            failed = [entry for entry in piece[2] if self.first <= entry[0] < self.first + count]
            for position, state, error in failed:
                self.results.put_failure(position - self.first, f"{self.batch}:{position}", state, error)
            return
        values: Iterator[Any] = iter(piece[3])
        for first, end in piece[2]:
            for position, value in zip(range(first, end), itertools.islice(values, end - first)):
                if self.first <= position < self.first + count:
                    self.results.put(position - self.first, [job.result_of(value)])

    def next_values(self, ordered: bool) -> list[Any]:
        """The known results that were not yielded; in order, up to the first unknown one."""
        ready: list[Any] = []
        for position, value in enumerate(self.results.results):
            if position in self.yielded:
                continue
            if not self.results.is_known(position):
                if ordered:
                    break
                continue
            self.yielded.add(position)
            ready.append(value)
        return ready

    def is_done(self) -> bool:
        return len(self.yielded) == len(self.results.results)

    def cancel(self, engine: RemoteEngine) -> None:
        count = len(self.results.results)
        if count > 1:
            engine.cancel_batch(self.batch)
        else:
            engine.cancel_jobs([(self.batch, self.first)])
