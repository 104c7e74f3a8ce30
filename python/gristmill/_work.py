"""Workers of this process, over warm processes that import the application."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ._errors import WorkerError
from ._functions import describe_job, write_script
from ._items.printed import show
from ._native import Printed

if TYPE_CHECKING:
    from ._app import App
    from ._job import Job
    from ._native import Worker

# How long a worker may take to finish its jobs when the interpreter ends. Seconds.
EXIT_PATIENCE_S = 10.0

_running: weakref.WeakSet[LocalWorker] = weakref.WeakSet()


class LocalWorker:
    """A worker of this process. It stops at the end of a `with` block.

    >>> with app.worker(1) as worker:
    ...     double.submit(21).result(timeout=30)
    42
    """

    def __init__(self, app: App, native: Worker, folder: str, printed: Printed | None) -> None:
        self.app = app
        self.native = native
        self.folder = folder
        self._printed = printed
        self.process_id = os.getpid()
        # Called before it ends with its process.
        self.before_end: Callable[[], object] | None = None
        _running.add(self)

    @staticmethod
    def start(
        app: App,
        jobs: list[Job[..., Any]],
        concurrency: int | None,
        queues: Iterable[str] | None,
        until: str,
        name: str | None,
        is_followed: bool = False,
        is_shown: bool = False,
        told: Callable[[list[tuple[Any, ...]]], object] | None = None,
    ) -> LocalWorker:
        """Starts it once the first process of each job has imported its function. What the functions print `is_shown` here, or is
        the log of their jobs alone. The outcomes are taken where they are followed, or `told` is called with them."""
        if not jobs:
            raise ValueError("the application has no jobs to run: define one with @app.job before the worker starts")
        processes = concurrency or os.cpu_count() or 1
        queues = sorted({job.queue for job in jobs} if queues is None else set(queues))
        if not app.has_tidied:
            from ._map import remove_interrupted

            app.engine()
            app.has_tidied = True
            remove_interrupted(app)
        folder = tempfile.mkdtemp(prefix="gristmill-")
        try:
            kinds = [_kind(job, folder, processes) for job in jobs]
            runners = sum(kind["processes"] for kind in kinds)
            name = name or f"{os.path.basename(sys.argv[0] or 'python')}-{os.getpid()}"
            printed = Printed(show) if is_shown else None
            native = app.engine().start_worker(kinds, queues, runners, name, until, is_followed or told is not None, printed, told)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return LocalWorker(app, native, folder, printed)

    def show_printed(self) -> None:
        """Shows what its functions have printed so far, where that is shown.

        >>> app.worker(1, until="idle").show_printed()
        """
        if self._printed is not None:
            show(self._printed)

    def ask_to_stop(self) -> None:
        """Lets it claim no more jobs. Those that have begun go on.

        >>> worker = app.worker(1)
        >>> worker.ask_to_stop()
        >>> worker.wait(timeout=30)
        0
        """
        self.native.stop()

    def stop(self, timeout: float | None = None) -> bool:
        """Claims no more jobs, and waits until those that have begun have ended; whether that is so after `timeout` seconds.

        >>> app.worker(1).stop(timeout=30)
        True
        """
        self.ask_to_stop()
        return self.wait(timeout) is not None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for the worker's end: how many jobs completed; None after `timeout` seconds.

        >>> handle = double.submit(1)
        >>> app.worker(1, until="idle").wait(timeout=30)
        1
        """
        ended = self.native.wait(timeout)
        self.show_printed()
        if ended is None:
            return None
        self.give_up()
        return ended[0]

    def has_ended(self) -> bool:
        """Whether it runs no more.

        >>> app.worker(1).has_ended()
        False
        """
        try:
            return self.native.wait(0.0) is not None
        except WorkerError:
            return True

    def __enter__(self) -> LocalWorker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def run_until_signal(self) -> int:
        """Waits for the worker's end, and stops it at SIGINT (Ctrl-C) or SIGTERM; a second one does not wait.

        >>> app.worker(1, until="idle").run_until_signal()
        0
        """
        return run_until_signal(self)

    def give_up(self) -> None:
        """Waits for nothing at exit, because the processes of the worker end with this one."""
        _running.discard(self)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Makes the worker end with its process."""
        if self.process_id == os.getpid():
            self.stop(EXIT_PATIENCE_S)
            self.give_up()


class Running(Protocol):
    """A worker, in this process or of a server."""

    def wait(self, timeout: float | None = None) -> int | None: ...
    def ask_to_stop(self) -> None: ...
    def give_up(self) -> None: ...


def run_until_signal(worker: Running) -> int:
    """Waits for a worker's end, and stops it at SIGINT (Ctrl-C) or SIGTERM; a second one does not wait."""
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        try:
            completed = worker.wait()
        except KeyboardInterrupt:
            try:
                worker.ask_to_stop()
                print("gristmill: finishing running jobs; press Ctrl-C again to exit immediately", file=sys.stderr)
                completed = worker.wait()
            except KeyboardInterrupt:
                worker.give_up()
                raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return completed or 0


def running(app: App | None = None) -> list[LocalWorker]:
    """The running workers of this process, of one application or of all."""
    ours = [worker for worker in _running if worker.process_id == os.getpid()]
    return [worker for worker in ours if app is None or worker.app is app]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _kind(job: Job[..., Any], folder: str, processes: int) -> dict[str, Any]:
    return {
        "kind": job.name,
        "script": write_script(folder, describe_job(job)),
        "python": sys.executable,
        "processes": job.processes or processes,
        "concurrency": job.concurrency if job.is_asynchronous() else 1,
        "threads": job.threads,
    }


@atexit.register
def _end_all() -> None:
    ours = running()
    for worker in ours:
        if worker.before_end is not None:
            _reported(worker.before_end)
    for worker in ours:
        _reported(worker.native.stop)
    for worker in ours:
        _reported(worker.end)


def _reported(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:
        print(f"gristmill: a worker did not end well: {error}", file=sys.stderr)
