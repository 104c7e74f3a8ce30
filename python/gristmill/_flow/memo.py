"""The memo of a flow's instance: what it keeps of its steps.

The memo is a list with a part for each suspension, as JSON objects:

* `steps`: what the suspension spawned, in the order of the children: `[name, hash]`, `[name, hash, key]` or, for a map of so many
  children, `[name, hash, key, count]`. Names that begin with "@" are those of events and times. A count of 0 is that of a step
  which was cancelled before it began.
* `seen`: the children whose ends were told before the suspension and after the one before it, in that order: numbers and
  `[first, end]`. Left out where these are all that were spawned before and not yet seen.
* `cancelled`: the flow was cancelled here, and the instance cleans up after it. This part has nothing else but no ends in `seen`.
* `values`: `[name, value]`, `[name, value, key]` or, for a failure, `[name, null, key, failure]`: of `local`, `now` and the like.
* `begin`: only in the first part: what an instance begins with that continues itself, or that has steps of another instance. `state`
  stands in place of the payload; `count` is how often it has begun anew; `origin` is the instance from which the steps are, `memos`
  are the parts of its memo, and `outcomes` those of the children that these name, before the children of the instance itself.
  `cancelled` is the flow after which the instance cleans up; the code knows only its id.
* `time`: what the event loop's clock said, in milliseconds since 1970. `seed`: that of `random` and `uuid`.

Needs nothing of the package: the runtime gives the same text to scripts. Python 3.8 and newer.
"""

from __future__ import annotations

import json
import json.encoder
from typing import Any, Callable, Iterable, cast

# Different groups of children that one suspension spawns: the store's limit.
GROUPS_MAX = 1_000

# The store's limit of the time for which an instance cleans up.
CLEANUP_MS_MAX = 24 * 60 * 60 * 1000

# The name of steps that are sleeps. An event has its name after the same sign.
SLEEP = "@sleep"

ENDED = frozenset(("completed", "dead", "cancelled", "expired"))


class FlowError(Exception):
    """A flow's code asks for what a flow cannot do, or does not fit what its instance has done.

    >>> @app.flow(retries=0)
    ... async def stuck(flow) -> None:
    ...     await asyncio.get_running_loop().create_future()
    >>> import asyncio
    >>> from gristmill.testing import run_flow
    >>> run_flow(stuck)
    Traceback (most recent call last):
    gristmill._errors.JobFailed: job 1:0 ended as dead: FlowError: flow stuck awaits what nothing will ever bring about: ...
    """


def make_encoder(to_plain: Callable[[Any], Any] | None, is_sorted: bool) -> Callable[[Any], str]:
    """A function that encodes a value as JSON. It makes its encoder once, and `json.dumps` makes one a call."""

    def default(value: Any) -> Any:
        check_awaited(value)
        if to_plain is None:
            raise TypeError(f"a {type(value).__qualname__} cannot become JSON")
        return to_plain(value)

    whole = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=is_sorted, separators=(",", ":"), default=default)
    encoder: Any = json.encoder
    if encoder.c_make_encoder is None:
        return whole.encode
    make = encoder.c_make_encoder(None, whole.default, encoder.c_encode_basestring, None, ":", ",", is_sorted, False, False)
    join = "".join

    def encode(value: Any) -> str:
        try:
            text: str = join(make(value, 0))
            return text
        except RecursionError:
            raise ValueError("a value nests too deep, or contains itself") from None

    return encode


def check_awaited(value: Any) -> None:
    """Refuses a step in the place of its result."""
    if getattr(cast(Any, type(value)), "is_step", False) is True:
        raise FlowError(f"the step {value.name} stands in the place of its result: await it first, or in a plain flow ask for its result()")


class Record:
    """A step: one child, or the children of a map."""

    __slots__ = (
        *("collects", "convert", "count", "first", "hash", "head", "is_dropped", "is_given_up", "is_read"),
        *("key", "missing", "name", "next", "order", "payloads", "promise"),
    )

    def __init__(self, name: str, hash: int, key: str | None, count: int | None, first: int, next: Record | None) -> None:
        self.name = name
        self.hash = hash
        self.key = key
        # None for a single child.
        self.count = count
        self.first = first
        # The next step of the same name and key.
        self.next = next
        self.missing = 1 if count is None else count
        # The number of its end among the ends that the code has been told.
        self.order = 0
        self.promise: Any = None
        self.convert: Callable[[Any], Any] | None = None
        # The job of a step that is not spawned yet.
        self.head = ""
        self.payloads = ""
        # Whether a map gives failures in place of values, and does not raise the first.
        self.collects = False
        # Cancelled before it began: it keeps its place among those of its identity, and has no child.
        self.is_dropped = False
        # Cancelled after it began: what of it is open is cancelled once the flow waits again.
        self.is_given_up = False
        # Of an event: the code has taken its value.
        self.is_read = False

    @property
    def is_event(self) -> bool:
        """Whether it is a wait for an event."""
        return self.name[:1] == "@" and self.name != SLEEP

    def give_up(self) -> None:
        """Nothing waits for it any more."""
        if self.first < 0:
            self.is_dropped = True
        else:
            self.is_given_up = True


class Prepared:
    """A job that a flow asks for: what all children like it have in common, as the beginning of a JSON object, and its payload."""

    __slots__ = ("convert", "head", "label", "payload")

    def __init__(self, label: str, head: str, payload: str, convert: Callable[[Any], Any] | None) -> None:
        self.label = label
        self.head = head
        self.payload = payload
        self.convert = convert


