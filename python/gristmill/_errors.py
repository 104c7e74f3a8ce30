"""The package's exceptions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._handle import Submitted


class GristmillError(Exception):
    """The root of the package's exceptions.

    >>> issubclass(StoreError, GristmillError)
    True
    """


class StoreError(GristmillError):
    """The store refused an operation or could not be reached; the message says which and why.

    >>> app.details("not a job")
    Traceback (most recent call last):
    gristmill._errors.StoreError: `not a job` is not a job id: write the batch and the position, as in 42:7
    """


class NotFound(StoreError):
    """The store does not have the job, schedule or batch."""


class ForkRefused(StoreError):
    """A flow cannot be forked: it has not ended, or has no such step. The message says why.

    >>> app.fork_flows("embed", "99:0")
    [('99:0', ForkRefused('flow 99:0 is not forked: it does not exist'))]
    """


class SubmitFailed(StoreError):
    """A `submit_many` failed on its way. `submitted` has the jobs of the first items, which are stored: the items behind them can
    be submitted again. Only where the connection broke while a portion was stored, that portion may be stored as well; the
    message says so.

    >>> issubclass(SubmitFailed, StoreError)
    True
    """

    def __init__(self, message: str, submitted: Submitted[Any]) -> None:
        self.submitted = submitted
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return SubmitFailed, (str(self), self.submitted)


def interrupted(error: BaseException, submitted: Submitted[Any]) -> BaseException:
    """The exception of a `submit_many` that ended early, with what is stored."""
    stored = f"{_first_of(submitted)}: submit the items behind them again; `submitted` of this exception has the jobs" if submitted else ""
    if isinstance(error, StoreError):
        return SubmitFailed(f"{error}; {stored}" if stored else str(error), submitted)
    # What the items or their conversion raised, or Ctrl-C.
    try:
        error.submitted = submitted  # type: ignore[attr-defined]
    except AttributeError:
        # An exception with slots: the note says it.
        pass
    # Python 3.10 has no notes.
    add_note = getattr(error, "add_note", None)
    if stored and add_note is not None:
        add_note(f"gristmill: {stored}")
    return error


def _first_of(submitted: Submitted[Any]) -> str:
    """How much is stored."""
    if len(submitted) == 1:
        return f"the first item is stored, as job {submitted[0].id}"
    return f"the first {len(submitted)} items are stored, as jobs {submitted[0].id} to {submitted[-1].id}"


class WorkerError(GristmillError):
    """A worker or its processes could not start or go on.

    >>> issubclass(WorkerError, GristmillError)
    True
    """


class ResultTimeout(GristmillError, TimeoutError):
    """The job has not ended within the timeout. It continues: ask again, or cancel it.

    >>> double.submit(1).result(timeout=0)
    Traceback (most recent call last):
    gristmill._errors.ResultTimeout: job 1:0 has not ended after 0 s; it continues, if a worker runs its kind
    """


class JobTraceback(Exception):
    """Where a job raised its exception, as the cause of a `JobFailed`."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}"


class JobFailed(GristmillError):
    """A job ended without completing.

    `job` is its id, `state` is "dead", "cancelled" or "expired", `type` the class of its last exception (such as
    "ValueError"; None without one), `message` its text, and `job_traceback` where it was raised.

    >>> handle = double.submit(None, retries=0)
    >>> app.drain()
    0
    >>> try:
    ...     handle.result()
    ... except JobFailed as failed:
    ...     print(failed.state, failed.type, failed.message)
    dead TypeError unsupported operand type(s) for *: 'int' and 'NoneType'
    """

    def __init__(
        self, job: str, state: str, type: str | None = None, message: str = "", job_traceback: str | None = None
    ) -> None:
        self.job = job
        self.state = state
        self.type = type
        self.message = message
        self.job_traceback = job_traceback
        because = f": {type}: {message}" if type else ""
        super().__init__(f"job {job} ended as {state}{because}")
        if job_traceback:
            # Python prints the cause of an exception that nobody catches.
            self.__cause__ = JobTraceback(job_traceback)

    def __reduce__(self) -> tuple[object, ...]:
        return JobFailed, (self.job, self.state, self.type, self.message, self.job_traceback)


class StepFailed(JobFailed):
    """A step of a flow ended without completing: raised where the flow awaits it, which may catch it and go on.

    `step` and `key` are its identity; the rest is as of `JobFailed`.

    >>> @app.job(retries=0)
    ... def halve(number: int) -> int:
    ...     return number // 0
    >>> @app.flow
    ... async def careful(flow, number: int) -> str:
    ...     try:
    ...         await flow.step(halve, number)
    ...     except StepFailed as failed:
    ...         return f"{failed.step}: {failed.type}"
    >>> from gristmill.testing import run_flow
    >>> run_flow(careful, 1)
    'halve: ZeroDivisionError'
    """

    # Another attempt of the flow would meet the same outcome.
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
        super().__init__(job, state, type, message, job_traceback)
        self.step = step
        self.key = key
        self.args = (f"step {step}{'' if key is None else f' (key {key!r})'}, {self.args[0]}",)

    def __reduce__(self) -> tuple[object, ...]:
        return StepFailed, (self.step, self.key, self.job, self.state, self.type, self.message, self.job_traceback)


class Retry(GristmillError):
    """Raised by a job: this attempt failed, and the next one begins after `after` (seconds, a timedelta or text such as "5m").

    The job ends as dead when it has no attempts left.

    >>> @app.job
    ... def fetch(url: str) -> int:
    ...     if gristmill.job().attempt == 1:
    ...         raise gristmill.Retry("busy", after=0)
    ...     return gristmill.job().attempt
    >>> handle = fetch.submit("https://example.org")
    >>> app.drain(), handle.result()
    (1, 2)
    """

    def __init__(self, message: str = "the job asked to be retried", after: float | str | timedelta | None = None) -> None:
        from ._spans import seconds

        super().__init__(message)
        if after is not None:
            self.retry_after = seconds(after)


class Fail(GristmillError):
    """Raised by a job: it fails for good, whatever attempts are left.

    >>> @app.job(retries=100)
    ... def fetch(url: str) -> int:
    ...     raise gristmill.Fail("gone")
    >>> handle = fetch.submit("https://example.org")
    >>> app.drain(), handle.state(), app.details(handle).row.attempt
    (0, 'dead', 1)
    """

    permanent = True
