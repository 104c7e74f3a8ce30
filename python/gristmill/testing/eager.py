"""An engine that runs each job when it is submitted, and stores nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import inspect
import json
import sys
import threading
import traceback
import types
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._batch import BatchJob
from .._errors import StoreError
from .._flow.job import FlowJob
from .._items.portions import encoded
from .._job import Job
from .._operations.records import positions_of
from .._values import to_plain
from .flows import Instance

if TYPE_CHECKING:
    from .._app import App

# Jobs that one engine remembers; a test that submits more should not be eager.
JOBS_MAX = 100_000

Ended = tuple[str, str | None, tuple[str, str, str | None] | None]
# The name by which a running job finds what its process offers.
_OFFERED = "_gristmill_process"


class EagerEngine:
    """The jobs that were run, by id, with the payloads that they had."""

    def __init__(self, app: App, replaced: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._app = app
        # Functions that run instead of jobs, by kind.
        self._replaced = replaced or {}
        self._batches: list[list[tuple[str, str, Ended]]] = []
        # Instances of flows that wait for an event, by id.
        self._instances: dict[tuple[int, int], Instance] = {}
        self._count = 0
        # Of the family that runs: the batches that have not begun.
        self._siblings: list[dict[str, Any]] = []
        # To be sent to the instance of a flow that begins.
        self._events: Iterable[tuple[Any, str, Any]] = ()

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise StoreError(f"`{name}` is not for an eager application, which stores nothing: use gristmill.testing.temporary_store")

    def submit_one(self, common: dict[str, Any], payload: Any, to_plain: Callable[[Any], Any]) -> tuple[int, int]:
        return self._run_all(common, [payload], to_plain)[0], 0

    def submit_keyed(self, common: dict[str, Any], payloads: list[str], keys: list[str], unique: str) -> list[tuple[int, int]]:
        batch, count = self._run_all(common, map(json.loads, payloads), to_plain)
        return [(batch, position) for position in range(count)]

    def submit_many(
        self,
        common: dict[str, Any],
        payloads: Iterable[Any],
        to_plain: Callable[[Any], Any],
        stored: list[tuple[int, ...]],
    ) -> None:
        stored.append(self._run_all(common, payloads, to_plain))

    def _run_all(
        self, common: dict[str, Any], payloads: Iterable[Any], to_plain: Callable[[Any], Any]
    ) -> tuple[int, int]:
        batch: list[tuple[str, str, Ended]] = []
        self._batches.append(batch)
        number = len(self._batches)
        prerequisites = self._outcomes_of(common.get("after", ()))
        for payload in payloads:
            self._count += 1
            if self._count > JOBS_MAX:
                raise StoreError(f"over {JOBS_MAX} jobs in an eager application: use gristmill.testing.temporary_store")
            text = encoded(payload, to_plain)
            job = types.SimpleNamespace(
                id=f"{number}:{len(batch)}",
                attempt=1,
                batch=number,
                kind=common["kind"],
                queue=common["queue"],
                key=None,
                group=json.loads(common["options"]).get("group"),
                tags=dict(common["tags"]),
                deadline=None,
                traceparent=None,
                flow=common.get("flow"),
                prerequisites=copy.deepcopy(prerequisites),
            )
            batch.append((common["kind"], text, self._run(common, text, job, to_plain)))
        return number, len(batch)

    def _outcomes_of(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """The outcomes of jobs, which are named as prerequisites: "42" is a batch, "42:0-4,7" are jobs of it."""
        outcomes: list[dict[str, Any]] = []
        for name in names:
            batch, _, positions = name.partition(":")
            number = int(batch)
            known = len(self._batches[number - 1]) if 1 <= number <= len(self._batches) else 0
            named = positions_of(positions) if positions else range(known)
            outcomes.extend(_outcome(number, position, self._ended(number, position)) for position in named)
        return outcomes

    # --- flows ---

    def submit_flow(self, common: dict[str, Any], payload: Any, events: Iterable[tuple[Any, str, Any]]) -> tuple[int, int]:
        """Runs an instance of a flow to which these events are sent: when, by what name, and with which value."""
        self._events = events
        return self._run_all(common, [payload], to_plain)[0], 0

    def send_event(self, batch: int, position: int, name: str, value: str) -> bool:
        """Sends an event to an instance that waits for one; whether it had not ended."""
        instance = self._instances.get((batch, position))
        if instance is None:
            self._ended(batch, position)
            return False
        instance.send_event(name, json.loads(value))
        ended = instance.proceed()
        if ended is not None:
            del self._instances[batch, position]
            kind, text, _ = self._batches[batch - 1][position]
            self._batches[batch - 1][position] = (kind, text, ended)
        return True

    def awaited(self, batch: int, position: int) -> str:
        """For which events an instance waits."""
        names = [child.event for child in self._instances[batch, position].children if child.is_open]
        return " and ".join(f"the event {name!r}" for name in names)

    def _run_flow(self, common: dict[str, Any], text: str, job: Any, defined: Any) -> Ended:
        """Runs an instance of a flow. One that waits for an event is blocked until it is sent."""

        def execute(batch: dict[str, Any], payload: str) -> Ended:
            own = self._job_of(batch["kind"])
            options = json.dumps({**(own.options or {"retry": {"attempts_max": 1}}), **(batch.get("options") or {})})
            tags = [*(batch.get("tags") or dict(common["tags"])).items()]
            name, key, item = instance.running.step if instance.running and instance.running.step else (None, None, None)
            flow = types.SimpleNamespace(id=job.id, name=defined.flow_name, version=defined.version, step=name, key=key, item=item)
            child = {
                **common,
                "flow": flow,
                "after": (),
                "kind": batch["kind"],
                "queue": batch.get("queue") or common["queue"],
                "options": options,
                "tags": tags,
            }
            number, _ = self._run_all(child, [json.loads(payload)], to_plain)
            ended = self._ended(number, 0)
            if ended[0] == "blocked":
                raise StoreError(
                    f"the flow {batch['kind']} waits for {self.awaited(number, 0)}, which nobody sends to a child flow in memory"
                )
            return ended

        events, self._events = self._events, ()
        attempts_max: int = json.loads(common["options"])["retry"]["attempts_max"]
        instance = Instance(defined, text, execute, job.id, attempts_max)
        for after, name, value in events:
            instance.send_event(name, value, after)
        with _offering(job):
            ended = instance.proceed()
        if ended is None:
            self._instances[job.batch, int(job.id.partition(":")[2])] = instance
            return "blocked", None, None
        return ended

    def _run(self, common: dict[str, Any], text: str, job: Any, to_plain: Callable[[Any], Any]) -> Ended:
        defined = self._job_of(common["kind"])
        if isinstance(defined, FlowJob):
            return self._run_flow(common, text, job, defined)
        attempts_max = json.loads(common["options"])["retry"]["attempts_max"]
        while True:
            try:
                with _offering(job):
                    value = _call(defined, json.loads(text))
                    while isinstance(value, Spawn):
                        outcomes = self._run_children(common, value, job, to_plain)
                        value = _finalized(defined, json.loads(text), value, outcomes)
                if isinstance(value, Done):
                    # By default they are of the job's own kind, and not of their parent's.
                    self._siblings.extend({**batch, "kind": batch.get("kind") or common["kind"]} for batch in value.batches)
                    value = value.value
                return "completed", encoded(value, to_plain), None
            except Exception as error:
                if job.attempt < attempts_max and not getattr(error, "permanent", False):
                    job.attempt += 1
                    continue
                trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
                return "dead", None, (type(error).__name__, str(error), trace)

    def _run_children(self, common: dict[str, Any], spawn: Spawn, job: Any, to_plain: Callable[[Any], Any]) -> list[dict[str, Any]]:
        """Runs the children of a job, and the siblings that they spawn; their outcomes."""
        before, self._siblings = self._siblings, list(spawn.batches)
        outcomes: list[dict[str, Any]] = []
        try:
            while self._siblings:
                batch = self._siblings.pop(0)
                kind = batch.get("kind") or common["kind"]
                own: dict[str, Any] = {} if kind == common["kind"] else self._job_of(kind).options
                options = json.dumps({**json.loads(common["options"]), **own, **(batch.get("options") or {})})
                tags = [*(batch.get("tags") or dict(common["tags"])).items()]
                queue = batch.get("queue") or common["queue"]
                number, count = self._run_all(
                    {**common, "flow": None, "after": (), "kind": kind, "queue": queue, "options": options, "tags": tags},
                    batch["payloads"],
                    to_plain,
                )
                outcomes.extend(_outcome(number, position, self._ended(number, position)) for position in range(count))
        finally:
            self._siblings = before
        return outcomes

    def _job_of(self, kind: str) -> Any:
        if kind in self._replaced:
            replaced: Job[..., Any] = Job(self._app, self._replaced[kind], kind, "default", {})
            return replaced
        defined = self._app.jobs.get(kind)
        if defined is None:
            raise StoreError(f"the application has no job {kind!r}, and an eager one runs its jobs itself")
        return defined

    def _ended(self, batch: int, position: int) -> Ended:
        if not (1 <= batch <= len(self._batches) and position < len(self._batches[batch - 1])):
            raise StoreError(f"job {batch}:{position} does not exist")
        return self._batches[batch - 1][position][2]

    def wait_job(self, batch: int, position: int, timeout: float | None = None) -> Ended:
        ended = self._ended(batch, position)
        if ended[0] == "blocked":
            raise StoreError(f"the flow {batch}:{position} waits for {self.awaited(batch, position)}: send it, and then ask")
        return ended

    def watch_job(self, batch: int, position: int, told: Callable[..., object]) -> None:
        told(*self._ended(batch, position))

    def job_state(self, batch: int, position: int) -> str:
        return self._ended(batch, position)[0]

    def job_log(self, batch: int, position: int) -> None:
        return None

    def cancel_jobs(self, jobs: list[tuple[int, int]]) -> int:
        return 0

    def begin_cleanups(self) -> int:
        return 0

    def waiting_kinds(self) -> list[str]:
        return []

    def counts(self, queue: str | None = None) -> dict[str, int]:
        counts = {"completed": 0, "dead": 0, "blocked": 0}
        for batch in self._batches:
            for _, _, (state, _, _) in batch:
                counts[state] += 1
        return counts

    def payloads(self, kind: str) -> list[str]:
        return [text for batch in self._batches for of_kind, text, _ in batch if of_kind == kind]

    def outcomes(self, batch: int) -> list[tuple[Any, ...]]:
        pieces: list[tuple[Any, ...]] = []
        for position, (_, _, (state, value, error)) in enumerate(self._batches[batch - 1]):
            if state == "completed":
                pieces.append(("values", batch, [(position, position + 1)], f"[{value}]"))
            else:
                pieces.append(("failed", batch, [(position, state, error)]))
        return pieces


@dataclasses.dataclass
class Spawn:
    """What a job returns that spawns children."""

    batches: list[dict[str, Any]]
    memo: Any
    on_failure: str


@dataclasses.dataclass
class Done:
    """A value with siblings."""

    value: Any
    batches: list[dict[str, Any]]


class ChildFailed(Exception):
    """A child did not complete, and no finalizer decides what that means."""

    permanent = True


def _outcome(batch: int, position: int, ended: Ended) -> dict[str, Any]:
    state, value, error = ended
    outcome: dict[str, Any] = {"job": f"{batch}:{position}", "state": state}
    if value is not None:
        outcome["value"] = json.loads(value)
    if error is not None:
        outcome["error"] = {"type": error[0], "message": error[1], "traceback": error[2]}
    return outcome


def _finalized(job: Any, payload: Any, spawn: Spawn, outcomes: list[dict[str, Any]]) -> Any:
    finalize = job.finalizing()
    if finalize is None or spawn.on_failure == "fail":
        for outcome in outcomes:
            if outcome["state"] != "completed":
                raise ChildFailed(f"job {outcome['job']}, a child of it, ended as {outcome['state']}")
    return None if finalize is None else _awaited(finalize(payload, spawn.memo, outcomes))


def _call(job: Any, payload: Any) -> Any:
    if isinstance(job, BatchJob):
        payloads = [payload] if job.shape.payloads is None else job.shape.payloads([payload])  # type: ignore[attr-defined]
        results = _awaited(job(payloads))
        if len(results) != 1:
            raise TypeError(f"the batch handler returned {len(results)} results for 1 payload: return one for each")
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]
    return _awaited(job.entry()(payload))


def _awaited(value: Any) -> Any:
    """A value, or what a coroutine returns, which a loop of its own runs: the caller may be in one."""
    if not inspect.isawaitable(value):
        return value
    ended: list[Any] = []

    async def run() -> None:
        try:
            ended.extend([True, await value])
        except BaseException as error:
            ended.extend([False, error])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    if not ended[0]:
        raise ended[1]
    return ended[1]


@contextlib.contextmanager
def _offering(job: Any) -> Generator[None, None, None]:
    """Lets `gristmill.job()` answer as in a worker's process."""
    before = sys.modules.get(_OFFERED)
    offered = types.ModuleType(_OFFERED)
    offered.job = lambda: job  # type: ignore[attr-defined]
    offered.progress = lambda *told: None  # type: ignore[attr-defined]
    offered.spawn = Spawn  # type: ignore[attr-defined]
    offered.done = Done  # type: ignore[attr-defined]
    sys.modules[_OFFERED] = offered
    try:
        yield
    finally:
        if before is None:
            del sys.modules[_OFFERED]
        else:
            sys.modules[_OFFERED] = before
