"""Calls as jobs, with the interface of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ._errors import JobFailed, StoreError, WorkerError
from ._functions import describe
from ._items.called import call, path_of
from ._items.shape import Shape
from ._job import Job, is_job
from ._options import options_json
from ._process import stop_import
from ._values import Converter, to_plain

if TYPE_CHECKING:
    from ._app import App
    from ._native import Calls, Engine
    from ._work import LocalWorker

P = ParamSpec("P")
R = TypeVar("R")

# Descriptions of functions in the worker's folder. When there are more and nothing is open, they are removed.
DESCRIPTIONS_MAX = 1_000
# Batches that the store is asked for at once, the eldest first.
ASKED_BATCHES_MAX = 64
# Outcomes of batches whose submit is not yet told of, at most. Others are read from the store.
EARLY_MAX = 1_000


class CallFuture(concurrent.futures.Future[Any]):
    """The future of a call."""

    def __init__(self, engine: Engine, convert: Converter | None) -> None:
        super().__init__()
        self.engine = engine
        self.convert = convert
        # The batch and the position of the job, once it is stored.
        self.place: tuple[int, int] | None = None

    def cancel(self) -> bool:
        """Cancels the call, also one that runs; whether it had not ended."""
        is_cancelled = super().cancel()
        # A call that is not stored yet is cancelled when it is.
        if is_cancelled and self.place is not None:
            self.engine.cancel_jobs([self.place])
        return is_cancelled

    def end_as_cancelled(self) -> None:
        """Notes that the job was cancelled."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def end(self, value: Any) -> None:
        """Sets the result."""
        if self.set_running_or_notify_cancel():
            try:
                self.set_result(value if self.convert is None else self.convert(value))
            except Exception as error:
                self.set_exception(error)

    def fail(self, error: BaseException) -> None:
        """Sets an exception in place of the result."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


class _Batch:
    """The calls of one batch; None in the place of those that have ended."""

    __slots__ = ("futures", "left")

    def __init__(self, futures: list[CallFuture]) -> None:
        self.futures: list[CallFuture | None] = [*futures]
        self.left = len(futures)

    def open(self) -> list[CallFuture]:
        return [future for future in self.futures if future is not None]

    def first_open(self) -> int:
        return next(position for position, future in enumerate(self.futures) if future is not None)

    def take(self, position: int) -> CallFuture | None:
        future = self.futures[position]
        if future is not None:
            self.futures[position] = None
            self.left -= 1
        return future


class _Described:
    """A function with its description, as it was at one moment."""

    __slots__ = ("name", "shape")

    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self.shape = shape


class JobExecutor(concurrent.futures.Executor):
    """Runs calls as durable jobs in warm processes. Arguments and results are JSON, dataclasses or pydantic models, as those
    of jobs are; a call that fails raises `JobFailed`.

    >>> import gristmill, os, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> with app.executor(1) as executor:
    ...     executor.submit(os.path.basename, "a/b").result(timeout=30)
    'b'
    """

    # The function of its jobs.
    kind = "gristmill.executor.call"

    def __init__(self, app: App, processes: int | None = None) -> None:
        self.app = app
        self._processes = processes
        queue = f"executor-{os.getpid()}-{os.urandom(4).hex()}"
        self._job: Job[..., Any] = Job(app, self._function(), self.kind, queue, options_json(), processes)
        self._known: weakref.WeakKeyDictionary[Any, _Described] = weakref.WeakKeyDictionary()
        # The names of the descriptions in the worker's folder.
        self._written: set[str] = set()
        self._lock = threading.Lock()
        # Notified when no call is open.
        self._ended = threading.Condition(self._lock)
        self._open = 0
        self._worker: LocalWorker | None = None
        self._calls: Calls | None = None
        self._engine: Engine | None = None
        self._is_shut_down = False
        # Whether open calls are cancelled.
        self._cancels = False
        # The thread that is told of outcomes. It alone touches what follows.
        self._teller: int | None = None
        self._batches: dict[int, _Batch] = {}
        self._early: dict[int, list[tuple[Any, ...]]] = {}

    def _function(self) -> Callable[[Any], Any]:
        return call

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Submits a call. It is stored before it runs, together with others that come meanwhile.

        >>> import math
        >>> with app.executor(1) as executor:
        ...     executor.submit(math.isqrt, 16).result(timeout=30)
        4
        """
        stop_import("executor.submit(…)")
        self._start()
        described = fn if isinstance(fn, _Described) else self._describe(fn)
        payload = {"function": described.name, "payload": described.shape.payload(args, kwargs)}
        return self._begin(payload, described.shape.result)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[R]:
        """As `Executor.map`. Values that the function refers to are those at this call. Calls travel in groups by themselves, so
        `chunksize` means nothing.

        >>> import math
        >>> with app.executor(1) as executor:
        ...     list(executor.map(math.isqrt, [16, 25]))
        [4, 5]
        """
        stop_import("executor.map(…)")
        self._start()
        described: Any = self._describe(fn)
        return super().map(described, *iterables, timeout=timeout, chunksize=chunksize, **options)

    def _start(self) -> LocalWorker:
        """The worker, which starts with the first call."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the executor was shut down: make another one")
            if self._worker is None:
                from ._work import LocalWorker

                worker = LocalWorker.start(
                    self.app, [self._job], self._processes, None, "stopped", self._job.queue, is_shown=True, told=self._told
                )
                self._engine = self.app.engine()
                self._calls = self._engine.calls(worker.native, self._job.common())
                self._worker = worker
            return self._worker

    def _begin(self, payload: dict[str, Any], convert: Converter | None) -> CallFuture:
        """Submits a call."""
        with self._lock:
            calls, engine = self._calls, self._engine
            if calls is None or engine is None:
                raise RuntimeError("the executor was shut down: make another one")
            self._open += 1
        future = CallFuture(engine, convert)
        try:
            calls.push(future, payload, to_plain)
        except BaseException:
            self._close(1)
            raise
        return future

    def _close(self, calls: int) -> None:
        """Counts calls that have ended."""
        with self._lock:
            self._open -= calls
            if self._open == 0:
                self._ended.notify_all()

    def _describe(self, function: Callable[..., Any]) -> _Described:
        try:
            known = self._known.get(function)
        except TypeError:
            # Of a few built-in types nothing can be remembered.
            known = None
        if known is not None:
            return known
        target = function.function if is_job(function) else function
        description = describe(target, function.name if is_job(function) else getattr(target, "__qualname__", "call"))
        made = _Described(self._write(pickle.dumps(description)), Shape(target))
        if "pickled" not in description:
            # The values that the others refer to may change between two calls.
            try:
                self._known[function] = made
            except TypeError:
                pass
        return made

    def _write(self, description: bytes) -> str:
        """Writes a function's description for the worker's processes; returns its name."""
        name = hashlib.sha256(description).hexdigest()
        worker = self._start()
        with self._lock:
            if name in self._written:
                return name
            if len(self._written) >= DESCRIPTIONS_MAX and self._open == 0:
                for written in self._written:
                    os.remove(path_of(worker.folder, written))
                self._written.clear()
                self._known.clear()
            with open(path_of(worker.folder, name), "wb") as file:
                file.write(description)
            self._written.add(name)
        return name

    # --- outcomes ---

    def _told(self, pieces: list[tuple[Any, ...]]) -> None:
        """Ends the futures of these outcomes."""
        self._teller = threading.get_ident()
        worker = self._worker
        if worker is not None:
            # Before the results of the functions that printed it.
            worker.show_printed()
        for piece in pieces:
            if piece[0] in ("values", "failed"):
                self._take(piece)
            elif piece[0] == "called":
                self._stored(piece[1])
            elif piece[0] == "quiet":
                self._ask_store()
            else:
                # Refused calls, or the end of the worker.
                self._fail(piece[1] if piece[0] == "refused" else self._all_open(), StoreError(piece[-1]))

    def _stored(self, batches: list[tuple[int, list[CallFuture]]]) -> None:
        cancelled: list[tuple[int, int]] = []
        for batch, futures in batches:
            self._batches[batch] = _Batch(futures)
            for position, future in enumerate(futures):
                future.place = (batch, position)
                if self._cancels or future.cancelled():
                    cancelled.append((batch, position))
        early, self._early = self._early, {}
        for pieces in early.values():
            for piece in pieces:
                self._take(piece, is_early=True)
        if cancelled and self._engine is not None:
            self._engine.cancel_jobs(cancelled)
            self._ask_store()

    def _take(self, piece: tuple[Any, ...], is_early: bool = False) -> None:
        batch = self._batches.get(piece[1])
        if batch is None:
            # The submit of this batch is told of next, or the batch has ended.
            if not is_early and len(self._early) < EARLY_MAX:
                self._early.setdefault(piece[1], []).append(piece)
            return
        before = batch.left
        if piece[0] == "values":
            values = iter(json.loads(piece[3]))
            for first, end in piece[2]:
                for position, value in zip(range(first, end), values):
                    future = batch.take(position)
                    if future is not None:
                        future.end(value)
        else:
            for position, state, error in piece[2]:
                future = batch.take(position)
                if future is None:
                    continue
                if state == "cancelled":
                    future.end_as_cancelled()
                else:
                    future.fail(JobFailed(f"{piece[1]}:{position}", state, *(error or ())))
        if batch.left == 0:
            del self._batches[piece[1]]
        self._close(before - batch.left)

    def _ask_store(self) -> None:
        """Reads outcomes that are told by nobody, such as a cancel."""
        engine, worker = self._engine, self._worker
        if engine is None or worker is None:
            return
        has_ended = worker.has_ended()
        try:
            for batch, calls in list(self._batches.items())[:ASKED_BATCHES_MAX]:
                pieces = engine.outcomes(batch)
                for piece in pieces:
                    self._take(piece, is_early=True)
                if not pieces and engine.job_state(batch, calls.first_open()) is None:
                    del self._batches[batch]
                    self._fail(calls.open(), StoreError(f"the jobs of batch {batch} were deleted"))
        except StoreError as error:
            if not has_ended:
                # The store is asked again soon.
                print(f"gristmill: the ends of calls cannot be read now: {error}", file=sys.stderr)
        if has_ended:
            self._fail(self._all_open(), WorkerError("the worker of this executor was stopped before its calls had ended"))

    def _fail(self, futures: list[CallFuture], error: Exception) -> None:
        for future in futures:
            future.fail(error)
        self._close(len(futures))

    def _all_open(self) -> list[CallFuture]:
        withdrawn = [] if self._calls is None else self._calls.withdraw()
        stored = [future for batch in self._batches.values() for future in batch.open()]
        self._batches.clear()
        return [*withdrawn, *stored]

    # --- ending ---

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Waits for those that are open, unless `wait` is False; they end all the same.

        >>> executor = app.executor(1)
        >>> executor.shutdown()
        """
        with self._lock:
            self._is_shut_down = True
            calls, worker, engine = self._calls, self._worker, self._engine
            if calls is None or worker is None or engine is None:
                return
            self._calls = None
            self._cancels |= cancel_futures
        if cancel_futures:
            withdrawn = calls.withdraw()
            for future in withdrawn:
                future.cancel()
                future.set_running_or_notify_cancel()
            self._close(len(withdrawn))
            engine.cancel_queue(self._job.queue)
            calls.look()
        # A callback of a future runs in the thread that ends the other ones.
        if wait and threading.get_ident() != self._teller:
            self._stop(calls, worker)
        else:
            # Not a daemon: the interpreter waits for the thread, and ending it in the middle of native code would abort the process.
            threading.Thread(target=self._stop, args=(calls, worker)).start()

    def _stop(self, calls: Calls, worker: LocalWorker) -> None:
        with self._lock:
            self._ended.wait_for(lambda: self._open == 0)
        calls.end()
        worker.stop()
        self._worker = self._engine = None
