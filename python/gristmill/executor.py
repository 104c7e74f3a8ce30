"""Calls as jobs, with the interface of `concurrent.futures`."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import hmac
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ._errors import Fail
from ._functions import describe
from ._handle import Handle
from ._items.shape import Shape
from ._job import Job, is_job
from ._options import options_json
from ._process import load, stop_import
from ._values import Converter

if TYPE_CHECKING:
    from ._app import App
    from ._work import LocalWorker

P = ParamSpec("P")
R = TypeVar("R")

# Functions that one process of an executor keeps ready.
FUNCTIONS_MAX = 1_000

_functions: dict[str, Callable[[Any], Any]] = {}


def calling(secret: bytes) -> Callable[[dict[str, Any]], Any]:
    """The function of the executor's jobs. It is sent with the secret to the worker's processes, not through the store."""

    def call(payload: dict[str, Any]) -> Any:
        return call_signed(secret, payload)

    return call


def signature(secret: bytes, function: str) -> str:
    """The HMAC-SHA256 of a function's description, in hexadecimal."""
    return hmac.new(secret, function.encode(), hashlib.sha256).hexdigest()


def call_signed(secret: bytes, payload: dict[str, Any]) -> Any:
    """One call, in a worker's process. The description of a function is code: it must be of the executor itself, and not of
    somebody who can submit jobs to the store."""
    key = payload["function"]
    function = _functions.get(key)
    if function is None:
        if not hmac.compare_digest(signature(secret, key), payload["signature"]):
            raise Fail("the executor that runs this job did not submit it")
        if len(_functions) >= FUNCTIONS_MAX:
            _functions.clear()
        function = _functions[key] = load(pickle.loads(base64.b64decode(key)))
    return function(payload["payload"])


class JobExecutor(concurrent.futures.Executor):
    """Runs calls as durable jobs in warm processes. Arguments and results are JSON, dataclasses or pydantic models, as those
    of jobs are; a call that fails raises `JobFailed`.

    >>> import gristmill, os, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> with app.executor(1) as executor:
    ...     executor.submit(os.path.basename, "a/b").result(timeout=30)
    'b'
    """

    def __init__(self, app: App, processes: int | None = None) -> None:
        self.app = app
        self._processes = processes
        queue = f"executor-{os.getpid()}-{os.urandom(4).hex()}"
        self._secret = os.urandom(32)
        self._job: Job[..., Any] = Job(app, calling(self._secret), "gristmill.executor.call", queue, options_json(), processes)
        self._known: weakref.WeakKeyDictionary[Any, tuple[str, Shape]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._worker: LocalWorker | None = None
        self._open: set[concurrent.futures.Future[Any]] = set()
        self._is_shut_down = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Submits a call; it is on disk when this returns.

        >>> import math
        >>> with app.executor(1) as executor:
        ...     executor.submit(math.isqrt, 16).result(timeout=30)
        4
        """
        stop_import("executor.submit(…)")
        description, shape = self._describe(fn)
        call = {
            "function": description,
            "signature": signature(self._secret, description),
            "payload": shape.payload(args, kwargs),
        }
        return self._begin(call, shape.result)

    def _begin(self, call: dict[str, Any], convert: Converter | None) -> concurrent.futures.Future[Any]:
        """Submits a call."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the executor was shut down: make another one")
            if self._worker is None:
                from ._work import LocalWorker

                self._worker = LocalWorker.start(
                    self.app, [self._job], self._processes, None, "stopped", self._job.queue, is_shown=True
                )
            worker = self._worker
            handle: Handle[Any] = self._job.submit(call)
            self._open.add(future)

        def told(*ended: Any) -> None:
            worker.show_printed()
            with self._lock:
                self._open.discard(future)
            if ended[0] == "cancelled":
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = handle.concluded(ended)
                future.set_result(result if convert is None else convert(result))
            except BaseException as error:
                future.set_exception(error)

        def cancel(future: concurrent.futures.Future[Any]) -> None:
            if future.cancelled():
                handle.cancel()

        future.add_done_callback(cancel)
        self.app.engine().watch_job(handle.batch, handle.position, told)
        return future

    def _describe(self, function: Callable[..., Any]) -> tuple[str, Shape]:
        try:
            known = self._known.get(function)
        except TypeError:
            # Of a few built-in types nothing can be remembered.
            known = None
        if known is not None:
            return known
        target = function.function if is_job(function) else function
        description = describe(target, function.name if is_job(function) else getattr(target, "__qualname__", "call"))
        made = base64.b64encode(pickle.dumps(description)).decode(), Shape(target)
        if "pickled" not in description:
            # The values that the others refer to may change between two calls.
            try:
                self._known[function] = made
            except TypeError:
                pass
        return made

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Waits for those that are open, unless `wait` is False; they end all the same.

        >>> executor = app.executor(1)
        >>> executor.shutdown()
        """
        with self._lock:
            self._is_shut_down = True
            worker, self._worker = self._worker, None
            open_futures = list(self._open)
        if cancel_futures:
            self.app.engine().cancel_queue(self._job.queue)
        if worker is None:
            return
        if wait:
            concurrent.futures.wait(open_futures)
            worker.stop()
        else:
            # Not a daemon: the interpreter waits for the thread, and ending it in the middle of native code would abort the process.
            threading.Thread(target=_stop_after, args=(worker, open_futures)).start()


def _stop_after(worker: LocalWorker, futures: list[concurrent.futures.Future[Any]]) -> None:
    concurrent.futures.wait(futures)
    worker.stop()
