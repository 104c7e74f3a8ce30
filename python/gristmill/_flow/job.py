"""Flows as jobs of an application."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .._errors import StepFailed
from .._items.shape import Shape, encoded_items
from .._items.tables import rows
from .._job import Job
from .._options import OPTIONS, RETRIES_DEFAULT, check_names, given, options_json, tag_pairs, text
from .._spans import seconds
from .._values import converter, hints_of, plain_keys, to_plain
from .memo import Prepared, make_encoder
from .replay import Program

if TYPE_CHECKING:
    from .._app import App
    from .._handle import Handle
    from .check import Checked
    from .upgrade import Upgraded

R = TypeVar("R")

# Options of a step, beside those of its job.
STEP_OPTIONS = (*OPTIONS, "queue", "tags", "starmap")
# Bytes of a flow's version.
VERSION_BYTES_MAX = 100


class FlowJob(Job[..., R]):
    """A flow of an application: a job that awaits others, events and times without a process."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        name: str,
        version: str | None,
        queue: str,
        options: dict[str, Any],
        processes: int | None,
        cleanup_ms: int | None = None,
    ) -> None:
        if version is not None:
            text("version", version)
            if not version or "@" in version or len(version.encode()) > VERSION_BYTES_MAX:
                raise ValueError(f"version={version!r}: give a short text without @")
        if not list(inspect.signature(function).parameters):
            raise TypeError(f"{function!r} has no parameters: the first one of a flow is the flow itself")
        self.flow_name = name
        self.version = version
        self.cleanup_ms = cleanup_ms
        super().__init__(app, function, name if version is None else f"{name}@{version}", queue, options, processes)
        self._program: Program | None = None
        self._run: Callable[[Any, list[Any], list[Any]], Any] | None = None

    def __repr__(self) -> str:
        return f"<gristmill flow {self.name!r}>"

    @staticmethod
    def shape_of(function: Any) -> Shape:
        """The parameters without the first one, which is the flow."""
        return Shape(_Bound(function))

    def is_asynchronous(self) -> bool:
        # Each run of an instance is short: it never waits.
        return False

    @property
    def is_coroutine(self) -> bool:
        """Whether it is an `async def`."""
        return inspect.iscoroutinefunction(self.function)

    def check(self, *flows: str | Handle[Any], version: str | None = None) -> Checked:
        """Replays instances against this code, without running any step: these, or all of a version that have not ended (of this
        one by default; "" for none). Their memos are read, and nothing is written. What a flow does between its steps runs.

        Gives how many were replayed, and those that the code does not fit, each with the error: which step, and which hashes.

        >>> import gristmill
        >>> from gristmill.testing import temporary_store
        >>> app = gristmill.App("jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> @app.flow(name="wait", version="1")
        ... async def before(flow, number: int) -> int:
        ...     doubled = await flow.step(double, number)
        ...     return await flow.event("go")
        >>> @app.flow(name="wait", version="2")
        ... async def after(flow, number: int) -> int:
        ...     doubled = await flow.step(double, number + 1)
        ...     return await flow.event("go")
        >>> with temporary_store(app):
        ...     handle = before.submit(21)
        ...     ran = app.drain()
        ...     before.check().differences, after.check(version="1").differences[0].problem
        ([], 'FlowError: step double, number 1 of its name, of flow wait@2 had arguments of the hash ...')
        """
        from .check import check

        return check(self, flows, version)

    def upgrade(self, *flows: str | Handle[Any], version: str | None = None, dry_run: bool = False) -> Upgraded:
        """Lets this code go on with instances of an older version, which it names in `upgrades=`: with these, or all that have not
        ended. Each is replayed as `check` does it. Those that the code fits go on. The others are held: paused by the reason
        "flow upgrade", until they are resumed, or a later upgrade finds that its code fits them. With `dry_run`, nothing is changed.

        Meanwhile all of them are paused. An upgrade that fails or is interrupted holds them; call it again.

        >>> import gristmill
        >>> from gristmill.testing import temporary_store
        >>> app = gristmill.App("jobs.db")
        >>> @app.flow(name="wait", version="1")
        ... async def before(flow, number: int) -> int:
        ...     return number + await flow.event("go")
        >>> with temporary_store(app):
        ...     handle = before.submit(1)
        ...     before.upgrade()
        Upgraded(instances=1, differences=[], running=[])
        """
        from .upgrade import upgrade

        return upgrade(self, flows, version, dry_run)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_program": None, "_run": None}

    def program(self) -> Program:
        """The program that runs an instance."""
        if self._program is None:
            self._program = _program(self)
        return self._program

    def entry(self) -> Callable[[Any], Any]:
        run = self.finalizing()
        return lambda payload: run(payload, [], [])

    def finalizing(self) -> Callable[[Any, Any, Any], Any]:
        if self._run is None:
            from .._process import offered
            from .loop import running

            self._run = running(self.program(), self.is_coroutine, offered())
        return self._run