class Result:
    """A step of a plain flow."""

    is_step = True
    __slots__ = ("_answer", "among", "name", "record")

    def __init__(self, name: str, record: Record | None, answer: Callable[[], Any], among: list[Result] | None = None) -> None:
        self.name = name
        self.record = record
        self._answer = answer
        # The results of which a race gives the first.
        self.among = among

    def order(self) -> int | None:
        """When it ended, among all ends; None where it has not."""
        if self.among is not None:
            return min([order for order in [one.order() for one in self.among] if order is not None], default=None)
        return 0 if self.record is None else self.record.order or None

    def give_up(self) -> None:
        """It has lost a race."""
        for one in self.among or ():
            one.give_up()
        if self.record is not None:
            self.record.give_up()

    def result(self) -> Any:
        """Returns the result. Without one, unwinds the flow, which begins again when the result is there."""
        return self._answer()

    def done(self) -> bool:
        """Not for plain flows."""
        raise FlowError(
            "whether a step has ended is not for a plain flow, which would go another way when it is run again: write it as async def"
        )

    def __await__(self) -> Any:
        raise FlowError("await is for async def flows: a plain one asks for the result()")


def entry_of(record: Record) -> list[Any]:
    count = 0 if record.is_dropped else record.count
    if count is not None:
        return [record.name, record.hash, record.key, count]
    return [record.name, record.hash] if record.key is None else [record.name, record.hash, record.key]


def grouped(fresh: list[Record]) -> tuple[str, list[Record]]:
    """The JSON of the children, and the steps in their order. Children that are alike make one batch, unless steps of one identity
    would change their order by that."""
    if len(fresh) == 1 and not fresh[0].is_dropped:
        return _spawned(fresh), fresh
    groups: dict[Any, list[Record]] = {}
    homes: dict[Any, Any] = {}
    is_alike = True
    for record in fresh:
        # Each event is a batch of its own.
        home: Any = len(groups) if record.is_dropped or record.name[:1] == "@" else record.head
        groups.setdefault(home, []).append(record)
        is_alike = is_alike and homes.setdefault((record.name, record.key), home) == home
    batches: list[list[Record]] = list(groups.values())
    if not is_alike:
        batches = []
        for record in fresh:
            before: Record = batches[-1][0] if batches else record
            if before is not record and record.name[:1] != "@" and before.head == record.head and not before.is_dropped | record.is_dropped:
                batches[-1].append(record)
            else:
                batches.append([record])
    if len(batches) > GROUPS_MAX:
        raise FlowError(
            f"a flow begins {len(batches):,} different groups of steps at once; the limit is {GROUPS_MAX:,} (GROUPS_MAX; each event,"
            " sleep, job and set of options makes one): await some of them first"
        )
    texts = [_spawned(batch) for batch in batches if not batch[0].is_dropped]
    return ",".join(texts), [record for batch in batches for record in batch]


def _spawned(batch: list[Record]) -> str:
    """The JSON of children that are alike. The flow goes on once all jobs of a map have ended."""
    together = ',"together":true' if len(batch) == 1 and batch[0].count is not None else ""
    return f'{batch[0].head}{together},"payloads":[{",".join([record.payloads for record in batch])}]}}'


def runs_of(numbers: list[int]) -> list[Any]:
    """Encodes numbers: consecutive ones become `[first, end]`."""
    runs: list[Any] = []
    for number in numbers:
        last = runs[-1] if runs else None
        if isinstance(last, list) and last[1] == number:
            last[1] = number + 1
        elif isinstance(last, int) and last + 1 == number:
            runs[-1] = [last, number + 1]
        else:
            runs.append(number)
    return runs


def each(runs: list[Any]) -> Iterable[int]:
    """Decodes such numbers."""
    for run in runs:
        if type(run) is int:
            yield run
        else:
            yield from range(*run)


def shown(name: str, key: str | None, mark: str = " ") -> str:
    return name if key is None else f"{name}{mark}{key}" if mark != " " else f"{name} (key {key!r})"


def counted(count: int | None) -> str:
    return "one payload" if count is None else f"{count:,} items"


def only(state: Any = None) -> Any:
    return state


def gives_up(jobs: list[str]) -> str:
    """What a suspension says of the children that it gives up."""
    return f',"given_up":{json.dumps(jobs)}' if jobs else ""


def is_lost(record: Record, outcomes: list[Any], before_cancel: tuple[int, int]) -> bool:
    """Whether a step ended as cancelled because its flow was: the flow had so many children then, and was told of so many ends."""
    spawned, told = before_cancel
    if not (0 <= record.first < spawned and record.order > told):
        return False
    ended = outcomes[record.first : record.first + (1 if record.count is None else record.count)]
    return any([outcome["state"] == "cancelled" for outcome in ended])


def cleanup_ms(within: Any, milliseconds: Callable[[Any], int]) -> int | None:
    """How long an instance may clean up after a cancelled one; None where none does."""
    span = None if within is None else milliseconds(within)
    if span is not None and not 1 <= span <= CLEANUP_MS_MAX:
        raise ValueError(f"cleanup_within={within!r}: give a span from 1 ms to 1 day (CLEANUP_MS_MAX), or omit it")
    return span


def checked(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value or value[:1] == "@":
        raise FlowError(f"{what} of a step is {value!r}: give text that does not begin with @")
    return value


def traceback_of(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-16384:]


def run_here(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The value of a function; of a coroutine function, too."""
    value = function(*arguments, **named)
    if hasattr(value, "__await__"):
        import asyncio

        async def waited() -> Any:
            return await value

        return asyncio.run(waited())
    return value
