"""Jobs: functions of an application, with their options."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeGuard, TypeVar, cast, overload

from ._errors import JobFailed
from ._handle import Handle, Submitted
from ._items.tables import count, rows
from ._process import stop_import
from ._spans import milliseconds
from ._values import Converter, converter, hints_of, to_plain

if TYPE_CHECKING:
    from ._app import App

P = ParamSpec("P")
R = TypeVar("R")

Span = float | str | timedelta


class Shape:
    """How payloads become arguments. One parameter takes the payload itself, several are the members of an object, and none
    leaves `null`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(function)
        except ValueError:
            # Some built-in functions have none: they take the payload.
            signature = inspect.Signature([inspect.Parameter("payload", inspect.Parameter.POSITIONAL_ONLY)])
        self.signature = signature
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds[1:]:
            raise TypeError(f"{function!r}: the parameters of a job have names; *args and several positional ones have none")
        self.names = list(signature.parameters)
        is_open = inspect.Parameter.VAR_KEYWORD in kinds
        self.is_single = not is_open and len(self.names) == 1
        hints = hints_of(function)
        self.converters: dict[str, Converter] = {}
        for name in self.names:
            convert = converter(hints.get(name))
            if convert is not None:
                self.converters[name] = convert
        self.result: Converter | None = converter(hints.get("return"))

    def payload(self, arguments: tuple[Any, ...], named: Mapping[str, Any] | None = None) -> Any:
        """The payload of a call."""
        if self.is_single and len(arguments) == 1 and not named:
            return arguments[0]
        bound = self.signature.bind(*arguments, **(named or {}))
        if self.is_single:
            bound.apply_defaults()
            return bound.arguments[self.names[0]]
        return dict(bound.arguments) if self.names else None

    def payload_of_item(self, item: Any) -> Any:
        """The payload of an item of a map: an argument, or for several parameters a tuple or dict of them."""
        if self.is_single:
            return item
        if isinstance(item, Mapping):
            return self.payload((), cast("Mapping[str, Any]", item))
        if isinstance(item, tuple):
            return self.payload(item)  # pyright: ignore[reportUnknownArgumentType]
        if not self.names:
            return None
        raise TypeError(
            f"an item of type {type(item).__qualname__} for a function of several parameters: give tuples or dicts of arguments"
        )

    def calling(self, function: Callable[..., Any]) -> Callable[[Any], Any]:
        """The function of one payload."""
        converters = self.converters
        if self.is_single:
            convert = converters.get(self.names[0])
            if convert is None:
                return function
            return _composed(function, lambda payload: (convert(payload),))
        if not self.names:
            return _composed(function, lambda payload: ())
        return _composed(
            function,
            None,
            lambda payload: {
                name: converters[name](value) if name in converters else value for name, value in payload.items()
            },
        )


def _composed(
    function: Callable[..., Any],
    arguments: Callable[[Any], tuple[Any, ...]] | None,
    named: Callable[[Any], dict[str, Any]] | None = None,
) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(function):

        async def call_async(payload: Any) -> Any:
            if named is not None:
                return await function(**named(payload))
            return await function(*(arguments(payload) if arguments else ()))

        return call_async

    def call(payload: Any) -> Any:
        if named is not None:
            return function(**named(payload))
        return function(*(arguments(payload) if arguments else ()))

    return call


# As everywhere in Gristmill, a job has three attempts; an item of a map or an executor has one.
RETRIES_DEFAULT = 2


