"""Map: items are fed to a worker of this process, and its outcomes are yielded in their order."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._errors import JobFailed, StoreError, WorkerError
from ._items.shape import encoded_items
from ._native import NameLock
from ._values import Converter, to_plain
from ._work import LocalWorker

if TYPE_CHECKING:
    from ._app import App
    from ._items.shape import Encoder
    from ._job import Job
    from ._native import Engine, Feeder

# Items that are fed and not yet yielded, at most.
ITEMS_MAX = 16_000
# Bytes of payloads and values of such items, beyond which no more are fed.
BYTES_MAX = 64 << 20
# Items that are fed at once.
CHUNK_ITEMS = 1_000
# An iterable that is slow feeds what there is so often. Seconds.
CHUNK_S = 0.005
# How long no news are normal; then the store is asked for outcomes that did not come from this process. Seconds.
QUIET_S, QUIET_S_MAX = 0.5, 5.0
# Batches that the store is asked for at once, the eldest first. A slow iterable makes many small ones.
ASKED_BATCHES_MAX = 64
# How long running jobs may go on when a map is given up. Seconds.
CLOSE_S = 15.0
# Batches of an earlier process that are listed at once.
PAGE_BATCHES = 64

_MISSING: Any = type("_Missing", (), {"__slots__": ()})()


class BatchResults:
    """The known results of one batch."""

    __slots__ = ("id", "results", "missing", "next", "has_failed", "bytes")

    def __init__(self, batch: int, count: int, payload_bytes: int = 0) -> None:
        self.id = batch
        self.results: list[Any] = [_MISSING] * count
        self.missing = count
        # The first position that has not been yielded, in order.
        self.next = 0
        self.has_failed = False
        # Of payloads and values.
        self.bytes = payload_bytes

    def put(self, first: int, values: list[Any]) -> None:
        end = first + len(values)
        results = self.results
        if len(values) == len(results) and self.missing == end:
            self.results = values
            self.missing = 0
            return
        for position, value in zip(range(first, end), values):
            if results[position] is _MISSING:
                results[position] = value
                self.missing -= 1

    def put_failure(self, position: int, job: str, state: str, error: Any) -> None:
        """Puts a failure of a job in its place."""
        self.has_failed = True
        self.put(position, [Failed(JobFailed(job, state, *(error or ())))])

    def is_known(self, position: int) -> bool:
        """Reports whether the result at the position is known."""
        return self.results[position] is not _MISSING

    def take(self, piece: tuple[Any, ...], convert: Converter | None) -> int:
        """Adds outcomes; returns the number of bytes of their values."""
        if piece[0] == "failed":
            for position, state, error in piece[2]:
                self.put_failure(position, f"{self.id}:{position}", state, error)
            return 0
        # The native engine's are JSON, and a server's are read.
        values = json.loads(piece[3]) if isinstance(piece[3], str) else piece[3]
        if convert is not None:
            values = [convert(value) for value in values]
        at = 0
        for first, end in piece[2]:
            count = end - first
            self.put(first, values if len(values) == count else values[at : at + count])
            at += count
        return len(piece[3])

    def first_missing(self) -> int:
        return next(position for position, value in enumerate(self.results) if value is _MISSING)

    def raised(self) -> list[Any]:
        """The results; raises the first failure among them."""
        if self.has_failed:
            for value in self.results:
                if type(value) is Failed:
                    raise value.error
        return self.results


def run_map(
    job: Job[..., Any],
    items: Iterable[Any],
    encode: Encoder | None,
    ordered: bool,
    return_exceptions: bool,
    name: str | None,
    processes: int | None,
    options: dict[str, Any],
) -> Iterator[Any]:
    """The results of a map."""
    is_kept = name is not None
    name = f"map-{os.urandom(8).hex()}" if name is None else name
    lock = MapLock(job.app, name)
    try:
        mapping = _Map(job, iter(items), encode, name, is_kept, processes, options)
        try:
            yield from mapping.results(ordered, return_exceptions)
        finally:
            mapping.close()
    finally:
        lock.release()


def remove_interrupted(app: App) -> None:
    """Removes unnamed maps whose processes were killed. Running maps hold their locks."""
    engine = app.engine()
    try:
        for name, description in engine.runs():
            if not _is_of_unnamed(description):
                continue
            try:
                lock = MapLock(app, name)
            except RuntimeError:
                continue
            try:
                engine.delete_run(name)
            finally:
                lock.release()
    except StoreError as error:
        # They are in nobody's way: the next process tries again.
        print(f"gristmill: the rows of interrupted maps cannot be removed now: {error}", file=sys.stderr)


def _is_of_unnamed(description: str) -> bool:
    try:
        return bool(json.loads(description).get("is_unnamed", False))
    except (ValueError, AttributeError):
        # Of another program.
        return False


class _Map:
    """A running map."""

    def __init__(
        self,
        job: Job[..., Any],
        items: Iterator[Any],
        encode: Encoder | None,
        name: str,
        is_kept: bool,
        processes: int | None,
        options: dict[str, Any],
    ) -> None:
        options = dict(options)
        options.pop("expires_ms", None)
        self.engine: Engine = job.app.engine()
        self.job = job
        self.items = items
        self.encode = encode
        self.name = name
        # Whether its rows stay when it ends, for another call of this name.
        self.is_kept = is_kept
        self.queue = f"run:{name}"
        self.bytes_in_flight = 0
        self.fed_bytes = self.fed_items = 0
        # Items that an earlier process has submitted.
        self.resumed_items = 0
        # Fed items that have not been yielded.
        self.in_flight = 0
        # The same without those whose submit is known.
        self.unannounced = 0
        self.batches: dict[int, BatchResults] = {}
        # Batches that are not yielded to their end, in the items' order.
        self.order: deque[BatchResults] = deque()
        # Outcomes of batches whose submit is not yet known.
        self.early: dict[int, list[tuple[Any, ...]]] = {}
        self.is_fed = False
        self.is_whole = False
        self.resumed: Iterator[tuple[int, int]] = iter(())
        self.is_resumed = True
        if is_kept:
            self.resume(name)
        self.worker = LocalWorker.start(
            job.app,
            [job],
            processes or job.processes,
            [self.queue],
            "stopped",
            self.queue,
            is_followed=True,
            is_shown=True,
        )
        if not is_kept:
            self.engine.begin_run(name, json.dumps({"map": self.job.name, "is_unnamed": True}))
        self.feeder: Feeder = self.engine.feeder(self.worker.native, job.name, self.queue, json.dumps(options), name)

    # --- resuming ---

    def resume(self, name: str) -> None:
        """Finds or begins the map with this name, and skips the submitted items."""
        description = json.dumps({"map": self.job.name})
        run, known, submitted = self.engine.begin_run(name, description)
        if known != description:
            raise ValueError(
                f"the name {name!r} belongs to another run ({known}): choose another name, or delete it with app.forget({name!r})"
            )
        if submitted == 0:
            return
        self.resumed_items = submitted
        digest, left = (0, 0), submitted
        while left:
            chunk = list(itertools.islice(self.items, min(left, CHUNK_ITEMS)))
            if not chunk:
                break
            digest = _digest(digest, self.encoded(chunk, submitted - left))
            left -= len(chunk)
        if left or digest != self.engine.run_digest(name):
            raise ValueError(
                f"the first {submitted} items of the map {name!r} are not those of the time before: give the same items,"
                f" choose another name, or begin anew after app.forget({name!r})"
            )
        self.engine.retry_run(run)
        self.resumed = self.batches_of(run)
        self.is_resumed = False

    def batches_of(self, run: int) -> Iterator[tuple[int, int]]:
        """The batches that an earlier process submitted."""
        after = None
        # Listed before anything is fed, page by page; a batch that is fed here is known and left out.
        while True:
            page = self.engine.run_batches(run, after, PAGE_BATCHES)
            if not page:
                return
            yield from page
            after = page[-1][0]

    def take_up(self) -> None:
        """Takes the next batch of an earlier process; its outcomes come from the store."""
        for batch, count in self.resumed:
            self.in_flight += count
            self.announce(batch, count)
            self.apply(self.engine.outcomes(batch))
            return
        self.is_resumed = True
        self.early.clear()

    # --- feeding ---

    def has_room(self) -> bool:
        return not (self.is_fed and self.is_resumed) and self.in_flight < ITEMS_MAX and self.bytes_in_flight < BYTES_MAX

    def encoded(self, chunk: list[Any], first: int) -> list[Any]:
        """The payloads of items; the first one has this number."""
        return chunk if self.encode is None else [*encoded_items(chunk, self.encode, first)]

    def feed(self) -> None:
        """Feeds some items."""
        if not self.is_resumed:
            self.take_up()
            return
        chunk: list[Any] = []
        until = time.monotonic() + CHUNK_S
        # One item, then twice as many between two looks at the clock: a look takes longer than an item.
        items = 1
        while items and time.monotonic() < until:
            wanted = len(chunk) + items
            chunk.extend(itertools.islice(self.items, items))
            if len(chunk) < wanted:
                self.is_fed = True
                break
            items = min(2 * items, CHUNK_ITEMS - wanted)
        if chunk:
            first = self.resumed_items + self.fed_items
            chunk = self.encoded(chunk, first)
            self.fed_bytes += self.feeder.feed(chunk, to_plain, first)
            self.fed_items += len(chunk)
            self.in_flight += len(chunk)
            self.unannounced += len(chunk)
        if self.is_fed:
            self.feeder.finish()

    # --- outcomes ---

    def announce(self, batch: int, count: int, payload_bytes: int = 0) -> None:
        known = BatchResults(batch, count, payload_bytes)
        self.bytes_in_flight += payload_bytes
        self.batches[batch] = known
        self.order.append(known)
        early = self.early.pop(batch, None)
        if early:
            self.apply(early)

    def apply(self, pieces: list[tuple[Any, ...]]) -> None:
        convert = self.job.shape.result
        for piece in pieces:
            if piece[0] in ("values", "failed"):
                batch = self.batches.get(piece[1])
                if batch is None:
                    self.keep_early(piece)
                    continue
                size = batch.take(piece, convert)
                batch.bytes += size
                self.bytes_in_flight += size
            elif piece[0] == "submitted":
                self.unannounced -= piece[2]
                # Of its payloads' bytes, only the mean is known.
                self.announce(piece[1], piece[2], piece[2] * self.fed_bytes // self.fed_items)
            else:
                raise StoreError(f"the map cannot go on: {piece[1]}")

    def keep_early(self, piece: tuple[Any, ...]) -> None:
        # Batches of an earlier process are read from the store when their turn comes.
        if self.unannounced and self.is_resumed:
            self.early.setdefault(piece[1], []).append(piece)

    def ask_store(self) -> None:
        """Reads outcomes that another process committed, such as a cancel."""
        incomplete = [batch.id for batch in self.order if batch.missing]
        for batch in incomplete[:ASKED_BATCHES_MAX]:
            self.apply(self.engine.outcomes(batch))

    # --- yielding ---

    def results(self, ordered: bool, return_exceptions: bool) -> Iterator[Any]:
        ready = self.next_in_order if ordered else self.next_as_they_come
        quiet_s, quiet_since = QUIET_S, time.monotonic()
        while True:
            has_room = self.has_room()
            if has_room:
                self.feed()
            elif not self.in_flight:
                break
            pieces = self.worker.native.take(0.0 if has_room else QUIET_S)
            if pieces:
                # Before the results of the functions that printed it.
                self.worker.show_printed()
                self.apply(pieces)
                quiet_s, quiet_since = QUIET_S, time.monotonic()
            elif time.monotonic() - quiet_since >= quiet_s:
                self.ask_store()
                quiet_s, quiet_since = min(2 * quiet_s, QUIET_S_MAX), time.monotonic()
            for values, has_failed in ready():
                self.in_flight -= len(values)
                if not has_failed:
                    yield from values
                    continue
                for value in values:
                    if type(value) is Failed:
                        if not return_exceptions:
                            raise value.error
                        value = value.error
                    yield value
        self.is_whole = True

    def next_in_order(self) -> Iterator[tuple[list[Any], bool]]:
        order = self.order
        while order:
            batch = order[0]
            end = batch.next
            results = batch.results
            if batch.missing == 0:
                end = len(results)
            else:
                while results[end] is not _MISSING:
                    end += 1
            if end > batch.next:
                values = results[batch.next : end] if (batch.next, end) != (0, len(results)) else results
                batch.next = end
                yield values, batch.has_failed
            if end < len(results):
                return
            order.popleft()
            self.drop(batch)

    def next_as_they_come(self) -> Iterator[tuple[list[Any], bool]]:
        for batch in list(self.order):
            # A marker replaces each yielded value, so that no value is yielded twice.
            values = [value for value in batch.results if value is not _MISSING and value is not _YIELDED]
            if not values:
                continue
            batch.results = [_MISSING if value is _MISSING else _YIELDED for value in batch.results]
            if batch.missing == 0:
                self.order.remove(batch)
                self.drop(batch)
            yield values, batch.has_failed

    def drop(self, batch: BatchResults) -> None:
        del self.batches[batch.id]
        self.bytes_in_flight -= batch.bytes

    # --- ending ---

    def close(self) -> None:
        """Ends the worker. Removes an unnamed map, complete or not; a named one stays and can be continued."""
        self.feeder.end(not self.is_whole)
        if self.is_kept:
            if self.is_whole:
                self.engine.finish_run(self.name)
        elif not self.is_whole:
            self.engine.cancel_queue(self.queue)
        try:
            self.worker.stop(CLOSE_S)
        except WorkerError:
            # The error that ended the worker has been raised from its news, if anybody waited for them.
            if self.is_whole:
                raise
        finally:
            if not self.is_kept:
                self.remove()

    def remove(self) -> None:
        try:
            self.engine.delete_run(self.name)
        except StoreError as error:
            # The results are there; another process removes the rows.
            print(f"gristmill: the rows of a map that ended stay for now: {error}", file=sys.stderr)


class Failed:
    """A failed item among the results."""

    __slots__ = ("error",)

    def __init__(self, error: JobFailed) -> None:
        self.error = error


_YIELDED: Any = type("_Yielded", (), {"__slots__": ()})()


def _digest(before: tuple[int, int], items: list[Any]) -> tuple[int, int]:
    from ._native import digest

    return digest(before, items, to_plain)


class MapLock:
    """Lets only one process at a time run the map with a name. The command line uses the same lock for its runs."""

    def __init__(self, app: App, name: str) -> None:
        self._file: Any = None
        self._held: NameLock | None = None
        refusal = f"the map {name!r} runs in another process: wait for it, or choose another name"
        if not app.is_file:
            self._held = NameLock.try_take(app.store, f"run {name}")
            if self._held is None:
                raise RuntimeError(refusal)
            return
        import fcntl

        store = app.store
        path = f"{os.path.realpath(store)}-run-{hashlib.sha256(name.encode()).hexdigest()[:8]}.lock"
        self._path = path
        while True:
            file = open(path, "w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise RuntimeError(refusal) from None
            try:
                if os.stat(path).st_ino == os.fstat(file.fileno()).st_ino:
                    self._file = file
                    return
            except FileNotFoundError:
                pass
            # Its holder has just ended and removed the file.
            file.close()

    def release(self) -> None:
        if self._held is not None:
            self._held.release()
        if self._file is not None:
            try:
                os.remove(self._path)
            except FileNotFoundError:
                pass
            self._file.close()


