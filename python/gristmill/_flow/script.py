"""Flows of scripts, which `gristmill run` runs over a file of items.

The steps of such a flow are functions of its script: jobs of the run's own kind, with a payload that names the function.

Needs nothing of the package but the modules that it imports: the runtime gives the same text to scripts. Python 3.8 and newer.
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any, Callable, cast

from .._spans import milliseconds, seconds
from .memo import FlowError, Prepared, cleanup_ms, make_encoder
from .replay import Program

# The member of a payload by which the job of a step is known.
STEP = "gristmill.step"


class StepFailed(Exception):
    """A step of a flow ended without completing. The package's own one has the same members."""

    permanent = True

    def __init__(
        self,
        step: str,
        key: str | None,
        job: str,
        state: str,
        type: str | None = None,
        message: str = "",
        job_traceback: str | None = None,
    ) -> None:
        self.step = step
        self.key = key
        self.job = job
        self.state = state
        self.type = type
        self.message = message
        self.job_traceback = job_traceback
        because = f": {type}: {message}" if type else ""
        super().__init__(f"step {step}{'' if key is None else f' (key {key!r})'}, job {job} ended as {state}{because}")
        if job_traceback:
            self.__cause__ = Exception("\n" + job_traceback.rstrip())


class ScriptFlow:
    """A flow of a script. The runtime finds it in place of `main`."""

    is_gristmill_flow = True

    def __init__(self, function: Callable[..., Any], name: str | None, cleanup_within: Any = None) -> None:
        if not list(inspect.signature(function).parameters):
            raise TypeError(f"{function!r} has no parameters: the first one of a flow is the flow itself")
        self.function = function
        self.name: str = name or function.__name__
        self.cleanup_ms = cleanup_ms(cleanup_within, milliseconds)
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the function, such as from another flow."""
        return self.function(*arguments, **named)

    def entries(self, script: dict[str, Any]) -> tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any]]:
        """The function that the runtime calls with a payload, and later with the ended children."""
        runtime: Any = sys.modules["_gristmill_process"]
        program = Program(self.name, None, self._called(), _preparing(script), _failed, _plain, seconds, cleanup_ms=self.cleanup_ms)
        from .loop import running

        run = running(program, inspect.iscoroutinefunction(self.function), runtime)

        def main(payload: Any) -> Any:
            is_step = type(payload) is dict and STEP in cast("dict[str, Any]", payload)
            return run_step(cast("dict[str, Any]", payload)) if is_step else run(payload, [], [])

        def run_step(payload: dict[str, Any]) -> Any:
            step = script.get(payload[STEP])
            if not callable(step):
                raise FlowError(f"the script has no function {payload[STEP]!r}, which a flow began as a step: keep its name")
            return step(*payload["arguments"], **payload.get("named", {}))

        return main, run

    def _called(self) -> Callable[[Any, Any], Any]:
        has_payload = len(inspect.signature(self.function).parameters) > 1
        return self.function if has_payload else lambda flow, payload: self.function(flow)


def flow(function: Callable[..., Any] | None = None, *, name: str | None = None, cleanup_within: Any = None) -> Any:
    """Makes a function of a script a durable flow of each of its items, in place of `main`. Its first parameter is the `Flow`, its
    second one the item. Steps are functions of the script, or the names of kinds that other workers run, with one payload.
    `cleanup_within` is how long an instance may clean up after a cancelled one.

    >>> import gristmill
    >>> def fetch(url):
    ...     return f"the text of {url}"
    >>> @gristmill.flow
    ... async def document(flow, url):
    ...     return await flow.step(fetch, url)
    """

    def define(function: Callable[..., Any]) -> ScriptFlow:
        return ScriptFlow(function, name, cleanup_within)

    return define if function is None else define(function)


def _preparing(script: dict[str, Any]) -> Callable[..., Any]:
    encode = make_encoder(_plain, False)

    def head(target: Any, queue: str | None = None, tags: Any = None, options: Any = None) -> str:
        """What the children of a step have in common. Options are those of the children of `gristmill.spawn`."""
        # A function of the script has the kind of the flow, and is no flow.
        step = None if isinstance(target, str) else True
        parts = {"kind": target if step is None else None, "step": step, "queue": queue, "tags": tags, "options": options}
        return json.dumps({name: part for name, part in parts.items() if part is not None or name == "kind"})[:-1]

    def of_children(options: dict[str, Any]) -> dict[str, Any]:
        return {name: options.pop(name) for name in ("queue", "tags", "options") if name in options}

    def payload_of(target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        if isinstance(target, str):
            if len(arguments) > 1 or named:
                raise TypeError(f"a step of the kind {target!r} takes one payload, and no other arguments")
            return encode(arguments[0] if arguments else None)
        payload: dict[str, Any] = {STEP: target.__name__, "arguments": arguments}
        if named:
            payload["named"] = named
        return encode(payload)

    def label_of(target: Any) -> str:
        if isinstance(target, str):
            return target
        name: Any = getattr(target, "__name__", None)
        if script.get(name) is not target:
            raise TypeError(f"{target!r} is no function at the top of the script: give functions like it to flow.local")
        return str(name)

    def prepare(target: Any, arguments: Any, options: dict[str, Any], is_map: bool = False) -> Any:
        label, start = label_of(target), head(target, **of_children(options))
        if not is_map:
            return Prepared(label, start, payload_of(target, arguments, options), None)
        starmap = bool(options.pop("starmap", False))
        if options:
            raise TypeError(
                f"a map has no option {next(iter(options))}=: it has name, key, return_exceptions, starmap, queue, tags, options"
            )
        items = (tuple(item) if starmap else (item,) for item in arguments)
        return (Prepared(label, start, payload_of(target, item, {}), None) for item in items)

    return prepare


def _failed(step: str, key: str | None, job: str | None, state: str, error: dict[str, Any] | None) -> BaseException:
    kind: Any = StepFailed
    try:
        from .._errors import StepFailed as kind
    except ImportError:
        # Without the package.
        pass
    told = error or {}
    failed: BaseException = kind(step, key, job or "", state, told.get("type"), told.get("message", ""), told.get("traceback"))
    return failed


def _plain(value: Any) -> Any:
    convert: Any = getattr(sys.modules["_gristmill_process"], "to_plain", None)
    if convert is not None:
        return convert(value)
    raise TypeError(f"a {type(value).__qualname__}; give dict, list, str, int, float, bool or None, or convert it first")
