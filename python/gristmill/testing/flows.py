"""Flows in memory: the reference of what a store does with them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from .._flow.memo import ENDED
from .._flow.replay import Suspension
from .._spans import milliseconds
from .clock import BEGINNING

if TYPE_CHECKING:
    from .._flow.job import FlowJob
    from .._options import Span

# How a job ended: its state, its value as JSON, and its error's type, message and traceback.
Ended = tuple[str, "str | None", "tuple[str, str, str | None] | None"]
# Runs a child: the batch that it is in, and its payload as JSON.
Execute = Callable[[dict[str, Any], str], Ended]

# How often one instance begins anew in memory, where no time passes.
ROUNDS_MAX = 10_000


class Child:
    """A child of an instance: a step, or an event or a time for which it waits."""

    def __init__(self, id: str, batch: dict[str, Any], payload: Any, now_ms: int) -> None:
        self.batch = batch
        self.payload = payload
        self.is_job = "event" not in batch
        self.event: str | None = batch.get("event")
        self.until_ms: int | None = batch.get("until_ms")
        if "delay_ms" in batch:
            self.until_ms = now_ms + batch["delay_ms"]
        self.outcome: dict[str, Any] = {"job": id, "state": "waiting"}
        # Whether the event that it got has gone back.
        self.is_returned = False
        # The name and the key of its step, and its number among the items of a map.
        self.step: tuple[str, str | None, int | None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.outcome["state"] not in ENDED

    def end(self, state: str, value: Any = None, error: tuple[str, str, str | None] | None = None) -> None:
        """It ends so."""
        self.outcome["state"] = state
        if state == "completed":
            self.outcome["value"] = value
        if error is not None:
            self.outcome["error"] = {"type": error[0], "message": error[1], "traceback": error[2]}


def _steps_of(entries: Iterable[Any]) -> Iterator[tuple[str, str | None, int | None]]:
    """The step of each child, from the entries of a memo: a name, a hash, and perhaps a key and a number of items."""
    for entry in entries:
        name, key = entry[0], entry[2] if len(entry) > 2 else None
        if len(entry) < 4:
            yield name, key, None
        else:
            yield from ((name, key, item) for item in range(entry[3]))


class Instance:
    """An instance of a flow in memory. Its time stands still while it runs, and skips over sleeps."""

    def __init__(
        self,
        job: FlowJob[Any],
        payload: str,
        execute: Execute,
        id: str = "1:0",
        attempts_max: int = 1,
        choose: Callable[[list[Child]], Child] = lambda children: children[0],
    ) -> None:
        self.job = job
        self.payload = payload
        self.execute = execute
        self.id = id
        self.attempts_max = self.attempts_left = attempts_max
        self.choose = choose
        self.now_ms = round(BEGINNING.timestamp() * 1000)
        self.memos: list[str] = []
        self.children: list[Child] = []
        self.told = 0
        self.wake = "all"
        self.is_begun = False
        self.inbox: list[tuple[str, Any]] = []
        self.scheduled: list[tuple[int, str, Any]] = []
        # The child that runs.
        self.running: Child | None = None
        self.ended: Ended | None = None
        self.runs = 0
        self.rounds = 0

    def send_event(self, name: str, value: Any = None, after: Span | None = None) -> None:
        """Sends an event, now or after a span."""
        if after is None:
            self.inbox.append((name, value))
        else:
            self.scheduled.append((self.now_ms + milliseconds(after), name, value))

    def proceed(self, skips_time: bool = True) -> Ended | None:
        """Runs until it ends; None where it waits for an event that was not sent."""
        while self.ended is None:
            if self._is_awake():
                self._run()
            elif not (self._take_event() or self._run_child() or skips_time and self._skip_time()):
                return None
        return self.ended

    def _is_awake(self) -> bool:
        count = sum(not child.is_open for child in self.children)
        return not self.is_begun or self.wake == "anew" or (count == len(self.children) if self.wake == "all" else count > self.told)

    def _run(self) -> None:
        self.runs += 1
        self.told = sum(not child.is_open for child in self.children)
        memos = [json.loads(memo) for memo in self.memos]
        outcomes = json.loads(json.dumps([child.outcome for child in self.children]))
        from .._flow.loop import run

        program = self.job.program()
        try:
            value = run(program, self.job.is_coroutine, json.loads(self.payload), memos, outcomes, self.id, self.now_ms)
            if type(value) is not Suspension:
                self.ended = "completed", program.encode(value), None
                return
        except Exception as error:
            self.attempts_left -= 1
            if self.attempts_left <= 0 or getattr(error, "permanent", False):
                trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
                self.ended = "dead", None, (type(error).__name__, str(error), trace)
            return
        self.is_begun = True
        suspended: dict[str, Any] = json.loads(value.text)
        given_up = suspended.get("given_up", ())
        for child in reversed(self.children):
            is_unread = child.outcome["job"] in given_up and child.outcome["state"] == "completed" and not child.is_returned
            if child.event is not None and is_unread:
                child.is_returned = True
                self.inbox.insert(0, (child.event, child.outcome["value"]))
        if suspended["wake"] == "anew":
            self.rounds += 1
            if self.rounds > ROUNDS_MAX:
                raise RuntimeError(
                    f"the flow {self.job.name} has begun anew {ROUNDS_MAX:,} times (ROUNDS_MAX) without ending: send it an event that"
                    " ends it, or let a step end it"
                )
            self.memos.clear()
            self.children.clear()
            self.attempts_left = self.attempts_max
        self.memos.append(json.dumps(suspended["memo"][0]))
        self.wake = suspended["wake"]
        for child in self.children:
            if child.is_open and child.outcome["job"] in given_up:
                child.end("cancelled")
                self.told += 1
        steps = _steps_of(suspended["memo"][0].get("steps", ()))
        for batch in suspended["children"]:
            for payload in batch["payloads"]:
                child = Child(f"{self.id.partition(':')[0]}:{len(self.children) + 1}", batch, payload, self.now_ms)
                child.step = next(steps)
                self.children.append(child)

    def _take_event(self) -> bool:
        for place, (name, value) in enumerate(self.inbox):
            for child in self.children:
                if child.is_open and not child.is_job and child.event == name:
                    del self.inbox[place]
                    child.end("completed", value)
                    return True
        return False

    def _run_child(self) -> bool:
        ready = [child for child in self.children if child.is_open and child.is_job]
        if not ready:
            return False
        child = self.running = self.choose(ready)
        state, value, error = self.execute(child.batch, json.dumps(child.payload))
        child.end(state, None if value is None else json.loads(value), error)
        return True

    def _skip_time(self) -> bool:
        due = [child.until_ms for child in self.children if child.is_open and child.until_ms is not None]
        due += [at_ms for at_ms, _, _ in self.scheduled]
        if not due:
            return False
        self.now_ms = max(self.now_ms, min(due))
        for event in sorted(event for event in self.scheduled if event[0] <= self.now_ms):
            self.scheduled.remove(event)
            self.inbox.append(event[1:])
        while self._take_event():
            pass
        for child in self.children:
            if child.is_open and child.until_ms is not None and child.until_ms <= self.now_ms:
                child.end("expired")
        return True


def run_flow(
    flow: FlowJob[Any],
    *arguments: Any,
    events: Mapping[str, Any] | Iterable[tuple[Span, str, Any]] = (),
    steps: Mapping[Any, Callable[..., Any]] | None = None,
    **named: Any,
) -> Any:
    """Runs a flow here, in memory, step by step, and returns its result. Time skips over sleeps.

    `events`: values by name, which are sent before it begins, or tuples of when (a span from the beginning), name and value.
    `steps`: functions that run instead of jobs, by the jobs or the names of their kinds.

    >>> @app.flow
    ... async def approved(flow, number: int) -> int | None:
    ...     first = await flow.first(flow.event("approve"), flow.sleep("2d"))
    ...     return await flow.step(double, number) if first.name == "approve" else None
    >>> run_flow(approved, 21), run_flow(approved, 21, events={"approve": None})
    (None, 42)
    >>> run_flow(approved, 21, events=[("1d", "approve", None)], steps={double: lambda number: number + 1})
    22
    """
    from .._handle import Handle
    from .eager import EagerEngine

    replaced = {getattr(step, "name", step): function for step, function in (steps or {}).items()}
    engine = EagerEngine(flow.app, replaced)
    common = flow.common()
    payload = flow.shape.payload(arguments, named)
    sent: list[tuple[Any, str, Any]] = []
    if isinstance(events, Mapping):
        sent.extend((None, name, value) for name, value in cast("Mapping[str, Any]", events).items())
    else:
        sent.extend(events)
    batch, position = engine.submit_flow(common, payload, sent)
    if engine.job_state(batch, position) == "blocked":
        raise RuntimeError(
            f"the flow {flow.name} waits for {engine.awaited(batch, position)}, which nobody sends: give events={{name: value}},"
            " or a timeout"
        )
    handle: Handle[Any] = Handle(flow.app, batch, position, flow)
    return handle.concluded(engine.wait_job(batch, position))
