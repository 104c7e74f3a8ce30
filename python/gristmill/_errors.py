"""The package's exceptions."""

from __future__ import annotations

from datetime import timedelta


class GristmillError(Exception):
    """The root of the package's exceptions."""


class StoreError(GristmillError):
    """The store refused an operation or could not be reached; the message says which and why."""


class WorkerError(GristmillError):
    """A worker or its processes could not start or go on."""


class ResultTimeout(GristmillError, TimeoutError):
    """The job has not ended within the timeout. It continues: ask again, or cancel it."""


class JobFailed(GristmillError):
    """A job ended without completing.

    `job` is its id, `state` is "dead", "cancelled" or "expired", `type` the class of its last exception (such as
    "ValueError"; None without one), `message` its text, and `job_traceback` where it was raised.
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

    def __reduce__(self) -> tuple[object, ...]:
        return JobFailed, (self.job, self.state, self.type, self.message, self.job_traceback)


class Retry(GristmillError):
    """Raised by a job: this attempt failed, and the next one begins after `after` (seconds, a timedelta or text such as "5m").

    The job ends as dead when it has no attempts left.
    """

    def __init__(self, message: str = "the job asked to be retried", after: float | str | timedelta | None = None) -> None:
        from ._spans import seconds

        super().__init__(message)
        if after is not None:
            self.retry_after = seconds(after)


class Fail(GristmillError):
    """Raised by a job: it fails for good, whatever attempts are left."""

    permanent = True
