"""A flow's instance: its memo, the identity of its steps, and what it waits for.

An instance runs from its beginning each time that something which it awaited has ended. Steps that have ended give their kept
outcomes; then the instance goes on, and answers with its value or with what it waits for next.

Needs nothing of the package but `memo`: the runtime gives the same text to scripts. Python 3.8 and newer.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections import namedtuple
from typing import Any, Callable, Iterable, NoReturn

from .memo import ENDED, SLEEP, FlowError, Prepared, Record, checked, counted, entry_of, gives_up
from .memo import grouped, make_encoder, only, run_here, runs_of, shown, traceback_of

# Steps of one instance, over its whole life, and those that are open at once.
STEPS_MAX = 1_000_000
STEPS_OPEN_MAX = 250_000
# Bytes that one suspension keeps of names, keys and values: the store's limit of a memo.
MEMO_BYTES_MAX = 1 << 20
EVENT_NAME_BYTES_MAX = 200

# The fraction of a whole number, in JSON; the same text in a string may be taken for it.
_FRACTION_ZERO = re.compile(r"(\d)\.0(?=[,\]}]|$)")

NOW, SEED = "@now", "@seed"

Winner = namedtuple("Winner", ("name", "value", "index"))  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]


class Suspended(BaseException):
    """Unwinds a flow that waits. A `finally` on the way runs."""


class Suspension:
    """The answer of an instance that waits: the children that it spawns, and its memo, as JSON."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Program:
    """A flow's function and its surroundings."""

    def __init__(
        self,
        name: str,
        version: str | None,
        function: Callable[[Any, Any], Any],
        prepare: Callable[..., Any],
        failed: Callable[..., BaseException],
        default: Callable[[Any], Any] | None = None,
        seconds: Callable[[Any], float] = float,
        convert_local: Callable[[Any], Callable[[Any], Any] | None] | None = None,
        payload_of: Callable[..., Any] | None = None,
        cleanup_ms: int | None = None,
    ) -> None:
        self.name = name
        self.version = version
        # Called with the flow and the payload.
        self.function = function
        # Makes a `Prepared` from the arguments of a step, and one for each item of a map.
        self.prepare = prepare
        # Makes the exception of a failed step: step, key, job, state, error.
        self.failed = failed
        self.encode, self.encode_sorted = make_encoder(default, False), make_encoder(default, True)
        self.seconds = seconds
        self.convert_local = convert_local
        # Makes a payload of the flow's arguments.
        self.payload_of = payload_of or only
        # What each suspension says of a cleanup.
        self.cleanup = "" if cleanup_ms is None else f',"cleanup_ms":{cleanup_ms}'

    def canonical(self, text: str) -> str:
        """The JSON of a payload as it is hashed: in the order of members, and with whole numbers without a fraction, since a flow in
        JavaScript cannot tell them."""
        if "{" in text:
            text = self.encode_sorted(json.loads(text))
        return _FRACTION_ZERO.sub(r"\1", text) if ".0" in text else text


