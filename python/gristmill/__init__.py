"""Gristmill: a durable job engine. Define jobs as functions, submit them, map them over many items.

    import gristmill

    app = gristmill.App("jobs.db")

    @app.job(retries=3, timeout="30s")
    def double(number: int) -> int:
        return 2 * number

    for value in double.map(range(1_000_000)):
        ...

`job()`, `progress()`, `spawn()` and `done()` speak with Gristmill from within a running job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    __version__: str

    from ._app import App as App
    from ._errors import Fail as Fail
    from ._errors import ForkRefused as ForkRefused
    from ._errors import GristmillError as GristmillError
    from ._errors import JobFailed as JobFailed
    from ._errors import ResultTimeout as ResultTimeout
    from ._errors import Retry as Retry
    from ._errors import StoreError as StoreError
    from ._errors import StepFailed as StepFailed
    from ._errors import SubmitFailed as SubmitFailed
    from ._errors import WorkerError as WorkerError
    from ._flow.memo import FlowError as FlowError
    from ._flow.replay import Flow as Flow
    from ._flow.script import flow as flow
    from ._handle import Handle as Handle
    from ._handle import Submitted as Submitted
    from ._job import Job as Job
    from ._operations.events import Events as Events
    from ._operations.records import Control as Control
    from ._operations.records import Event as Event
    from ._operations.records import FlowKind as FlowKind
    from ._operations.records import FlowRow as FlowRow
    from ._operations.records import FlowStep as FlowStep
    from ._operations.records import HistoryRow as HistoryRow
    from ._operations.records import JobDetails as JobDetails
    from ._operations.records import JobRow as JobRow
    from ._operations.records import Schedule as Schedule
    from ._work import LocalWorker as LocalWorker
    from .executor import JobExecutor as JobExecutor

# Loaded at their first use: scripts in a worker's process often need none of them.
_HOMES = {
    "App": "_app",
    "Control": "_operations.records",
    "Event": "_operations.records",
    "Events": "_operations.events",
    "Fail": "_errors",
    "Flow": "_flow.replay",
    "FlowError": "_flow.memo",
    "FlowKind": "_operations.records",
    "FlowRow": "_operations.records",
    "FlowStep": "_operations.records",
    "ForkRefused": "_errors",
    "GristmillError": "_errors",
    "flow": "_flow.script",
    "Handle": "_handle",
    "HistoryRow": "_operations.records",
    "Job": "_job",
    "JobDetails": "_operations.records",
    "JobExecutor": "executor",
    "JobFailed": "_errors",
    "JobRow": "_operations.records",
    "LocalWorker": "_work",
    "ResultTimeout": "_errors",
    "Retry": "_errors",
    "Schedule": "_operations.records",
    "StepFailed": "_errors",
    "StoreError": "_errors",
    "SubmitFailed": "_errors",
    "Submitted": "_handle",
    "WorkerError": "_errors",
}

__all__ = [*_HOMES, "done", "job", "progress", "spawn"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = version("gristmill")
        return globals()[name]
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


def job() -> Any:
    """The running job; None outside of one. It has `id` ("42:7"), `attempt` (from 1), `batch`, `kind`, `queue`, `key`, `group`,
    `tags` (a dict), `deadline` (the time.time() by which it has to have completed, or None) and `traceparent` (its
    trace context, or None). Two more are read from the store when they are used: `flow`, the flow that began the job as a step
    (`id`, `name`, `version`, `step`, `key` and, in a map, `item`; None for other jobs), and `prerequisites`, the outcomes of the
    jobs that `after` named: dicts of `job`, `state`, and `value` or `error`, at most 16 MiB.

    >>> import gristmill, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> @app.job
    ... def who(name):
    ...     return f"{name}, attempt {gristmill.job().attempt} of {gristmill.job().kind}"
    >>> handle = who.submit("Ada")
    >>> app.drain(), handle.result(), gristmill.job()
    (1, 'Ada, attempt 1 of who', None)
    >>> app.close()
    """
    from ._process import offered

    runtime = offered()
    return None if runtime is None else runtime.job()


def progress(
    done: int | None = None, total: int | None = None, message: str | None = None, fraction: float | None = None
) -> None:
    """Says how far the running job is: so much is done of so much, in any unit, or a fraction from 0 to 1, and what it is at.
    Does nothing outside of a job. `App.find` and the dashboard show it.

    >>> import gristmill
    >>> gristmill.progress(3, 10, "resizing")
    """
    from ._process import offered

    runtime = offered()
    if runtime is not None:
        runtime.progress(done, total, message, fraction)


def spawn(
    children: Iterable[Any] = (),
    memo: Any = None,
    kind: Job[..., Any] | str | None = None,
    queue: str | None = None,
    tags: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    starmap: bool = False,
    batches: Iterable[Mapping[str, Any]] = (),
    on_failure: str = "fail",
) -> Any:
    """Returned by a job: it waits for these children without a process. Then the function that `Job.finalize` decorates is called
    with their outcomes (in a script of `gristmill run`, its function `finalize(payload, memo, outcomes)`).

    `children` are items as `submit_many` has them, also with `starmap`, of the job `kind`, or payloads of the running job's own.
    `memo` is kept for `finalize`. `batches` are children of several kinds, each a dict of `payloads` and perhaps `kind`, `queue`,
    `tags`, `options` and `starmap`.
    `on_failure`: "fail" ends the job with the first child that fails, "collect" leaves the decision to `finalize`. Fails outside
    of a job.

    >>> import gristmill, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> @app.job
    ... def total(numbers):
    ...     return gristmill.spawn(numbers) if isinstance(numbers, list) else numbers
    >>> @total.finalize
    ... def add_up(numbers, memo, outcomes):
    ...     return sum(outcome["value"] for outcome in outcomes)
    >>> handle = total.submit([1, 2, 3])
    >>> app.drain(), handle.result()
    (4, 6)
    >>> app.close()
    """
    from ._items.children import children_of, plain

    named = {"kind": kind, "queue": queue, "tags": tags, "options": options, "starmap": starmap}
    return _within("spawn").spawn(batches=children_of(children, named, batches), memo=plain(memo), on_failure=on_failure)


def done(
    value: Any = None,
    siblings: Iterable[Any] = (),
    kind: Job[..., Any] | str | None = None,
    queue: str | None = None,
    tags: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    starmap: bool = False,
    batches: Iterable[Mapping[str, Any]] = (),
) -> Any:
    """Returned by a child: it completes with this value, and its parent waits for these siblings, too. They are as the children
    of `spawn`. Fails outside of a job.

    >>> import gristmill, tempfile
    >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
    >>> @app.job
    ... def count_down(number):
    ...     return gristmill.done(number, [number - 1] if number > 1 else [])
    >>> @app.job
    ... def start(number):
    ...     return gristmill.spawn([number], kind=count_down)
    >>> @start.finalize
    ... def gather(number, memo, outcomes):
    ...     return [outcome["value"] for outcome in outcomes]
    >>> handle = start.submit(3)
    >>> app.drain(), handle.result()
    (4, [3, 2, 1])
    >>> app.close()
    """
    from ._items.children import children_of, plain

    named = {"kind": kind, "queue": queue, "tags": tags, "options": options, "starmap": starmap}
    return _within("done").done(plain(value), batches=children_of(siblings, named, batches))


def _within(name: str) -> Any:
    from ._process import offered

    runtime = offered()
    if runtime is None or runtime.job() is None:
        raise RuntimeError(f"gristmill.{name} is for a running job: return it from the job's function")
    return runtime
