"""Lets new code go on with those instances of a version that it fits, and holds the others."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .check import OPEN, Difference, check, replayed

if TYPE_CHECKING:
    from .._handle import Handle
    from .job import FlowJob

# The reason by which instances are paused while they are replayed.
CHECKED_BY = "upgrade check"
# The reason by which instances are paused that the code does not fit.
HELD_BY = "upgrade"
# The time in which runs that have begun have to end. Seconds.
RUNS_END_S_MAX = 60.0
LOOK_EVERY_S = 0.05


class Upgraded(NamedTuple):
    """How many instances were replayed, those that the code does not fit, and those that ran all the time.

    >>> Upgraded(2, [], [])
    Upgraded(instances=2, differences=[], running=[])
    """

    instances: int
    # They are held: paused by the reason "upgrade".
    differences: list[Difference]
    # They were not replayed, and are held, too.
    running: list[str]


def upgrade(job: FlowJob[Any], flows: tuple[str | Handle[Any], ...], version: str | None, dry_run: bool) -> Upgraded:
    """Replays these instances, or all of a version that have not ended. Those that the code fits go on by it."""
    app = job.app
    kind = job.name if version is None else f"{job.flow_name}@{version}" if version else job.flow_name
    served = app.jobs.get(kind)
    if served is None or served.function is not job.function:
        raise ValueError(
            f"{job!r} does not go on with the instances of {kind!r}: define it with upgrades=[{version!r}], and give its workers this code"
        )
    served = cast("FlowJob[Any]", served)
    named = tuple(dict.fromkeys(map(str, flows)))
    for flow in named:
        details = app.details(flow)
        if details is None or details.row.kind != kind:
            found = "does not exist" if details is None else f"is one of {details.row.kind!r}"
            raise ValueError(f"flow {flow} {found}: name instances of {kind!r}")
    if dry_run:
        return Upgraded(*check(served, named, None), [])
    selected: dict[str, Any] = {} if named else {"job": kind}
    # Nobody runs them meanwhile. Whoever was held before is replayed again.
    app.pause_jobs(CHECKED_BY, *named, **selected)
    app.resume_jobs(HELD_BY, *named, **selected)
    running = _still_running(served, named)
    count = 0
    differences: list[Difference] = []
    ids = named or (row.id for row in app.find(job=kind, states=OPEN))
    for portion in replayed(served, (flow for flow in ids if flow not in running)):
        differing = [difference for difference in portion if difference is not None]
        if differing:
            app.pause_jobs(HELD_BY, *(difference.flow for difference in differing))
        count += len(portion)
        differences.extend(differing)
    if running:
        app.pause_jobs(HELD_BY, *running)
    # An upgrade that ends before this line leaves them paused, and the next one goes on.
    app.resume_jobs(CHECKED_BY, *named, **selected)
    return Upgraded(count, differences, sorted(running))


def _still_running(job: FlowJob[Any], named: tuple[str, ...]) -> set[str]:
    """The instances whose runs do not end in time."""
    end = monotonic() + RUNS_END_S_MAX
    running = set(named) if named else None
    while True:
        now = {row.id for row in job.app.find(job=job, states="running")}
        running = now if running is None else running & now
        if not running or monotonic() >= end:
            return running
        sleep(LOOK_EVERY_S)
