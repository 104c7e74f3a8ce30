"""Lets new code go on with those instances of a version that it fits, and holds the others."""

from __future__ import annotations

import secrets
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .._errors import GristmillError
from .._operations.requests import ask
from .check import OPEN, Difference, check, replayed

if TYPE_CHECKING:
    from .._handle import Handle
    from .job import FlowJob

# The reason by which instances are paused while they are replayed; each upgrade adds its own number, so that no other one ends its pauses.
CHECKED_BY = "flow upgrade check"
# The reason by which instances are paused that the code does not fit.
HELD_BY = "flow upgrade"
# The time in which runs that have begun have to end. Seconds.
RUNS_END_S_MAX = 60.0
LOOK_EVERY_S = 0.05


class Upgraded(NamedTuple):
    """How many instances were replayed, those that the code does not fit, and those that ran all the time.

    >>> Upgraded(2, [], [])
    Upgraded(instances=2, differences=[], running=[])
    """

    instances: int
    # They are held: paused by the reason "flow upgrade".
    differences: list[Difference]
    # They were not replayed, and are held, too.
    running: list[str]


class UpgradeFailed(GristmillError):
    """An upgrade has ended before its end. The message says which instances it leaves paused."""


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
    # A caller who may not read what flows keep learns it before anything is paused.
    ask(app.engine(), "flow_memos", {"jobs": []})
    selected: dict[str, Any] = {} if named else {"job": kind}
    checked_by = f"{CHECKED_BY} {secrets.token_hex(4)}"
    try:
        # Nobody runs them meanwhile. Whoever was held before is replayed again.
        app.pause_jobs(checked_by, *named, **selected)
        app.resume_jobs(HELD_BY, *named, **selected)
        running = _still_running(served, named)
        count = 0
        differences: list[Difference] = []
        ids = named or (row.id for row in app.find(job=kind, states=OPEN))
        for portion in replayed(served, (flow for flow in ids if flow not in running), skips_deleted=True):
            differing = [difference for difference in portion if difference is not None]
            if differing:
                app.pause_jobs(HELD_BY, *(difference.flow for difference in differing))
            count += len(portion)
            differences.extend(differing)
        if running:
            app.pause_jobs(HELD_BY, *running)
        app.resume_jobs(checked_by, *named, **selected)
    except BaseException as error:
        told = _held_instead(served, checked_by, named, selected)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(told) from error
        raise UpgradeFailed(f"the upgrade of {kind} failed: {error or type(error).__name__}; {told}") from error
    return Upgraded(count, differences, sorted(running))


def _held_instead(job: FlowJob[Any], checked_by: str, named: tuple[str, ...], selected: dict[str, Any]) -> str:
    """Holds all instances of an upgrade that has not come to its end, as a later upgrade expects it. Tells how to let them go on."""
    reason = HELD_BY
    try:
        job.app.pause_jobs(HELD_BY, *named, **selected)
        job.app.resume_jobs(checked_by, *named, **selected)
    except Exception:
        reason = checked_by
    again = "call it again, or let them" if reason == HELD_BY else "let them"
    return f'its instances may be paused by the reason "{reason}": {again} go on as they are by: gristmill resume --reason "{reason}"'


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