class Flow:
    """What a flow's function gets first: its steps, and all that an instance may know of the world.

    Each step has an identity: the name of its job (or `name=`), its `key=`, and its number among those of the same name and key.
    Code between steps may change; the identity of a step that has begun may not change its arguments.

    >>> @app.flow
    ... async def quadruple(flow, number: int) -> int:
    ...     doubled = await flow.step(double, number)
    ...     return await flow.step(double, doubled)
    >>> from gristmill.testing import run_flow
    >>> run_flow(quadruple, 4)
    16
    """

    def __init__(self, program: Program, memos: list[Any], outcomes: list[Any], job: str | None, now_ms: int | None = None) -> None:
        self._program = program
        begun: dict[str, Any] = memos[0].get("begin") or {} if memos else {}
        if begun:
            memos = begun.get("memos", []) + memos[1:]
            outcomes = begun.get("outcomes", []) + outcomes
        self._begun = begun
        # What the instance begins anew with, as JSON.
        self._next: str | None = None
        self._memos = memos
        self._outcomes = outcomes
        self._now_ms = now_ms
        # One that cleans up goes on as the cancelled one, whose id the code may have used. Nothing cleans up after it.
        self._cleans_up = "cancelled" in begun
        self._job = begun["cancelled"] if self._cleans_up else job
        self._cleanup = "" if self._cleans_up else program.cleanup
        # How many children it had when it was cancelled, and how many ends it had been told of.
        self._before_cancel = (0, 0)
        self.name = program.name
        self.version = program.version
        self._known: dict[Any, Record] = {}
        self._owners: list[Record | None] = [None] * len(outcomes)
        self._values: dict[Any, list[Any]] = {}
        self._seed: int | None = None
        self._seeds_taken = 0
        self._told = 0
        # The content of the next suspension.
        self._fresh: list[Record] = []
        # Steps that were cancelled before they began, which the code has asked for again.
        self._revived: list[Record] = []
        self._new_values: list[Any] = []
        self._new_seed: int | None = None
        self._time_ms: int | None = None
        # The waits for events that the code has asked for, without those that it has read.
        self._waits: list[Record] = []
        # Whether the flow is being unwound: nothing begins then.
        self._is_over = False
        # The new values before which a mere replay has stopped.
        self.stops: list[str] | None = None
        if memos:
            self._read()

    @property
    def id(self) -> str | None:
        """The id of the instance's job.

        >>> @app.flow
        ... async def identify(flow) -> str:
        ...     return flow.id
        >>> from gristmill.testing import run_flow
        >>> run_flow(identify)
        '1:0'
        """
        return self._job

    @property
    def continued(self) -> int:
        """How often the instance has begun anew, by `continue_with`.

        >>> @app.flow
        ... async def first_round(flow) -> int:
        ...     return flow.continued
        >>> from gristmill.testing import run_flow
        >>> run_flow(first_round)
        0
        """
        return int(self._begun.get("count", 0))

    # --- the memo ---

    def _read(self) -> None:
        known, owners = self._known, self._owners
        end = len(owners)
        for memo in reversed(self._memos):
            for entry in reversed(memo.get("steps", ())):
                name, key = entry[0], entry[2] if len(entry) > 2 else None
                count = entry[3] if len(entry) > 3 else None
                identity = name if key is None else (name, key)
                end -= 1 if count is None else count
                record = Record(name, entry[1], key, count, end, known.get(identity))
                if count is None:
                    owners[end] = record
                else:
                    owners[end : end + count] = [record] * count
                known[identity] = record
            for entry in reversed(memo.get("values", ())):
                name, key = entry[0], entry[2] if len(entry) > 2 else None
                self._values.setdefault(name if key is None else (name, key), []).append(entry)
            if "seed" in memo:
                self._seed = memo["seed"]
        if end:
            raise FlowError(
                f"the memo of flow {self.name} has {len(owners) - end} steps, and the store has {len(owners)} children of it:"
                " this instance was begun by another version of Gristmill"
            )

    def _untold(self) -> list[int]:
        """The children that have ended since the last suspension. A check goes as far as the instance has been told."""
        if self.stops is not None:
            return []
        outcomes = self._outcomes
        return [index for index, owner in enumerate(self._owners) if owner is not None and outcomes[index]["state"] in ENDED]

    def unused(self) -> list[str]:
        """The steps of the memo that the code has not asked for yet.

        >>> @app.flow
        ... async def tidy(flow) -> list[str]:
        ...     await flow.step(double, 1)
        ...     return flow.unused()
        >>> from gristmill.testing import run_flow
        >>> run_flow(tidy)
        []
        """
        left: list[Record] = []
        for record in self._known.values():
            one: Record | None = record
            while one is not None:
                left.append(one)
                one = one.next
        return [shown(one.name, one.key) for one in sorted(left, key=lambda one: one.first)]

    def _deliver(self, index: int) -> None:
        """Tells the code that a child has ended."""
        record = self._owners[index]
        if record is None:
            return
        self._owners[index] = None
        record.missing -= 1
        if record.missing == 0:
            self._told += 1
            record.order = self._told
            if record.promise is not None:
                self._settle(record)

    def _deliver_before_cancel(self, spawned: int) -> None:
        """Tells the code of those of so many children that had ended when the flow was cancelled."""
        for index in range(spawned):
            if self._owners[index] is not None and self._outcomes[index]["state"] != "cancelled":
                self._deliver(index)

    def _outcome(self, record: Record) -> tuple[Any, BaseException | None]:
        """The value of a step that has ended, or its exception."""
        if record.count is not None:
            return self._outcomes_of_map(record)
        outcome = self._outcomes[record.first]
        state = outcome["state"]
        if state == "completed":
            value = outcome.get("value")
            return (value if record.convert is None else record.convert(value)), None
        if state == "expired" and record.name[:1] == "@":
            if record.name == SLEEP:
                return None, None
            return None, TimeoutError(f"the event {record.name[1:]!r} was not sent in time")
        return None, self._failure(record, outcome)

    def _failure(self, record: Record, outcome: Any) -> BaseException:
        return self._program.failed(record.name, record.key, outcome.get("job"), outcome["state"], outcome.get("error"))

    def _outcomes_of_map(self, record: Record) -> tuple[Any, BaseException | None]:
        assert record.count is not None
        ended = self._outcomes[record.first : record.first + record.count]
        convert = record.convert
        values: list[Any] = []
        collects = record.collects
        for outcome in ended:
            if outcome["state"] == "completed":
                value = outcome.get("value")
                values.append(value if convert is None else convert(value))
            elif collects:
                values.append(self._failure(record, outcome))
            else:
                return None, self._failure(record, outcome)
        return values, None

    # --- what the code asks for ---

    def _take(self, name: str, key: str | None, hash: int | None, count: int | None) -> Record | None:
        """The step of the memo that has this identity, if there is one."""
        identity = name if key is None else (name, key)
        record = self._known.get(identity)
        if record is None:
            return None
        if record.count == 0:
            record.is_dropped = True
            self._revived.append(record)
        elif hash is not None and (record.hash != hash or record.count != count):
            raise self._differs(record, hash, count)
        if record.next is None:
            del self._known[identity]
        else:
            self._known[identity] = record.next
        return record

    def _differs(self, record: Record, hash: int, count: int | None) -> FlowError:
        place = shown(record.name, record.key)
        number = 1 + sum(
            entry[0] == record.name and (entry[2] if len(entry) > 2 else None) == record.key
            for memo in self._memos
            for entry in memo.get("steps", ())
        )
        one: Record | None = record
        while one is not None:
            number -= 1
            one = one.next
        if record.count != count:
            what = f"had {counted(record.count)}, and the code now gives it {counted(count)}"
        else:
            what = f"had arguments of the hash {record.hash:08x}, and the code now gives it some of the hash {hash:08x}"
        return FlowError(
            f"step {place}, number {number} of its name, of flow {shown(self.name, self.version, '@')} {what}: the instance has begun"
            " this step. Give the steps of a loop or a branch key=, give the changed flow another version=, or begin new instances"
            " from before the step by `gristmill flow fork`"
        )

    def _begin(self, name: str, key: str | None, hash: int, count: int | None, head: str, payloads: str) -> Record:
        if self._is_over:
            raise Suspended
        record = Record(name, hash, key, count, -1, None)
        record.head = head
        record.payloads = payloads
        self._fresh.append(record)
        return record

    def step(self, job: Any, *arguments: Any, name: str | None = None, key: str | None = None, **options: Any) -> Any:
        """Begins a job, of this application or, by the name of its kind, of other workers; awaiting it gives its result. A flow is
        a job. What is left of its failures is raised as `StepFailed`. Options are those of the job, for this step.

        >>> @app.flow
        ... async def both(flow, number: int) -> list[int]:
        ...     first, second = flow.step(double, number), flow.step(double, number + 1, key="second", priority=1)
        ...     return [await first, await second]
        >>> from gristmill.testing import run_flow
        >>> run_flow(both, 4)
        [8, 10]
        """
        prepared: Prepared = self._program.prepare(job, arguments, options)
        text = prepared.payload
        name = prepared.label if name is None else checked("name", name)
        if key is not None:
            checked("key", key)
        hash = zlib.crc32(self._program.canonical(text).encode("utf-8", "surrogatepass"))
        record = self._take(name, key, hash, None)
        if record is None:
            record = self._begin(name, key, hash, None, prepared.head, text)
        record.convert = prepared.convert
        return self._promise(record)

    def map(
        self,
        job: Any,
        items: Iterable[Any],
        *,
        name: str | None = None,
        key: str | None = None,
        return_exceptions: bool = False,
        **options: Any,
    ) -> Any:
        """Begins a job for each item; awaiting it gives the results in the items' order, once all have ended. The first failed one
        raises `StepFailed`, or with `return_exceptions` stands in its place. It is one step with one identity.

        >>> @app.flow
        ... async def total(flow, numbers: list[int]) -> int:
        ...     return sum(await flow.map(double, numbers))
        >>> from gristmill.testing import run_flow
        >>> run_flow(total, [1, 2, 3])
        12
        """
        payloads: list[str] = []
        sorted_payloads: list[str] = []
        prepared: Any = None
        for prepared in self._program.prepare(job, items, options, True):
            text: str = prepared.payload
            payloads.append(text)
            sorted_payloads.append(self._program.canonical(text))
            if len(payloads) > STEPS_OPEN_MAX:
                raise FlowError(f"a map of over {STEPS_OPEN_MAX:,} items (STEPS_OPEN_MAX): map portions of them, one after the other")
        if prepared is None:
            return self._known_value("map", [])
        label: str = prepared.label if name is None else checked("name", name)
        if key is not None:
            checked("key", key)
        hash = zlib.crc32(",".join(sorted_payloads).encode("utf-8", "surrogatepass"))
        record = self._take(label, key, hash, len(payloads))
        if record is None:
            record = self._begin(label, key, hash, len(payloads), prepared.head, ",".join(payloads))
        record.convert = prepared.convert
        record.collects = return_exceptions
        return self._promise(record)

    def event(self, name: str, *, timeout: Any = None) -> Any:
        """Waits for an event that is sent to this instance; gives its value. One that was sent before is kept. Raises
        `TimeoutError` after `timeout`.

        >>> @app.flow
        ... async def approved(flow) -> str:
        ...     return await flow.event("approve", timeout="2d")
        >>> from gristmill.testing import run_flow
        >>> run_flow(approved, events={"approve": "by Ada"})
        'by Ada'
        """
        checked("the name of an event", name)
        if len(name.encode()) > EVENT_NAME_BYTES_MAX:
            raise FlowError(f"an event's name of over {EVENT_NAME_BYTES_MAX} bytes")
        limit = "" if timeout is None else f',"delay_ms":{self._milliseconds(timeout)}'
        return self._promise(self.wait_for("@" + name, f'{{"event":{json.dumps(name)}{limit}'))

    def sleep(self, until: Any) -> Any:
        """Waits for a span (seconds, a timedelta, text such as "2d") or up to a time (a datetime).

        >>> @app.flow
        ... async def patient(flow) -> float:
        ...     begun = flow.now()
        ...     await flow.sleep("2d")
        ...     return (flow.now() - begun).days
        >>> from gristmill.testing import run_flow
        >>> run_flow(patient)
        2
        """
        moment = getattr(until, "timestamp", None)
        limit = f'"delay_ms":{self._milliseconds(until)}' if moment is None else f'"until_ms":{round(moment() * 1000)}'
        return self._promise(self.wait_for(SLEEP, f'{{"event":null,{limit}'))

    def _milliseconds(self, span: Any) -> int:
        return max(0, -int(-self._program.seconds(span) * 1000 // 1))

    def wait_for(self, name: str, head: str) -> Record:
        """The step that is an event or a time."""
        # The time limit was decided when the step began.
        record = self._take(name, None, None, None) or self._begin(name, None, 0, None, head, "null")
        self._waits += [record] if record.is_event else []
        return record

    def local(self, function: Callable[..., Any], *arguments: Any, name: str | None = None, key: str | None = None, **named: Any) -> Any:
        """Runs a function here, in this process, and keeps its value like that of a step. It may run again where the process ends
        before the flow waits or ends.

        >>> @app.flow
        ... async def measured(flow, text: str) -> int:
        ...     return await flow.local(len, text)
        >>> from gristmill.testing import run_flow
        >>> run_flow(measured, "abc")
        3
        """
        label: str = getattr(function, "__qualname__", type(function).__name__)
        label = label.rpartition("<locals>.")[2] if name is None else checked("name", name)
        convert = None if self._program.convert_local is None else self._program.convert_local(function)

        def made() -> Any:
            return self._run_here(function, arguments, named)

        try:
            value = self._kept(label, key, made)
        except Exception as error:
            return self._known_value(label, None, error)
        return self._known_value(label, value if convert is None else convert(value))

    def _kept(self, name: str, key: str | None, make: Callable[[], Any]) -> Any:
        """Returns the kept value, or makes and keeps it."""
        identity = name if key is None else (name, checked("key", key))
        kept = self._values.get(identity)
        if kept:
            entry = kept.pop()
            if len(entry) > 3:
                raise self._program.failed(name, key, self.id, "dead", entry[3])
            return entry[1]
        if self._is_over or self._stops_at("flow.now" if name == NOW else f"flow.local {shown(name, key)}"):
            raise Suspended
        try:
            kept_value = value = make()
            if not (value is None or type(value) in (str, int, bool)):
                # The code gets the value as a replay gets it, and may change it.
                text = self._program.encode(value)
                kept_value, value = json.loads(text), json.loads(text)
        except Exception as error:
            failure = {"type": type(error).__qualname__, "message": str(error)[:4096], "traceback": traceback_of(error)}
            self._new_values.append([name, None, key, failure])
            raise self._program.failed(name, key, self.id, "dead", failure) from error
        self._new_values.append([name, kept_value] if key is None else [name, kept_value, key])
        return value

    def _stops_at(self, made: str) -> bool:
        """Reports whether it stops before it makes a value."""
        if self.stops is not None:
            self.stops.append(made)
        return self.stops is not None

    def _run_here(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return run_here(function, arguments, named)

    def now(self) -> Any:
        """The time, as a datetime in UTC; the same in each replay.

        >>> @app.flow
        ... async def year(flow) -> int:
        ...     return flow.now().year
        >>> from gristmill.testing import run_flow
        >>> run_flow(year)
        2001
        """
        import datetime

        kept: int = self._kept(NOW, None, self._clock_ms)
        return datetime.datetime.fromtimestamp(kept / 1000, datetime.timezone.utc)

    def random(self) -> float:
        """A number from 0 to below 1; the same in each replay.

        >>> @app.flow
        ... async def toss(flow) -> bool:
        ...     return 0 <= flow.random() < 1
        >>> from gristmill.testing import run_flow
        >>> run_flow(toss)
        True
        """
        return (self._bits() >> 75) / (1 << 53)

    def uuid(self) -> Any:
        """A UUID; the same in each replay.

        >>> @app.flow
        ... async def name(flow) -> int:
        ...     return flow.uuid().version
        >>> from gristmill.testing import run_flow
        >>> run_flow(name)
        4
        """
        import uuid

        return uuid.UUID(int=self._bits(), version=4)

    def _bits(self) -> int:
        import hashlib
        import os

        if self._seed is None and self._stops_at("flow.random or flow.uuid"):
            raise Suspended
        if self._seed is None:
            self._seed = self._new_seed = int.from_bytes(os.urandom(6), "big")
        self._seeds_taken += 1
        return int.from_bytes(hashlib.sha256(b"%d %d" % (self._seed, self._seeds_taken)).digest()[:16], "big")

    def _clock_ms(self) -> int:
        return int(time.time() * 1000) if self._now_ms is None else self._now_ms

    def continue_with(self, *arguments: Any, **named: Any) -> NoReturn:
        """Begins the instance anew with these arguments: the same job with an empty memo, for loops without end. The flow stops
        here; steps that are open are cancelled, and events that were not awaited are kept.

        >>> @app.flow
        ... async def countdown(flow, number: int) -> str:
        ...     if number == 0:
        ...         return f"begun anew {flow.continued} times"
        ...     await flow.sleep("1d")
        ...     flow.continue_with(number - 1)
        >>> from gristmill.testing import run_flow
        >>> run_flow(countdown, 3)
        'begun anew 3 times'
        """
        if not self._is_over:
            self._hear_cancel()
            state = self._program.encode(self._program.payload_of(*arguments, **named))
            begin: dict[str, Any] = {"count": self.continued + 1}
            if "origin" in self._begun:
                begin["origin"] = self._begun["origin"]
            text = f'{{"begin":{json.dumps(begin)[:-1]},"state":{state}}}}}'
            self._check_memo(text)
            self._next = text
            self._is_over = True
        raise Suspended

    def _anew(self) -> Suspension:
        # Events that open waits have got meanwhile go back, too. A cancel before the next wait needs no cleanup.
        open = [self._outcomes[index]["job"] for index, record in enumerate(self._owners) if record is not None and record.is_event]
        ends = gives_up(open + self._unread(is_anew=True))
        return Suspension(f'{{"children":[],"memo":[{self._next}],"on_failure":"collect","flow":true,"wake":"anew"{ends}}}')

    def _unread(self, is_anew: bool) -> list[str]:
        """Waits that got events which the code has not read: those given up, or all of a new beginning. The store gives each back once."""
        outcomes = self._outcomes
        self._waits = [one for one in self._waits if not one.is_read and (not one.order or outcomes[one.first]["state"] == "completed")]
        return [outcomes[one.first]["job"] for one in self._waits if one.order and (is_anew or one.is_given_up)]

    def _payload(self, payload: Any) -> Any:
        """That of the job, or the state with which the instance has begun anew."""
        return self._begun.get("state", payload)

    # --- what a kind of flow does its own way ---

    def _hear_cancel(self) -> None:
        """Raises the cancellation, in an instance that cleans up, if the code has not heard of it yet."""
        raise NotImplementedError

    def first(self, *awaitables: Any) -> Any:
        """The first of these to end, as a `Winner` with `name`, `value` and `index`. The others are cancelled; an event of theirs is kept.

        >>> @app.flow
        ... async def hurried(flow) -> str:
        ...     first = await flow.first(flow.event("approve"), flow.sleep("2d"))
        ...     return first.name
        >>> from gristmill.testing import run_flow
        >>> run_flow(hurried), run_flow(hurried, events=[("1d", "approve", None)])
        ('sleep', 'approve')
        """
        raise NotImplementedError

    def _promise(self, record: Record) -> Any:
        """The object that the code gets for a step."""
        raise NotImplementedError

    def _settle(self, record: Record) -> None:
        """Settles a step that has ended and that the code may await."""
        raise NotImplementedError

    def _known_value(self, name: str, value: Any, error: BaseException | None = None) -> Any:
        """A value that is there already, as an awaitable."""
        raise NotImplementedError

    # --- the suspension ---

    def _suspension(self, seen: list[int], is_all: bool) -> Suspension:
        """The memo and the new children of a run that waits."""
        for record in self._revived:
            if record.promise is not None and not record.promise.done():
                raise FlowError(
                    f"step {shown(record.name, record.key)} of flow {shown(self.name, self.version, '@')} was cancelled by this instance"
                    " before it began, and the code now waits for it: give the step another key=, or the changed flow another version="
                )
        fresh = self._fresh
        if any([record.is_dropped for record in fresh]):
            fresh = [record for record in fresh if not record.is_dropped]
        children_open = len(self._owners) - self._owners.count(None)
        groups_open = len(fresh)
        given_up: list[str] = []
        if children_open:
            given_up = [self._outcomes[index]["job"] for index, record in enumerate(self._owners) if record and record.is_given_up]
            groups_open += len({id(record) for record in self._owners if record is not None and not record.is_given_up})
        children_open += sum(record.missing for record in fresh)
        if not groups_open:
            raise FlowError(
                f"flow {self.name} awaits what nothing will ever bring about: a flow awaits steps, events and sleeps of its `flow`,"
                " and what asyncio makes of them"
            )
        if children_open > STEPS_OPEN_MAX:
            raise FlowError(f"flow {self.name} has {children_open:,} open steps at once; the limit is {STEPS_OPEN_MAX:,} (STEPS_OPEN_MAX)")
        total = len(self._owners) + sum(record.missing for record in fresh)
        if total > STEPS_MAX:
            raise FlowError(
                f"flow {self.name} has {total:,} steps; the limit is {STEPS_MAX:,} (STEPS_MAX): continue with a state before, by"
                " flow.continue_with"
            )
        memo: dict[str, Any] = {}
        children = ""
        spawned: list[Record] = []
        if self._fresh:
            children, spawned = grouped(self._fresh)
            memo["steps"] = [entry_of(record) for record in spawned]
        if not is_all:
            memo["seen"] = runs_of(seen)
        if self._new_values:
            memo["values"] = self._new_values
        if self._new_seed is not None:
            memo["seed"] = self._new_seed
        if self._time_ms is not None:
            memo["time"] = self._time_ms
        text = self._program.encode(memo)
        self._check_memo(text)
        wake = "all" if groups_open == 1 else "any"
        ends = gives_up(given_up + self._unread(is_anew=False)) + self._cleanup
        self._remember(memo, spawned)
        return Suspension(f'{{"children":[{children}],"memo":[{text}],"on_failure":"collect","flow":true,"wake":"{wake}"{ends}}}')

    def _check_memo(self, text: str) -> None:
        if len(text) > MEMO_BYTES_MAX // 4 and len(text.encode("utf-8", "surrogatepass")) > MEMO_BYTES_MAX:
            raise FlowError(
                f"flow {self.name} would keep {len(text):,} bytes of names, keys and local values, or of state, at one wait; the limit is"
                f" {MEMO_BYTES_MAX:,} (MEMO_BYTES_MAX): return references from flow.local, or make what is large in a step"
            )

    def _remember(self, memo: dict[str, Any], spawned: list[Record]) -> None:
        """Notes what has been spawned, as a replay reads it from the memo."""
        owners = self._owners
        for record in spawned:
            record.first = len(owners)
            record.head = record.payloads = ""
            if record.is_dropped:
                record.missing = 0
            owners.extend([record] * record.missing)
        self._memos = [*self._memos, memo]
        self._fresh, self._new_values, self._new_seed, self._time_ms = [], [], None, None
