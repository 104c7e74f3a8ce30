"""The answers of the operations."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from typing import Any


STATES = ("blocked", "waiting", "scheduled", "paused", "running", "completed", "dead", "cancelled", "expired")


def moment(milliseconds: int | None) -> datetime | None:
    """A time in UTC."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


@dataclasses.dataclass(frozen=True)
class JobRow:
    """A job of a listing. `id` is as "42:7"; times are in UTC, and None where they do not apply.

    >>> handle = double.submit(1)
    >>> [(row.id, row.kind, row.state, row.attempt) for row in app.find()]
    [('1:0', 'double', 'waiting', 1)]
    """

    id: str
    kind: str
    queue: str
    group: str | None
    state: str
    attempt: int
    priority: int
    submitted_at: datetime | None
    run_at: datetime | None
    finished_at: datetime | None
    claimed_at: datetime | None
    # The message of the last failure.
    error: str | None
    # While the job runs: `fraction`, `done`, `total`, `message`, `rate_per_s`, `left_ms`.
    progress: dict[str, Any] | None

    @staticmethod
    def of(row: dict[str, Any]) -> JobRow:
        """A row of the API."""
        return JobRow(
            row["job"],
            row["kind"],
            row["queue"],
            row.get("group"),
            row["state"],
            row["attempt"],
            row["priority"],
            moment(row["submitted_at"]),
            moment(row.get("run_at")),
            moment(row.get("finished_at")),
            moment(row.get("claimed_at")),
            row.get("error"),
            row.get("progress"),
        )


@dataclasses.dataclass(frozen=True)
class Failure:
    """One failed attempt.

    >>> handle = double.submit(None, retries=0)
    >>> app.drain(), app.details(handle).failures[0].type
    (0, 'TypeError')
    """

    attempt: int
    type: str
    message: str
    traceback: str | None
    log: str | None
    failed_at: datetime | None


@dataclasses.dataclass(frozen=True)
class JobDetails:
    """Everything that is known of one job. `value` is that of a completed job.

    >>> app.details(double.submit(1)).payload
    1
    """

    row: JobRow
    payload: Any
    value: Any
    key: str | None
    tags: dict[str, str]
    parent: str | None
    worker: str | None
    duration_s: float | None
    log: str | None
    failures: list[Failure]

    @staticmethod
    def of(view: dict[str, Any]) -> JobDetails:
        """A job of the API."""
        failures = [
            Failure(
                failure["attempt"],
                failure["type"],
                failure["message"],
                failure.get("traceback"),
                failure.get("log"),
                moment(failure["failed_at"]),
            )
            for failure in view["failures"]
        ]
        duration_us = view.get("duration_us")
        return JobDetails(
            JobRow.of(view),
            view["payload"],
            view.get("value"),
            view.get("key"),
            view.get("tags", {}),
            view.get("parent"),
            view.get("worker"),
            None if duration_us is None else duration_us / 1_000_000,
            view.get("log"),
            failures,
        )


@dataclasses.dataclass(frozen=True)
class FlowStep:
    """A step of a flow: a job, or the jobs of one map. Times are in UTC, and None where they do not apply.

    >>> @app.flow
    ... async def wait(flow) -> str:
    ...     return await flow.event("go", timeout="1d")
    >>> handle, ran = wait.submit(), app.drain()
    >>> [(step.number, step.state, step.event) for step in app.steps(handle)]
    [(0, 'blocked', 'go')]
    """

    # Its number among the steps of the flow, from 0.
    number: int
    name: str | None
    key: str | None
    # The kind of its jobs, and its first job; no kind and no state where they are deleted.
    kind: str | None
    job: str
    state: str | None
    # Of a map: its number of jobs, and their numbers by state.
    jobs: int | None
    states: dict[str, int] | None
    attempt: int | None
    submitted_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    # The event, and the time up to which it waits.
    event: str | None
    until: datetime | None
    # The message of the last failure.
    error: str | None

    @staticmethod
    def of(view: dict[str, Any]) -> FlowStep:
        """A step of the API."""
        return FlowStep(
            view["number"],
            view.get("name"),
            view.get("key"),
            view.get("kind"),
            view["job"],
            view.get("state"),
            view.get("jobs"),
            view.get("states"),
            view.get("attempt"),
            moment(view.get("submitted_at")),
            moment(view.get("claimed_at")),
            moment(view.get("finished_at")),
            view.get("event"),
            moment(view.get("until")),
            view.get("error"),
        )


@dataclasses.dataclass(frozen=True)
class FlowRow:
    """A flow of a listing, with the first steps for which it waits.

    >>> @app.flow
    ... async def wait(flow) -> str:
    ...     return await flow.event("go")
    >>> handle, ran = wait.submit(), app.drain()
    >>> [(row.job.id, row.name, row.version) for row in app.flows()]
    [('1:0', 'wait', None)]
    """

    job: JobRow
    name: str
    version: str | None
    # At most five.
    awaited: list[FlowStep]

    @staticmethod
    def of(view: dict[str, Any]) -> FlowRow:
        """A flow of the API."""
        return FlowRow(JobRow.of(view), view["name"], view.get("version"), [FlowStep.of(step) for step in view["awaited"]])


