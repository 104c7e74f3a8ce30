"""Calls as jobs, with the interface of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import logging
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
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

# Descriptions of functions in the worker's folder. Beyond this number, those that no open call uses are removed.
DESCRIPTIONS_MAX = 1_000
# Batches that the store is asked for at once. The next time, others have their turn.
ASKED_BATCHES_MAX = 64
# Outcomes of batches whose submit is not yet told of, at most. Others are read from the store.
EARLY_MAX = 1_000


# States in which a job can end without its worker, which then tells nothing.
UNTOLD_STATES = ("cancelled", "expired")

# Where `concurrent.futures` reports what callbacks raise.
_log = logging.getLogger("concurrent.futures")


class CallFuture(concurrent.futures.Future[Any]):
    """The future of a call."""

    def __init__(self, engine: Engine, calls: Calls, convert: Converter | None, function: str | None) -> None:
        super().__init__()
        self.engine = engine
        self.calls = calls
        self.convert = convert
        # The name of its function's description.
        self.function = function
        # Set when the call is sure to be told of.
        self.is_queued = False
        self.is_settled = False
        # The batch and the position of the job, once it is stored.
        self.place: tuple[int, int] | None = None

    def cancel(self) -> bool:
        """Cancels the call, also one that runs; whether it had not ended."""
        is_cancelled = super().cancel()
        # A call that is not stored yet is cancelled when it is.
        if is_cancelled and self.place is not None:
            self.engine.cancel_jobs([self.place])
            self.calls.look()
        return is_cancelled

    def end_as_cancelled(self) -> None:
        """Notes that the job was cancelled."""
        self._settle(lambda: super(CallFuture, self).cancel())

    def end(self, value: Any) -> None:
        """Sets the result."""
        if self.convert is not None:
            try:
                value = self.convert(value)
            except BaseException as error:
                self.fail(error)
                return
        self._settle(lambda: self.set_result(value))

    def fail(self, error: BaseException) -> None:
        """Sets an exception in place of the result."""
        self._settle(lambda: self.set_exception(error))

    def _settle(self, settle: Callable[[], object]) -> None:
        """Settles it, unless it is. No callback keeps the other futures from theirs, not even with `sys.exit()`."""
        if self.is_settled:
            return
        self.is_settled = True
        try:
            settle()
        except concurrent.futures.InvalidStateError:
            # It was cancelled.
            pass
        except BaseException:
            _log.exception("a callback of %r raised an exception", self)
        if self.cancelled():
            self.set_running_or_notify_cancel()


class _Batch:
    """The calls of one batch; None in the place of those that have ended."""

    __slots__ = ("futures", "left")

    def __init__(self, futures: list[CallFuture]) -> None:
        self.futures: list[CallFuture | None] = [None if future.is_settled else future for future in futures]
        self.left = len(self.open())

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

    __slots__ = ("description", "name", "shape")

    def __init__(self, description: bytes, shape: Shape) -> None:
        self.description = description
        self.name = hashlib.sha256(description).hexdigest()
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
        # The descriptions in the worker's folder, by name: how many open calls use each.
        self._uses: dict[str, int] = {}
        self._lock = threading.Lock()
        # Notified when no call is open.
        self._ended = threading.Condition(self._lock)
        self._open: set[CallFuture] = set()
        self._worker: LocalWorker | None = None
        self._calls: Calls | None = None
        self._engine: Engine | None = None
        self._is_shut_down = False
        # Whether a thread waits for the end of the last call, to stop the worker.
        self._is_stopping = False
        # Whether open calls are cancelled.
        self._cancels = False
        # The thread that is being told of outcomes. It alone touches what follows.
        self._teller: int | None = None
        # Jobs whose futures were cancelled before they were stored.
        self._to_cancel: list[tuple[int, int]] = []
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
        return self._begin(payload, described.shape.result, described)

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
                try:
                    engine = self.app.engine()
                    self._calls = engine.calls(worker.native, self._job.common())
                except BaseException:
                    worker.stop()
                    raise
                worker.before_end = self._before_exit
                self._engine, self._worker = engine, worker
            return self._worker

    def _begin(self, payload: dict[str, Any], convert: Converter | None, function: _Described | None = None) -> CallFuture:
        """Submits a call."""
        calls, engine = self._calls, self._engine
        if calls is None or engine is None:
            raise RuntimeError("the executor was shut down: make another one")
        future = CallFuture(engine, calls, convert, None if function is None else function.name)
        try:
            with self._lock:
                if self._is_shut_down:
                    raise RuntimeError("the executor was shut down: make another one")
                if function is not None:
                    self._use(function)
                self._open.add(future)
            calls.push(future, payload, to_plain)
        except BaseException:
            # Ctrl-C may come when it is queued. Then it ends as the others do.
            if not future.is_queued:
                self._close([future])
            raise
        return future

    def _close(self, futures: Iterable[CallFuture]) -> None:
        """Counts calls off that have ended, each one once."""
        with self._lock:
            for future in futures:
                if future in self._open:
                    self._open.remove(future)
                    if future.function is not None:
                        self._leave(future.function)
            if not self._open:
                self._ended.notify_all()

    def _use(self, function: _Described) -> None:
        """Writes a function's description for the worker's processes, and keeps it until the call has ended."""
        if function.name not in self._uses:
            if self._worker is None:
                raise RuntimeError("the executor was shut down: make another one")
            with open(path_of(self._worker.folder, function.name), "wb") as file:
                file.write(function.description)
        self._uses[function.name] = self._uses.get(function.name, 0) + 1

    def _leave(self, name: str) -> None:
        self._uses[name] -= 1
        if self._uses[name] == 0 and len(self._uses) > DESCRIPTIONS_MAX and self._worker is not None:
            del self._uses[name]
            try:
                os.remove(path_of(self._worker.folder, name))
            except OSError:
                # Gone already, or it goes with the folder.
                pass

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
        made = _Described(pickle.dumps(description), Shape(target))
        if "pickled" not in description:
            # The values that the others refer to may change between two calls.
            try:
                self._known[function] = made
            except TypeError:
                pass
        return made

    # --- outcomes ---

    def _told(self, pieces: list[tuple[Any, ...]]) -> None:
        """Ends the futures of these outcomes."""
        self._teller = threading.get_ident()
        try:
            worker = self._worker
            if worker is not None:
                # Before the results of the functions that printed it.
                self._guarded(worker.show_printed)
            for piece in pieces:
                self._guarded(self._tell, piece)
        finally:
            self._teller = None

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        """Takes a step whose failure keeps nobody from the outcomes that follow: they come only once."""
        try:
            step(*arguments)
        except BaseException:
            _log.exception("an outcome of %r was not handled", self)

    def _tell(self, piece: tuple[Any, ...]) -> None:
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
        for batch, futures in batches:
            for position, future in enumerate(futures):
                future.place = (batch, position)
                if future.cancelled():
                    self._to_cancel.append((batch, position))
            calls = _Batch(futures)
            if calls.left:
                self._batches[batch] = calls
        early, self._early = self._early, {}
        for pieces in early.values():
            for piece in pieces:
                self._take(piece, is_early=True)
        if self._to_cancel or self._cancels:
            self._ask_store()

    def _take(self, piece: tuple[Any, ...], is_early: bool = False) -> None:
        batch = self._batches.get(piece[1])
        if batch is None:
            # The submit of this batch is told of next, or the batch has ended.
            if not is_early and len(self._early) < EARLY_MAX:
                self._early.setdefault(piece[1], []).append(piece)
            return
        ended: list[CallFuture] = []
        try:
            if piece[0] == "values":
                values = iter(json.loads(piece[3]))
                for first, end in piece[2]:
                    for position, value in zip(range(first, end), values):
                        future = batch.take(position)
                        if future is not None:
                            ended.append(future)
                            future.end(value)
            else:
                for position, state, error in piece[2]:
                    future = batch.take(position)
                    if future is None:
                        continue
                    ended.append(future)
                    if state == "cancelled":
                        future.end_as_cancelled()
                    else:
                        future.fail(JobFailed(f"{piece[1]}:{position}", state, *(error or ())))
        finally:
            if batch.left == 0:
                del self._batches[piece[1]]
            self._close(ended)

    def _ask_store(self) -> None:
        """Reads outcomes that are told by nobody, such as a cancel, and cancels what is to be cancelled."""
        engine, worker, calls = self._engine, self._worker, self._calls
        if engine is None or worker is None or calls is None:
            return
        has_ended = worker.has_ended()
        try:
            if self._cancels:
                self._withdraw(calls)
                engine.cancel_queue(self._job.queue)
            if self._to_cancel:
                engine.cancel_jobs(self._to_cancel)
                self._to_cancel.clear()
            if self._ask_batches(engine):
                # A cancel of many ends many.
                calls.look()
        except StoreError as error:
            if not has_ended:
                # The store is asked again soon.
                print(f"gristmill: the ends of calls cannot be read now: {error}", file=sys.stderr)
        if has_ended:
            self._fail(self._all_open(), WorkerError("the worker of this executor was stopped before its calls had ended"))

    def _ask_batches(self, engine: Engine) -> bool:
        """Reads the outcomes of some batches; whether calls had ended of which nobody tells."""
        was_untold = False
        for batch in list(islice(self._batches, ASKED_BATCHES_MAX)):
            pieces = engine.outcomes(batch)
            for piece in pieces:
                was_untold |= piece[0] == "failed" and any(state in UNTOLD_STATES for _, state, _ in piece[2])
                self._take(piece, is_early=True)
            calls = self._batches.pop(batch, None)
            if calls is None:
                continue
            if not pieces and engine.job_state(batch, calls.first_open()) is None:
                was_untold = True
                self._fail(calls.open(), StoreError(f"the jobs of batch {batch} were deleted"))
            else:
                # Its next turn comes after the others.
                self._batches[batch] = calls
        return was_untold

    def _withdraw(self, calls: Calls) -> None:
        """Cancels the calls of which no submit has begun."""
        withdrawn: list[CallFuture] = calls.withdraw()
        for future in withdrawn:
            future.end_as_cancelled()
        self._close(withdrawn)

    def _fail(self, futures: list[CallFuture], error: Exception) -> None:
        for future in futures:
            future.fail(error)
        self._close(futures)

    def _all_open(self) -> list[CallFuture]:
        if self._calls is not None:
            self._calls.withdraw()
        self._batches.clear()
        with self._lock:
            return list(self._open)

    # --- ending ---

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Waits for those that are open, unless `wait` is False; they end all the same.

        >>> executor = app.executor(1)
        >>> executor.shutdown()
        """
        if self._worker is not None and self._worker.process_id != os.getpid():
            # A fork. The calls and the worker are its parent's, and a thread that is not here may hold the lock.
            return
        with self._lock:
            self._is_shut_down = True
            self._cancels |= cancel_futures
            calls, worker = self._calls, self._worker
            if calls is None or worker is None:
                return
            # A callback of a future runs in the thread that ends the other ones.
            waits = wait and threading.get_ident() != self._teller
            begins = not waits and not self._is_stopping
            self._is_stopping |= begins
        if cancel_futures:
            calls.look()
        if waits:
            self._stop(calls, worker)
        elif begins:
            # Not a daemon: the interpreter waits for the thread, and ending it in the middle of native code would abort the process.
            threading.Thread(target=self._stop, args=(calls, worker)).start()

    def _stop(self, calls: Calls, worker: LocalWorker) -> None:
        """Stops the worker after the last call. Several threads may do so at once."""
        with self._lock:
            self._ended.wait_for(lambda: not self._open)
        calls.end()
        worker.stop()
        self._calls = self._worker = self._engine = None

    def _before_exit(self) -> None:
        """Stores the calls that have come, where the program ends without a shutdown."""
        from ._work import EXIT_PATIENCE_S

        unstored = 0 if self._calls is None else self._calls.flush(EXIT_PATIENCE_S)
        if unstored:
            print(f"gristmill: the program ended before {unstored} calls of an executor were stored: they are lost", file=sys.stderr)