class _Bound:
    """A flow's function without its first parameter."""

    def __init__(self, function: Any) -> None:
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
        hints = hints_of(function)
        first = next(iter(signature.parameters))
        self.__annotations__ = {name: hint for name, hint in hints.items() if name != first}
        self.__module__ = function.__module__

    def __call__(self) -> None:
        raise NotImplementedError


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return given(options) if options else {"retries": RETRIES_DEFAULT}


def _of_payload(payload: Any = None) -> None:
    """Has the parameters of a job that is not known here."""


class _Elsewhere:
    """A job of a kind that other workers run. It has the queue of the flow, unless the step names one."""

    queue = None
    shape = Shape(_of_payload)

    def __init__(self, name: str) -> None:
        self.name = text("the name of a step's kind", name)
        self.options: dict[str, Any] = {}

    def named_arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns nothing, because the parts of its payload have no names."""
        return {}


def _calling(function: Callable[..., Any], shape: Shape) -> Callable[[Any, Any], Any]:
    """The function of a flow and a payload."""
    if shape.is_single and not shape.is_keyword_only:
        convert = shape.converters.get(shape.names[0])
        if convert is None:
            return function
        return lambda flow, payload: function(flow, convert(payload))
    if not shape.names:
        return lambda flow, payload: function(flow)
    if shape.is_single:
        return lambda flow, payload: function(flow, **{shape.names[0]: shape.arguments_of(payload)})
    if shape.is_called_by_name:
        return lambda flow, payload: function(flow, **shape.arguments_of(payload))

    def call(flow: Any, payload: Any) -> Any:
        positional, named = shape.bound(payload)
        return function(flow, *positional, **named)

    return call


def _program(job: FlowJob[Any]) -> Program:
    steps: dict[int, tuple[Any, str, Any]] = {}
    app = job.app

    def head_of(job: Any, options: dict[str, Any]) -> tuple[str, Any]:
        """The common members of a job's children, and the conversion of their values."""
        tags, queue = options.pop("tags", None), options.pop("queue", None) or job.queue
        own = job.options
        if options:
            own = {**own, **options_json(**{**_given(own), **options})}
        own = {name: value for name, value in own.items() if name != "expires_ms"}
        head: dict[str, Any] = {"kind": job.name}
        if queue is not None:
            head["queue"] = queue
        if own:
            head["options"] = own
        if tags is not None:
            head["tags"] = dict(tag_pairs(tags))
        return json.dumps(head, ensure_ascii=False, separators=(",", ":"))[:-1], job.shape.result

    def resolve(target: Any) -> Any:
        """The job that a step names."""
        if isinstance(target, Job):
            return cast("Job[..., Any]", target)
        if isinstance(target, str):
            return app.jobs.get(target) or _Elsewhere(target)
        known = [one for one in app.jobs.values() if one.function is target]
        if known:
            return known[0]
        raise TypeError(
            f"{target!r} is no job: a step is a job, a batch or a flow of an application, or the name of a kind; give functions to"
            " flow.local"
        )

    encode_plain = make_encoder(to_plain, False)

    def encode_payload(payload: Any) -> str:
        try:
            return encode_plain(payload)
        except TypeError as error:
            if not str(error).startswith("keys must be"):
                raise
            return encode_plain(plain_keys(payload))

    def prepare(target: Any, arguments: Any, options: dict[str, Any], is_map: bool = False) -> Any:
        if is_map:
            return prepare_map(target, arguments, options)
        known = steps.get(id(target))
        if known is None or known[0] is not target:
            job = resolve(target)
            head, convert = head_of(job, {})
            known = steps[id(target)] = (target, head, (job, convert))
        head = known[1]
        job, convert = known[2]
        if options:
            named = job.named_arguments(options)
            check_names(f"a step of {job.name}", options, STEP_OPTIONS[:-1])
            if options:
                head, convert = head_of(job, options)
            payload = job.shape.payload(arguments, named)
        else:
            payload = job.shape.payload(arguments)
        return Prepared(getattr(job, "flow_name", job.name), head, encode_payload(payload), convert)

    def prepare_map(target: Any, items: Iterable[Any], options: dict[str, Any]) -> Iterator[Prepared]:
        job = resolve(target)
        starmap = bool(options.pop("starmap", False))
        check_names(f"a map of {job.name}", options, STEP_OPTIONS)
        head, convert = head_of(job, dict(options))
        encode = job.shape.encoder(items, starmap)
        items, label = rows(items), getattr(job, "flow_name", job.name)
        for payload in items if encode is None else encoded_items(items, encode):
            yield Prepared(label, head, encode_payload(payload), convert)

    def failed(step: str, key: str | None, id: str | None, state: str, error: Any) -> StepFailed:
        error = error or {}
        return StepFailed(step, key, id or "", state, error.get("type"), error.get("message", ""), error.get("traceback"))

    return Program(
        job.flow_name,
        job.version,
        _calling(job.function, job.shape),
        prepare,
        failed,
        to_plain,
        seconds,
        lambda function: converter(hints_of(function).get("return")),
        lambda *arguments, **named: job.shape.payload(arguments, named),
        job.cleanup_ms,
    )