@dataclasses.dataclass(frozen=True)
class FlowKind:
    """The flows of one name and version on one queue, by state.

    >>> app.flow_kinds()
    []
    """

    kind: str
    name: str
    version: str | None
    queue: str
    # Whether a registered worker serves them.
    has_worker: bool
    states: dict[str, int]

    @staticmethod
    def of(view: dict[str, Any]) -> FlowKind:
        """A kind of the API."""
        states = {state: view[state] for state in STATES}
        return FlowKind(view["kind"], view["name"], view.get("version"), view["queue"], view["has_worker"], states)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule. `rule` is as in {"cron": {"expression": "@daily", "time_zone": "UTC"}} or {"every": {"interval_ms": 60000}}.

    >>> app.schedule("hourly", double, 1, every="1h").overlap
    'allow'
    """

    name: str
    rule: dict[str, Any]
    kind: str
    queue: str
    payload: Any
    catch_up: str
    overlap: str
    next_at: datetime | None
    last_at: datetime | None
    last_job: str | None
    # How many jobs it submitted.
    fired: int
    is_paused: bool

    @staticmethod
    def of(view: dict[str, Any]) -> Schedule:
        """A schedule of the API."""
        return Schedule(
            view["schedule"],
            view["rule"],
            view["kind"],
            view["queue"],
            view["payload"],
            view["catch_up"],
            view["overlap"],
            moment(view["next_at"]),
            moment(view["last_at"]),
            view["last_job"],
            view["fired"],
            view["paused"],
        )


@dataclasses.dataclass(frozen=True)
class Control:
    """A pause, a limit, a share or an aging. `effect` is "pause", "concurrency", "rate", "share" or "aging", with its `values`;
    of queue, kind and group, those are None that it does not name.

    >>> app.limit(2, queue="mail")
    >>> app.controls()[0].values
    {'jobs_max': 2}
    """

    effect: str
    values: dict[str, Any]
    queue: str | None
    kind: str | None
    group: str | None
    each_group: bool

    @staticmethod
    def of(view: dict[str, Any]) -> Control:
        """A control of the API."""
        [(effect, values)] = view["effect"].items()
        scope = view["scope"]
        return Control(
            effect, values, scope.get("queue"), scope.get("kind"), scope.get("group"), scope.get("each_group", False)
        )


@dataclasses.dataclass(frozen=True)
class HistoryRow:
    """Jobs of one kind on one queue that ended within one period, which began at `since` (None: all time). Durations are
    those of completed jobs, in seconds; None where none completed.

    >>> handle = double.submit(1)
    >>> app.drain(), app.history()[0].completed
    (1, 1)
    """

    since: datetime | None
    kind: str
    queue: str
    completed: int
    dead: int
    cancelled: int
    expired: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None

    @staticmethod
    def of(view: dict[str, Any]) -> HistoryRow:
        """A row of the API."""
        duration = view.get("duration")

        def seconds(name: str) -> float | None:
            return None if duration is None else duration[name] / 1_000_000

        return HistoryRow(
            moment(view.get("from")),
            view["kind"],
            view["queue"],
            view["completed"],
            view["dead"],
            view["cancelled"],
            view["expired"],
            seconds("mean_us"),
            seconds("p50_us"),
            seconds("p95_us"),
            seconds("p99_us"),
        )


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to jobs of a batch: "submitted", "completed", "retried", "dead", "cancelled" or "expired"; also
    "progress" of a worker's jobs, and "missed" where earlier events are not kept. `cursor` resumes the events after it.

    >>> events = app.events(timeout=10)
    >>> handle = double.submit(1)
    >>> event = next(events)
    >>> event.type, event.jobs
    ('submitted', ['1:0'])
    >>> events.close()
    """

    type: str
    cursor: str
    at: datetime | None
    batch: int | None
    positions: range | list[int]
    kind: str | None
    queue: str | None
    attempt: int | None
    # All that the event tells, as the HTTP API has it.
    data: dict[str, Any]

    @staticmethod
    def of(data: dict[str, Any]) -> Event:
        """An event of the API."""
        return Event(
            data["type"],
            data["cursor"],
            moment(data["at"]),
            data.get("batch"),
            positions_of(data.get("positions", "")),
            data.get("kind"),
            data.get("queue"),
            data.get("attempt"),
            data,
        )

    @property
    def jobs(self) -> list[str]:
        """The ids of its jobs.

        >>> events = app.events(timeout=10)
        >>> jobs = double.submit_many([1, 2])
        >>> next(events).jobs
        ['1:0', '1:1']
        >>> events.close()
        """
        return [f"{self.batch}:{position}" for position in self.positions]


def positions_of(text: str) -> range | list[int]:
    """Positions such as "0-499,731"."""
    ranges: list[range] = []
    for piece in text.split(",") if text else ():
        first, _, last = piece.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
    if len(ranges) == 1:
        return ranges[0]
    return [position for positions in ranges for position in positions]
