"""Jobs: functions of an application, with their options."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeGuard, TypeVar, cast, overload

from ._errors import JobFailed
from ._handle import Handle, Submitted
from ._items.portions import encoded
from ._items.shape import Encoder, Shape, encoded_items
from ._items.tables import count, rows
from ._options import OPTIONS, Span, at_once, check_names, given, names_of, options_json, tag_pairs, unique_json
from ._process import stop_import
from ._spans import milliseconds
from ._values import to_plain

if TYPE_CHECKING:
    from ._app import App

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# Options of a map that those of its jobs are not.
MAP_OPTIONS = ("starmap", "ordered", "return_exceptions", "name", "processes", "progress")


class Job(Generic[P, R]):
    """A function of an application. Calling it runs it here; `submit`, `submit_many` and `map` run it in workers.

    >>> double(21), double.submit(21).state()
    (42, 'waiting')
    """

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        name: str,
        queue: str,
        options: dict[str, Any],
        processes: int | None = None,
        concurrency: int = 100,
        threads: int = 1,
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.queue = queue
        self.options = options
        self.processes = at_once("processes", processes)
        self.concurrency = at_once("concurrency", concurrency) or 1
        self.threads = at_once("threads", threads) or 1
        self.shape = self.shape_of(function)
        # Called when the children of a job have ended.
        self.finalizer: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<gristmill job {self.name!r}>"

    def is_asynchronous(self) -> bool:
        """Whether many of its jobs run at once in one thread."""
        return inspect.iscoroutinefunction(self.function)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "shape"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.shape = self.shape_of(self.function)

    @staticmethod
    def shape_of(function: Callable[..., Any]) -> Shape:
        """The parameters of its function."""
        return Shape(function)

    def entry(self) -> Callable[[Any], Any]:
        """The function that a worker's process calls with a payload."""
        return self.shape.calling(self.function)

    def finalize(self, function: F, /) -> F:
        """Decorates the function that is called when the children that a job spawned have ended, with the job's payload (a dict
        for several parameters), the memo and the outcomes. What it returns is the job's result.

        An outcome is a dict of `job` (its id), `state`, and `value` or `error`.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def square(number: int) -> int:
        ...     return number * number
        >>> @app.job
        ... def total(numbers: list[int]) -> int:
        ...     return gristmill.spawn(numbers, kind=square)
        >>> @total.finalize
        ... def add_up(numbers, memo, outcomes):
        ...     return sum(outcome["value"] for outcome in outcomes)
        >>> handle = total.submit([1, 2, 3])
        >>> app.drain(), handle.result()
        (4, 14)
        >>> app.close()
        """
        self.finalizer = function
        return function

    def finalizing(self) -> Callable[[Any, Any, Any], Any] | None:
        """The function that a worker's process calls when the children of a job have ended."""
        return None if self.finalizer is None else finalizing(self.finalizer, self.shape.arguments_of)

    def result_of(self, value: Any) -> Any:
        """Converts a value by the function's annotation."""
        return value if self.shape.result is None else self.shape.result(value)

    def common(
        self,
        delay: Span | None = None,
        tags: Mapping[str, str] | None = None,
        after: Any = None,
        queue: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The data that all jobs of a submit share, for the engine."""
        check_names(f"a submit of {self.name}", options, (*OPTIONS, "delay", "tags", "after", "queue"))
        own = dict(self.options)
        if options:
            own.update(options_json(**{**given(self.options), **options}))
        expires_ms = own.pop("expires_ms", None)
        names: list[str] = []
        prerequisites: list[Any] = [after] if isinstance(after, (Handle, Submitted)) else names_of(after) or []
        for prerequisite in prerequisites:
            names.extend(prerequisite.prerequisites() if isinstance(prerequisite, Submitted) else [str(prerequisite)])
        return {
            "kind": self.name,
            "queue": queue or self.queue,
            "options": json.dumps(own),
            "delay_ms": None if delay is None else milliseconds(delay),
            "expires_ms": expires_ms,
            "tags": tag_pairs(tags),
            "after": names,
        }

    def named_arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        """Takes the function's own arguments out of the keyword arguments of a submit."""
        is_open = self.shape.named_rest is not None
        own = [name for name in options if (is_open or name in self.shape.names) and name not in OPTIONS]
        return {name: options.pop(name) for name in own}

    def submit(
        self,
        *arguments: Any,
        key: str | None = None,
        on_duplicate: str = "skip",
        unique_for: Span | None = None,
        delay: Span | None = None,
        after: Any = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        connection: Any = None,
        **options: Any,
    ) -> Handle[R]:
        """Submits one job; it is on disk when this returns.

        `delay`: not before so long. `after`: handles of jobs that have to complete first. `tags`: names with values, to find
        the job by. `key`: while a job with this key has not ended, another submit gets that job (`on_duplicate`: "skip",
        "replace", "rerun" or "reject"), and for `unique_for` after its submit. `connection`: submits in the open transaction of
        a connection to the store's PostgreSQL database (psycopg, SQLAlchemy, Django) or file (sqlite3, SQLAlchemy, Django),
        which commits or rolls back the job with its own rows. Other options are those of `App.job`, for this job alone, such
        as `priority` and `timeout`. Arguments of the function can be named, unless an option has the name.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def add(left: int, right: int = 1) -> int:
        ...     return left + right
        >>> add.submit(20, right=22, priority=10, tags={"customer": "7"})
        <gristmill job 1:0>
        >>> app.drain()
        1
        >>> app.close()
        """
        stop_import(f"{self.name}.submit(…)")
        named = self.named_arguments(options)
        common = self.common(delay=delay, tags=tags, after=after, queue=queue, **options)
        payload = self.shape.payload(arguments, named)
        unique = unique_json(key, on_duplicate, unique_for)
        if connection is not None and not self.app.is_eager:
            from ._transactions import postgres

            batch, position = postgres.submit_one(self.app, connection, common, payload, key, unique)
        elif key is None or unique is None:
            batch, position = self.app.engine().submit_one(common, payload, to_plain)
        else:
            [(batch, position)] = self.app.engine().submit_keyed(common, [encoded(payload, to_plain)], [key], unique)
        return Handle(self.app, batch, position, self)

    async def submit_async(
        self,
        *arguments: Any,
        connection: Any = None,
        key: str | None = None,
        on_duplicate: str = "skip",
        unique_for: Span | None = None,
        **options: Any,
    ) -> Handle[R]:
        """As `submit`, without blocking the event loop. `connection` is an asynchronous one (asyncpg, psycopg, SQLAlchemy).

        >>> import asyncio, gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> async def main():
        ...     handle = await double.submit_async(21)
        ...     return await handle
        >>> with app.worker(1):
        ...     asyncio.run(main())
        42
        >>> app.close()
        """
        if connection is None or self.app.is_eager:
            import asyncio

            options.update(key=key, on_duplicate=on_duplicate, unique_for=unique_for)
            return await asyncio.to_thread(functools.partial(self.submit, *arguments, **options))
        from ._transactions import postgres

        unique, named = unique_json(key, on_duplicate, unique_for), self.named_arguments(options)
        common, payload = self.common(**options), self.shape.payload(arguments, named)
        batch, position = await postgres.submit_async(self.app, connection, common, payload, key, unique)
        return Handle(self.app, batch, position, self)

    def submit_many(
        self,
        items: Iterable[Any],
        *,
        starmap: bool = False,
        key: Callable[[Any], str] | None = None,
        on_duplicate: str = "skip",
        unique_for: Span | None = None,
        delay: Span | None = None,
        after: Any = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        connection: Any = None,
        **options: Any,
    ) -> Submitted[R]:
        """Submits a job for each item of any iterable, packed; all are on disk when this returns. An item is one argument; with
        `starmap=True`, a tuple or dict of arguments. A table of pandas, polars or pyarrow has its rows as items: arguments by
        name where the columns are parameters, dicts elsewhere. Options are those of `submit`.

        `key`: a function that gives the deduplication key of an item, so that a repeated call submits nothing twice. The handle of
        an item whose key an open job has is a handle of that job.

        Without `connection`, the items are stored in portions of 4 MiB, one after the other. Where one of them fails, the
        exception, `SubmitFailed` for one of the store, says how many of the first items are stored; its `submitted` has their
        handles.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def add(left: int, right: int = 1) -> int:
        ...     return left + right
        >>> jobs = add.submit_many([1, 2])
        >>> more = add.submit_many([(1, 2), {"left": 3}], starmap=True)
        >>> app.drain(), jobs.results(), more.results()
        (4, [2, 3], [3, 4])
        >>> [handle.id for handle in add.submit_many([5, 6], key=str)], add.submit_many([6, 7], key=str)[0].id
        (['3:0', '3:1'], '3:1')
        >>> app.close()
        """
        stop_import(f"{self.name}.submit_many(…)")
        common = self.common(delay=delay, tags=tags, after=after, queue=queue, **options)
        encode = self.shape.encoder(items, starmap)
        items = rows(items)
        unique = unique_json(key, on_duplicate, unique_for)
        stored: list[tuple[int, ...]] = []
        if key is not None and unique is not None:
            if not callable(key):  # pyright: ignore[reportUnnecessaryComparison]
                raise TypeError(f"key={key!r}: give a function of the item, such as lambda item: item['id']")
            from ._items.keyed import keyed

            with self._telling(stored):
                self._submit_keyed(common, keyed(items, key, encode), unique, connection, stored)
            return Submitted(self.app, stored, self)
        payloads = items if encode is None else encoded_items(items, encode)
        if connection is not None and not self.app.is_eager:
            from ._transactions import postgres

            batches = postgres.submit_many(self.app, connection, common, payloads)
            return Submitted(self.app, batches, self)
        with self._telling(stored):
            self.app.engine().submit_many(common, payloads, to_plain, stored)
        return Submitted(self.app, stored, self)

    @contextlib.contextmanager
    def _telling(self, stored: list[tuple[int, ...]]) -> Generator[None, None, None]:
        """An exception within says how many of the first items are stored."""
        try:
            yield
        except BaseException as error:
            from ._errors import interrupted

            told = interrupted(error, Submitted(self.app, stored, self))
            if told is error:
                raise
            raise told from error

    def _submit_keyed(
        self,
        common: dict[str, Any],
        pairs: Iterable[tuple[Any, str]],
        unique: str,
        connection: Any,
        stored: list[tuple[int, ...]],
    ) -> None:
        """Submits payloads with their keys, in portions, or in the transaction of a connection."""
        if connection is not None and not self.app.is_eager:
            from ._transactions import postgres

            for payload, key in pairs:
                batch, position = postgres.submit_one(self.app, connection, common, payload, key, unique)
                stored.append((batch, 1, position))
            return
        from ._items.keyed import keyed_portions, parts_of

        for payloads, keys in keyed_portions(pairs, to_plain):
            stored.extend(parts_of(self.app.engine().submit_keyed(common, payloads, keys, unique)))

    @overload
    def map(
        self,
        items: Iterable[Any],
        *more: Iterable[Any],
        starmap: bool = ...,
        ordered: bool = ...,
        return_exceptions: bool = ...,
        name: str | None = ...,
        processes: int | None = ...,
        progress: Any = ...,
    ) -> Iterator[R]: ...

    @overload
    def map(self, items: Iterable[Any], *more: Iterable[Any], **options: Any) -> Iterator[R]: ...

    def map(
        self,
        items: Iterable[Any],
        *more: Iterable[Any],
        starmap: bool = False,
        ordered: bool = True,
        return_exceptions: bool = False,
        name: str | None = None,
        processes: int | None = None,
        progress: Any = False,
        **options: Any,
    ) -> Iterator[R]:
        """Runs the function over the items of any iterable in processes of this machine, and yields the results as they come.

        An item is one argument. Of several iterables, each gives one argument, up to the end of the shortest; with
        `starmap=True`, an item is a tuple or dict of arguments. A table of pandas, polars or pyarrow has its rows as items:
        arguments by name where the columns are parameters, dicts elsewhere.

        `ordered`: in the items' order. `return_exceptions`: yields a `JobFailed` in the place of a failed item rather than
        raise it. `name`: makes the map resumable: called again with the same name and items, it does not run again what has
        completed. `processes`: how many; a process for each processor by default. `progress`: True shows a bar (of tqdm, where it
        is installed), or a bar of your own with `update(1)`. The number of items in flight is bounded.

        On a server, the items are jobs of the function's queue, which the server's workers run.

        >>> import gristmill, os.path, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> base_name = app.job(os.path.basename)
        >>> list(base_name.map(["a/b", "c"]))
        ['b', 'c']
        >>> join = app.job(os.path.join)
        >>> list(join.map(["a", "b"], ["c", "d"])), list(join.map([("a", "b", "c")], starmap=True))
        (['a/c', 'b/d'], ['a/b/c'])
        >>> app.close()
        """
        stop_import(f"{self.name}.map(…)")
        check_names(f"a map of {self.name}", options, (*OPTIONS, *MAP_OPTIONS))
        processes = at_once("processes", processes)
        if more and starmap:
            raise TypeError("starmap=True is for one iterable, whose items are tuples or dicts of arguments")
        total = min((known for known in map(count, (items, *more)) if known is not None), default=None) if progress is True else None
        encode = self.shape.encoder(items, starmap or bool(more))
        items = zip(items, *more) if more else rows(items)
        if self.app.is_server:
            values = self._map_remotely(items, encode, ordered, return_exceptions, name, processes, options)
        elif self.app.is_eager:
            values = self._map_eagerly(items, encode, return_exceptions, options)
        else:
            from ._map import run_map

            if options:
                options = options_json(**{**given(self.options), **options})
            values = run_map(self, items, encode, ordered, return_exceptions, name, processes, options or dict(self.options))
        if progress is not None and progress is not False:
            from ._items.progress import shown

            values = shown(values, progress, self.name, total)
        return values

    def _map_eagerly(
        self, items: Iterable[Any], encode: Encoder | None, return_exceptions: bool, options: dict[str, Any]
    ) -> Iterator[R]:
        common = self.common(**options)
        for payload in items if encode is None else encoded_items(items, encode):
            batch, position = self.app.engine().submit_one(common, payload, to_plain)
            try:
                handle: Handle[R] = Handle(self.app, batch, position, self)
                yield handle.result()
            except JobFailed as failed:
                if not return_exceptions:
                    raise
                yield cast(R, failed)

    def _map_remotely(
        self,
        items: Iterable[Any],
        encode: Encoder | None,
        ordered: bool,
        return_exceptions: bool,
        name: str | None,
        processes: int | None,
        options: dict[str, Any],
    ) -> Iterator[R]:
        if name is not None:
            raise ValueError("name= needs a store of its own: the HTTP API has no resumable maps")
        if processes is not None:
            raise ValueError("processes= is for maps on this machine: on a server, its workers run the items")
        if self.app.jobs.get(self.name) is not self:
            raise ValueError(
                f"{self.name} is no job of {self.app!r}, so no worker of the server knows it: define it with @app.job in a module"
            )
        from ._remote.mapping import run_remote_map

        return run_remote_map(self, cast(Any, self.app.engine()), items, encode, ordered, return_exceptions, options)


def finalizing(
    finalizer: Callable[..., Any], arguments_of: Callable[[Any], Any] | None
) -> Callable[[Any, Any, Any], Any]:
    """A finalizer of payloads in their stored form."""

    def finalize(payload: Any, memo: Any, outcomes: Any) -> Any:
        return finalizer(payload if arguments_of is None else arguments_of(payload), memo, outcomes)

    return finalize


def is_job(value: object) -> TypeGuard[Job[..., Any]]:
    """Reports whether a value is a job."""
    return isinstance(value, Job)