def options_json(
    retries: int = 0,
    retry_delay: Span = 1.0,
    backoff: str = "jitter",
    timeout: Span | None = None,
    priority: int = 0,
    expires: Span | None = None,
    group: str | None = None,
    cached: Span | None = None,
) -> dict[str, Any]:
    """The options of a batch, as the engine reads them."""
    if retries < 0:
        raise ValueError(f"retries={retries}: it is the number of attempts after the first one, from 0")
    delay_ms = milliseconds(retry_delay)
    options: dict[str, Any] = {
        "priority": priority,
        "retry": {
            "attempts_max": retries + 1,
            "backoff": backoff,
            "delay_ms": delay_ms,
            "delay_ms_max": max(delay_ms, 300_000),
        },
    }
    if timeout is not None:
        options["timeout_ms"] = max(1, milliseconds(timeout))
    if cached is not None:
        options["cached_ms"] = milliseconds(cached)
    if group is not None:
        options["group"] = group
    if expires is not None:
        options["expires_ms"] = milliseconds(expires)
    return options


class Job(Generic[P, R]):
    """A function of an application. Calling it runs it here; `submit`, `submit_many` and `map` run it in workers."""

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
        self.processes = processes
        self.concurrency = concurrency
        self.threads = threads
        self.shape = Shape(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<gristmill job {self.name!r}>"

    def is_asynchronous(self) -> bool:
        """Whether many of its jobs run at once in one thread."""
        return inspect.iscoroutinefunction(self.function)

    def batch_options(self) -> dict[str, Any] | None:
        """How its jobs gather, where the function takes a list."""
        return None

    def entry(self) -> Callable[[Any], Any]:
        """What a worker's process calls with a payload."""
        return self.shape.calling(self.function)

    def result_of(self, value: Any) -> Any:
        """A value as the function's annotation has it."""
        return value if self.shape.result is None else self.shape.result(value)

    def common(
        self,
        delay: Span | None = None,
        tags: Mapping[str, str] | None = None,
        after: Any = None,
        queue: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """What a submit tells the engine of all of its jobs."""
        own = dict(self.options)
        if options:
            own.update(options_json(**{**_given(self.options), **options}))
        expires_ms = own.pop("expires_ms", None)
        if after is None:
            after = ()
        elif isinstance(after, (Handle, Submitted, str)):
            after = (after,)
        names: list[str] = []
        for prerequisite in after:
            names.extend(prerequisite.prerequisites() if isinstance(prerequisite, Submitted) else [str(prerequisite)])
        return {
            "kind": self.name,
            "queue": queue or self.queue,
            "options": json.dumps(own),
            "delay_ms": None if delay is None else milliseconds(delay),
            "expires_ms": expires_ms,
            "tags": [(name, str(value)) for name, value in (tags or {}).items()],
            "after": names,
        }

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
        as `priority` and `timeout`.
        """
        stop_import(f"{self.name}.submit(…)")
        common = self.common(delay=delay, tags=tags, after=after, queue=queue, **options)
        payload = self.shape.payload(arguments)
        unique = None if key is None else _unique(on_duplicate, unique_for)
        if connection is not None and not self.app.is_eager:
            from . import _transaction

            batch, position = _transaction.submit_one(self.app, connection, common, payload, key, unique)
        elif key is None or unique is None:
            batch, position = self.app.engine().submit_one(common, payload, to_plain)
        else:
            batch, position = self.app.engine().submit_keyed(common, payload, to_plain, key, unique)
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
        """As `submit`, without blocking the event loop. `connection` is an asynchronous one (asyncpg, psycopg, SQLAlchemy)."""
        if connection is None or self.app.is_eager:
            import asyncio

            options.update(key=key, on_duplicate=on_duplicate, unique_for=unique_for)
            return await asyncio.to_thread(functools.partial(self.submit, *arguments, **options))
        from . import _transaction

        unique = None if key is None else _unique(on_duplicate, unique_for)
        common, payload = self.common(**options), self.shape.payload(arguments)
        batch, position = await _transaction.submit_async(self.app, connection, common, payload, key, unique)
        return Handle(self.app, batch, position, self)

    def submit_many(
        self,
        items: Iterable[Any],
        *,
        delay: Span | None = None,
        after: Any = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        connection: Any = None,
        **options: Any,
    ) -> Submitted[R]:
        """Submits a job for each item of any iterable, packed; all are on disk when this returns. A table of pandas, polars or
        pyarrow has its rows as items, dicts of columns. Options are those of `submit`. Where it fails without `connection`,
        the items of earlier portions of 4 MiB may be submitted."""
        stop_import(f"{self.name}.submit_many(…)")
        common = self.common(delay=delay, tags=tags, after=after, queue=queue, **options)
        items = rows(items)
        payloads = items if self.shape.is_single else map(self.shape.payload_of_item, items)
        if connection is not None and not self.app.is_eager:
            from . import _transaction

            batches = _transaction.submit_many(self.app, connection, common, payloads)
            return Submitted(self.app, batches, self)
        return Submitted(self.app, self.app.engine().submit_many(common, payloads, to_plain), self)

    @overload
    def map(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = ...,
        return_exceptions: bool = ...,
        name: str | None = ...,
        processes: int | None = ...,
        progress: Any = ...,
    ) -> Iterator[R]: ...

    @overload
    def map(self, items: Iterable[Any], **options: Any) -> Iterator[R]: ...

    def map(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        name: str | None = None,
        processes: int | None = None,
        progress: Any = False,
        **options: Any,
    ) -> Iterator[R]:
        """Runs the function over the items of any iterable in processes of this machine, and yields the results as they come.
        A table of pandas, polars or pyarrow has its rows as items, dicts of columns.

        `ordered`: in the items' order. `return_exceptions`: yields a `JobFailed` in the place of a failed item rather than
        raise it. `name`: makes the map resumable: called again with the same name and items, it does not run again what has
        completed. `processes`: how many; a process for each processor by default. `progress`: True shows a bar (of tqdm, where it
        is installed), or a bar of your own with `update(1)`. The number of items in flight is bounded.

        On a server, the items are jobs of the function's queue, which the server's workers run.
        """
        stop_import(f"{self.name}.map(…)")
        total = count(items) if progress is True else None
        items = rows(items)
        if self.app.is_server:
            values = self._map_remotely(items, ordered, return_exceptions, name, processes, options)
        elif self.app.is_eager:
            values = self._map_eagerly(items, return_exceptions, options)
        else:
            from ._map import run_map

            if options:
                options = options_json(**{**_given(self.options), **options})
            values = run_map(self, items, ordered, return_exceptions, name, processes, options or dict(self.options))
        if progress is not None and progress is not False:
            from ._items.progress import shown

            values = shown(values, progress, self.name, total)
        return values

    def _map_eagerly(self, items: Iterable[Any], return_exceptions: bool, options: dict[str, Any]) -> Iterator[R]:
        for item in items:
            [handle] = self.submit_many([item], **options)
            try:
                yield handle.result()
            except JobFailed as failed:
                if not return_exceptions:
                    raise
                yield cast(R, failed)

    def _map_remotely(
        self,
        items: Iterable[Any],
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

        return run_remote_map(self, cast(Any, self.app.engine()), items, ordered, return_exceptions, options)


def is_job(value: object) -> TypeGuard[Job[..., Any]]:
    """Whether a value is a job."""
    return isinstance(value, Job)


def _unique(on_duplicate: str, unique_for: Span | None) -> str:
    """The rules of deduplication, as the engine reads them."""
    unique: dict[str, Any] = {"on_duplicate": on_duplicate}
    if unique_for is not None:
        unique["period_ms"] = milliseconds(unique_for)
    return json.dumps(unique)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments that make these options."""
    retry = options["retry"]
    given = {
        "retries": retry["attempts_max"] - 1,
        "retry_delay": retry["delay_ms"] / 1000,
        "backoff": retry["backoff"],
        "priority": options["priority"],
        "group": options.get("group"),
    }
    for name, key in (("timeout", "timeout_ms"), ("cached", "cached_ms"), ("expires", "expires_ms")):
        if key in options:
            given[name] = options[key] / 1000
    return given
