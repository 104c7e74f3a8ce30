"""Replays instances against the code of a flow, without running any step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .._operations.requests import ask
from .loop import AsyncFlow, PlainFlow
from .replay import Suspended, Suspension

if TYPE_CHECKING:
    from .._handle import Handle
    from .job import FlowJob

# Instances whose memos one request reads: the limit of the operation.
MEMOS_PER_REQUEST = 100
OPEN = ("blocked", "waiting", "scheduled", "paused", "running")


class Difference(NamedTuple):
    """An instance that the code does not fit.

    >>> Difference("42:7", "FlowError: step fetch had …", [])
    Difference(flow='42:7', problem='FlowError: step fetch had …', unused=[])
    """

    flow: str
    # What the code does with the instance: an error that names the step and both hashes, or that it ends.
    problem: str
    # The steps that it has taken, and that the code did not ask for up to there.
    unused: list[str]


class Checked(NamedTuple):
    """How many instances were replayed, and those that the code does not fit.

    >>> Checked(2, [])
    Checked(instances=2, differences=[])
    """

    instances: int
    differences: list[Difference]


def check(job: FlowJob[Any], flows: tuple[str | Handle[Any], ...], version: str | None) -> Checked:
    """Replays these instances, or those of a version that have not ended."""
    app = job.app
    kind = job.name if version is None else f"{job.flow_name}@{version}" if version else job.flow_name
    named = map(str, flows) if flows else (row.id for row in app.find(job=kind, states=OPEN))
    count = 0
    differences: list[Difference] = []
    for portion in replayed(job, named):
        count += len(portion)
        differences.extend(difference for difference in portion if difference is not None)
    return Checked(count, differences)


def replayed(job: FlowJob[Any], flows: Iterable[str], *, skips_deleted: bool = False) -> Iterator[list[Difference | None]]:
    """Replays instances, a request at a time: of each instance the difference, or None where the code fits it. Those that are deleted
    meanwhile are an error, or are left out."""
    named = iter(flows)
    left: list[str] = []
    while portion := left + list(itertools.islice(named, MEMOS_PER_REQUEST - len(left))):
        answer = ask(job.app.engine(), "flow_memos", {"jobs": portion}, is_optional=skips_deleted)
        if answer is None:
            portion = [flow for flow in portion if job.app.details(flow) is not None]
            answer = ask(job.app.engine(), "flow_memos", {"jobs": portion})
        # Those for which the answer had no room.
        left = answer.get("left", [])
        yield [_replayed(job, kept) for kept in answer["flows"]]


def _replayed(job: FlowJob[Any], kept: dict[str, Any]) -> Difference | None:
    flow = (AsyncFlow if job.is_coroutine else PlainFlow)(job.program(), [], [], kept["job"])
    try:
        flow = (AsyncFlow if job.is_coroutine else PlainFlow)(job.program(), kept["memos"], kept["outcomes"], kept["job"])
        flow.stops = []
        value = flow.run(kept["payload"])
    except KeyboardInterrupt:
        raise
    except Suspended:
        value = None
    except BaseException as error:
        return Difference(kept["job"], f"{type(error).__name__}: {error}", flow.unused())
    if flow.stops:
        # A check does not run what makes a new value. Where the code has not asked for all steps, nobody knows whether it will.
        unused = flow.unused()
        problem = f"it is not verified beyond {flow.stops[0]}, which a check does not run"
        return Difference(kept["job"], problem, unused) if unused else None
    # An instance that waits for no step has not run yet, or has just begun anew.
    if type(value) is Suspension or kept["state"] == "completed" or not _awaits_steps(flow):
        return None
    return Difference(kept["job"], "it ends, where it waited", flow.unused())


def _awaits_steps(flow: Any) -> bool:
    """Reports whether an instance waits for steps that it has begun."""
    return any(record is not None for record in flow._owners)
