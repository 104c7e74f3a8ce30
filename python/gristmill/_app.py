"""Applications: a store, and the functions whose jobs it keeps."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from ._errors import StoreError
from ._handle import Handle
from ._items.portions import encoded
from ._job import MAP_OPTIONS, Job, is_job
from ._operations.operations import CONDITIONS, Operations, as_query, conditions_of
from ._operations.requests import ask
from ._options import OPTIONS, RETRIES_DEFAULT, Span, at_once, check_names, names_of, options_json, text
from ._process import stop_import
from ._spans import milliseconds, seconds
from ._values import to_plain

if TYPE_CHECKING:
    from ._native import Engine
    from ._remote.agents import RemoteWorker
    from ._work import LocalWorker
    from .executor import JobExecutor
    from .testing import Clock

P = ParamSpec("P")
R = TypeVar("R")


class App(Operations):
    """An application: a store, and jobs as functions.

    `store` is the path of a SQLite file, which is made where there is none, a PostgreSQL URL (`postgresql://…`) or a server's
    (`https://…`; its token is read from the environment's `GRISTMILL_TOKEN`). It is opened at the first use. With
    `durable=False`, jobs in a file survive the end of the process, but not a loss of power.

    >>> import gristmill, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> @app.job(retries=3, timeout="30s")
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double.submit(21).state()
    'waiting'
    >>> app.close()
    """

    def __init__(self, store: str | os.PathLike[str] = "gristmill.db", *, durable: bool = True) -> None:
        self.store = _checked_place(os.fsdecode(store))
        self.durable = durable
        self.jobs: dict[str, Job[..., Any]] = {}
        self._engine: Engine | None = None
        self._process_id = 0
        # Whether this process has looked for what killed ones left in the store.
        self.has_tidied = False
        # Whether jobs run when they are submitted, and the clock of the store: for tests.
        self.is_eager = False
        self.clock: Clock | None = None

    def __repr__(self) -> str:
        # A URL may hold a password.
        return f"<gristmill app on {self.store.rpartition('@')[2]}>"

    def __reduce__(self) -> Any:
        # Without its jobs: another process opens the same store.
        return _opened_again, (os.path.abspath(self.store) if self.is_file else self.store, self.durable)

    @property
    def is_file(self) -> bool:
        """Whether the store is a file."""
        return not self.is_server and not self.store.startswith(("postgresql://", "postgres://"))

    @property
    def is_server(self) -> bool:
        """Whether the store is that of a server, which is asked over HTTP."""
        return self.store.startswith(("http://", "https://"))

    def engine(self) -> Engine:
        """The engine of this process, which a fork does not share."""
        if self._engine is None or self._process_id != os.getpid():
            self._engine, self.has_tidied = self._open(), False
            self._process_id = os.getpid()
        return self._engine

    def _open(self) -> Engine:
        if self.is_server:
            from ._remote.engine import RemoteEngine

            # Under the same names, it has what a server offers, and says so of the rest.
            return cast("Engine", RemoteEngine(self.store))
        from . import _forks
        from ._native import Engine

        if self.is_file:
            _forks.check(self.store)
            _forks.opened.add(self)
        return Engine.open(self.store, self.durable) if self.clock is None else self.clock.open(self.store)

    def run_eagerly(self, engine: Any) -> None:
        """Lets this engine run jobs when they are submitted, until the application is closed."""
        self._engine, self._process_id, self.is_eager = engine, os.getpid(), True

    def is_open(self) -> bool:
        """Whether the store was opened and not closed, here or before a fork."""
        return self._engine is not None

    def close(self) -> None:
        """Stops the application's workers and closes the store. The next use opens it again.

        >>> import gristmill, tempfile
        >>> with gristmill.App(tempfile.mkdtemp() + "/jobs.db") as app:
        ...     app.counts()["waiting"]
        0
        """
        if self.is_server:
            from ._remote.agents import running as agents

            for agent in agents(self):
                agent.stop()
        engine, self._engine, self.is_eager = self._engine, None, False
        if engine is not None and self._process_id == os.getpid():
            from ._work import running

            for worker in running(self):
                worker.stop()
            engine.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # --- defining jobs ---

    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = ...,
        queue: str = ...,
        retries: int = ...,
        retry_delay: Span = ...,
        backoff: str = ...,
        timeout: Span | None = ...,
        complete_within: Span | None = ...,
        priority: int = ...,
        expires: Span | None = ...,
        group: str | None = ...,
        cached: Span | None = ...,
        processes: int | None = ...,
        concurrency: int = ...,
        threads: int = ...,
    ) -> Callable[[Callable[P, R]], Job[P, R]]: ...

    def job(  # type: ignore[misc]
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        processes: int | None = None,
        concurrency: int = 100,
        threads: int = 1,
        **options: Any,
    ) -> Any:
        """Makes a function a job. Its payload is JSON: with one parameter the argument itself, with several an object.
        Dataclasses, typed dicts, pydantic models, enums, dates, decimals and UUIDs are converted by the annotations, both ways.

        `name`: the kind of its jobs; the function's name by default. `retries`: attempts after the first one; 2 by default.
        `retry_delay` (1 s) and `backoff` ("jitter", "constant", "linear", "exponential"): when. `timeout`: of one attempt.
        `complete_within`: of all attempts, from the start of the first: a job that has not completed by then is not tried again.
        `priority`: higher runs first. `expires`: not to be started later than so long after the submit. `group`: the tenant.
        `cached`: the value of an equal payload within this time stands for a new run. `processes`: at most so many processes
        in a worker; its concurrency by default. `concurrency`: asynchronous jobs at once in a process. `threads`: synchronous
        jobs at once in a process. Spans are seconds, timedeltas or text such as "30s".

        >>> import gristmill
        >>> app = gristmill.App("jobs.db")
        >>> @app.job(retries=5, backoff="exponential", timeout="1m", queue="mail")
        ... async def send(address: str, text: str = "") -> str:
        ...     return f"sent to {address}"
        >>> send
        <gristmill job 'send'>
        """
        options_known = (*OPTIONS, "name", "queue", "processes", "concurrency", "threads")
        check_names("app.job(…)", options, options_known)

        def define(function: Callable[..., Any]) -> Job[..., Any]:
            kind = _kind_of(function) if name is None else name
            options.setdefault("retries", RETRIES_DEFAULT)
            job: Job[..., Any] = Job(self, function, kind, queue, options_json(**options), processes, concurrency, threads)
            return self._add(job)

        return define if function is None else define(function)

    def batch(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        size: int = 100,
        wait: Span = 0.01,
        key: Callable[[Any], Hashable] | None = None,
        name: str | None = None,
        queue: str = "default",
        processes: int = 1,
        **options: Any,
    ) -> Any:
        """Makes a function of a list, or a class with `__call__`, the handler of many jobs at once. It returns a list with one
        result, or one exception, for each payload.

        It is called with up to `size` payloads, or with those that there are after `wait`. With `key`, only payloads of equal
        keys are in one batch. A batch that raises is halved until the culprit is alone; one that ran out of memory leaves
        batches half as large for the rest of the process. The `setup` of a class is called once in each process. Batch
        handlers have one process (`processes`) by default. Other options are those of `job`.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.batch(size=64, wait="5ms")
        ... def lengths(texts: list[str]) -> list[int]:
        ...     return [len(text) for text in texts]
        >>> jobs = lengths.submit_many(["a", "bb"])
        >>> app.drain(), jobs.results()
        (2, [1, 2])
        >>> app.close()
        """
        from ._batch import BatchJob

        check_names("app.batch(…)", options, (*OPTIONS, "size", "wait", "key", "name", "queue", "processes"))

        def define(function: Callable[..., Any]) -> Job[..., Any]:
            kind = _kind_of(function) if name is None else name
            options.setdefault("retries", RETRIES_DEFAULT)
            return self._add(
                BatchJob(self, function, kind, queue, options_json(**options), size, seconds(wait), key, processes)
            )

        return define if function is None else define(function)

    def flow(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        version: str | None = None,
        upgrades: Iterable[str] = (),
        cleanup_within: Span | None = None,
        queue: str = "default",
        processes: int | None = None,
        **options: Any,
    ) -> Any:
        """Makes a function a durable flow: a job that awaits others, events and times without a process, and survives the end of
        any. Its first parameter is the `Flow`, whose `step`, `map`, `event` and `sleep` it awaits; the others are its payload.

        It is an `async def`, or a `def` that asks each step for its `result()`. What it awaited is kept: it runs again from its
        beginning each time that something has ended, and the steps that it has done give their kept results. So it has to go the
        same way again: the world (time, chance, files, services) belongs into steps, `flow.local`, `flow.now` and the like.

        `version`: instances go on with the version that began them. `upgrades`: older versions whose instances go on with this
        code; `FlowJob.check` tells before which of them it does not fit. `cleanup_within`: after a cancel, a new instance with the
        steps of the cancelled one gets an `asyncio.CancelledError` where that one waited, and may clean up for at most this long.
        Other options are those of `job`.

        >>> import gristmill
        >>> from gristmill.testing import run_flow
        >>> app = gristmill.App("jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> @app.flow(version="1")
        ... async def quadruple(flow, number: int) -> int:
        ...     doubled = await flow.step(double, number)
        ...     return await flow.step(double, doubled)
        >>> run_flow(quadruple, 4)
        16
        """
        from ._flow.job import FlowJob
        from ._flow.memo import cleanup_ms

        check_names("app.flow(…)", options, (*OPTIONS, "name", "version", "upgrades", "cleanup_within", "queue", "processes"))
        cleanup_for_ms = cleanup_ms(cleanup_within, milliseconds)
        before_this = [upgrades] if isinstance(upgrades, str) else list(upgrades)
        if before_this and (version is None or version in before_this):
            raise ValueError(f"a flow of version={version!r} upgrades={before_this!r}: give it a version of its own")

        def define(function: Callable[..., Any]) -> Job[..., Any]:
            kind = _kind_of(function) if name is None else name
            options.setdefault("retries", RETRIES_DEFAULT)
            checked = options_json(**options)
            job = self._add(FlowJob(self, function, kind, version, queue, checked, processes, cleanup_for_ms))
            for before in before_this:
                self._add(FlowJob(self, function, kind, before, queue, checked, processes, cleanup_for_ms))
            return job

        return define if function is None else define(function)

    def send_event(self, flow: Handle[Any] | str, name: str, value: Any = None) -> bool:
        """Sends an event to a flow, which awaits it by `Flow.event`; whether the flow had not ended. One that it does not await yet
        is kept for it.

        >>> import gristmill
        >>> from gristmill.testing import eager
        >>> app = gristmill.App("jobs.db")
        >>> @app.flow
        ... async def approved(flow) -> str:
        ...     return await flow.event("approve")
        >>> with eager(app):
        ...     handle = approved.submit()
        ...     app.send_event(handle.id, "approve", "yes"), handle.result()
        (True, 'yes')
        """
        stop_import("app.send_event(…)")
        batch, _, position = str(flow).partition(":")
        if not (batch.isdecimal() and position.isdecimal()):
            raise StoreError(f"`{flow}` is not a job id: write the batch and the position, as in 42:7")
        sent: bool = self.engine().send_event(int(batch), int(position), text("an event's name", name), encoded(value, to_plain))
        return sent

    def _add(self, job: Job[..., Any]) -> Job[..., Any]:
        before = self.jobs.get(job.name)
        if before is not None and _where(before.function) != _where(job.function):
            raise ValueError(f"this application has a job {job.name!r} already, {before.function!r}: give one of them another name=")
        self.jobs[job.name] = job
        return job

    # --- running ---

    def map(self, function: Callable[..., R], items: Iterable[Any], *more: Iterable[Any], **options: Any) -> Iterator[R]:
        """As `Job.map`, for a function that is no job of the application; also a lambda, a `functools.partial`, a method of an
        object, or a function of a notebook.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> factor = 3
        >>> list(app.map(lambda number: factor * number, [1, 2]))
        [3, 6]
        >>> list(app.map(lambda left, right: left - right, [5, 7], [1, 2]))
        [4, 5]
        >>> app.close()
        """
        if is_job(function):
            return function.map(items, *more, **options)
        mapped = {name: options.pop(name) for name in MAP_OPTIONS if name in options}
        check_names("app.map(…)", options, (*MAP_OPTIONS, *OPTIONS))
        job: Job[..., Any] = Job(self, function, _kind_of(function), "default", options_json(**options))
        return job.map(items, *more, **mapped)

    def worker(
        self,
        concurrency: int | None = None,
        *,
        queues: Iterable[str] | None = None,
        jobs: Iterable[Job[..., Any] | str] | None = None,
        until: str = "stopped",
        name: str | None = None,
    ) -> LocalWorker | RemoteWorker:
        """Starts a worker in the background, which stops at the end of a `with` block. Options are those of `work`.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> with app.worker(concurrency=1):
        ...     double.submit(21).result(timeout=30)
        42
        >>> app.close()
        """
        stop_import("app.worker(…)")
        concurrency = at_once("concurrency", concurrency)
        queues = names_of(queues)
        kinds = self._jobs_named(jobs)
        if self.is_server:
            from ._remote.agents import RemoteWorker

            return RemoteWorker.start(self, kinds, concurrency, queues, until, name)
        from ._work import LocalWorker

        return LocalWorker.start(self, kinds, concurrency, queues, until, name)

    def work(
        self,
        concurrency: int | None = None,
        *,
        queues: Iterable[str] | None = None,
        jobs: Iterable[Job[..., Any] | str] | None = None,
        until: str = "stopped",
        name: str | None = None,
    ) -> int:
        """Runs jobs in processes of this machine until Ctrl-C or SIGTERM, and returns how many completed. For a server, these are
        `gristmill agent`'s, whose token (`AGENT_TOKEN`) has the role `agent`.

        `concurrency`: processes at once, for each job; the number of processors by default. `queues`: those of the
        application's jobs by default. `jobs`: the jobs that it runs, or their names; all by default. `until`: "idle" ends it
        when nothing can be claimed now, "empty" when nothing can be claimed now or later.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> jobs = double.submit_many(range(5))
        >>> app.work(concurrency=1, until="empty")
        5
        >>> app.close()
        """
        stop_import("app.work(…)")
        worker = self.worker(concurrency, queues=queues, jobs=jobs, until=until, name=name)
        return worker.run_until_signal()

    def _jobs_named(self, jobs: Iterable[Job[..., Any] | str] | None) -> list[Job[..., Any]]:
        """These jobs of the application; all by default."""
        if jobs is None:
            return list(self.jobs.values())
        names = [kind.name if is_job(kind) else str(kind) for kind in names_of(jobs) or ()]
        unknown = [name for name in names if name not in self.jobs]
        if unknown:
            raise ValueError(f"the application has no job {unknown[0]!r}; it has {', '.join(sorted(self.jobs)) or 'none'}")
        return [self.jobs[name] for name in names]

    def drain(self, concurrency: int = 1) -> int:
        """Runs the jobs that can run now, those that they bring about, and those that clean up after cancelled flows; for tests.
        Returns how many completed. Delayed jobs and retries stay.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> now, later = double.submit(1), double.submit(2, delay="1h")
        >>> app.drain(), now.state(), later.state()
        (1, 'completed', 'scheduled')
        >>> app.close()
        """
        if self.is_server:
            raise ValueError("drain() is for stores of tests: run a server's jobs with app.work(until='empty')")
        completed = 0
        before: list[str] = []
        while True:
            self.engine().begin_cleanups()
            waiting = [kind for kind in self.engine().waiting_kinds() if kind in self.jobs]
            # Jobs that wait although a worker has just looked at them cannot be claimed, such as those of a paused queue.
            if not waiting or waiting == before:
                return completed
            with self.worker(concurrency, jobs=waiting, until="idle") as worker:
                ended = worker.wait() or 0
            before = [] if ended else waiting
            completed += ended

    def executor(self, processes: int | None = None) -> JobExecutor:
        """A `concurrent.futures.Executor` whose calls are jobs of this application.

        >>> import gristmill, math, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> with app.executor(processes=1) as executor:
        ...     list(executor.map(math.isqrt, [16, 25]))
        [4, 5]
        >>> app.close()
        """
        from .executor import JobExecutor

        if self.is_server:
            raise ValueError("an executor needs a store of its own: its functions travel past the store to its own workers")
        return JobExecutor(self, at_once("processes", processes))

    # --- asking ---

    def counts(self, queue: str | None = None, **conditions: Any) -> dict[str, int]:
        """The numbers of jobs by state, of one queue or of all. Conditions are those of `find`.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> jobs = double.submit_many(range(3), tags={"customer": "7"})
        >>> app.counts()["waiting"], app.counts(tags={"customer": "8"})["waiting"]
        (3, 0)
        >>> app.close()
        """
        if not conditions:
            return self.engine().counts(queue)
        check_names("app.counts(…)", conditions, CONDITIONS)
        query = as_query(conditions_of(queue=queue, **conditions))
        counts: dict[str, int] = ask(self.engine(), "count_jobs", query)["states"]
        return counts

    def forget(self, name: str) -> bool:
        """Deletes the map of this name with its results; whether there was one. Then the name can begin anew. A map that runs
        cannot be deleted.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> list(app.map(abs, [-1, -2], name="positive"))
        [1, 2]
        >>> app.forget("positive"), app.forget("positive")
        (True, False)
        >>> app.close()
        """
        from ._map import MapLock

        if self.is_server:
            raise ValueError("a server has no maps by name: the items of a map are jobs of the function's queue")
        lock = MapLock(self, name)
        try:
            return self.engine().delete_run(name)
        finally:
            lock.release()


def _opened_again(store: str, durable: bool) -> App:
    return App(store, durable=durable)


def _kind_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__name__)
    return name.rpartition("<locals>.")[2].strip("<>")


def _where(function: Any) -> tuple[Any, Any]:
    """Where a function stands. It is defined anew when its module is loaded again."""
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


def _checked_place(store: str) -> str:
    """The place of a store, if it can be one."""
    if not store or store == ":memory:":
        raise ValueError(
            f"{store!r} is no place of a store, which workers share: give the path of a file. For tests,"
            " gristmill.testing.temporary_store and the fixture gristmill_app keep a file in memory"
        )
    scheme, separator, _ = store.partition("://")
    if separator and "/" not in scheme and scheme not in ("postgresql", "postgres", "https", "http"):
        raise ValueError(
            f"{scheme}://… is no place of a store: give the path of a file, a PostgreSQL URL (postgresql://…) or a server's"
            " (https://…)"
        )
    return store
