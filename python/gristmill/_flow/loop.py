"""The event loop of a flow's instance, and how the two kinds of flow run.

The loop is that of one instance. It turns only while something is ready, in a fixed order. Its timers are sleeps of the flow: they
wait in the store. So `asyncio.gather`, `wait`, `timeout`, `sleep` and `TaskGroup` are as durable as steps.

Needs nothing of the package but `memo` and `replay`: the runtime gives the same text to scripts. Python 3.8 and newer.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import functools
import sys
from typing import TYPE_CHECKING, Any, Callable, Coroutine, NoReturn

from .memo import SLEEP, FlowError, Record, Result, check_awaited, each, is_lost
from .kept import Kept, holds_nothing
from .replay import Flow, Program, Suspended, Suspension, Winner

# Calls of one loop between two steps, and closings of one coroutine. A flow that takes more does not end.
TURNS_MAX = 10_000_000
CLOSINGS_MAX = 100

_set_running_loop = asyncio._set_running_loop

if TYPE_CHECKING:
    _Future = asyncio.Future[Any]
    _Task = asyncio.Task[Any]
else:
    # In Python 3.8, these classes are not generic.
    _Future, _Task = asyncio.Future, asyncio.Task


class Call:
    """A call that the loop will make."""

    __slots__ = ("arguments", "callback", "context", "record", "when")

    def __init__(self, callback: Callable[..., Any] | None, arguments: tuple[Any, ...], context: contextvars.Context | None) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context
        # The step and the moment of a timer.
        self.record: Record | None = None
        self.when = 0.0

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()
        if self.record is not None:
            self.record.give_up()

    def cancelled(self) -> bool:
        return self.callback is None

    def done(self) -> bool:
        """Whether nothing waits for the call, in the terms of a future."""
        return self.callback is None


class Promise(_Future):
    """A step, to be awaited."""

    is_step = True

    def __init__(self, record: Record | None, name: str, loop: Any) -> None:
        _Future.__init__(self, loop=loop)
        self.record = record
        self.name = name
        self.loop = loop
        self.number: int = loop.number + 1
        loop.number = self.number

    # A set of promises is in the order of their hashes, which must be the same in each replay.
    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any = None) -> bool:
        if self.record is not None and not self.done():
            self.record.give_up()
        return super().cancel()


class EventPromise(Promise):
    """An event, or a race that an event may win. It knows whether the code has read its value: an event that is not read goes back.

    So one that is cancelled after it has ended, such as by a timeout of the same moment, is as cancelled as one that has not: its value
    is there for the next wait, and not for this one."""

    is_read = False
    is_lost = False
    # What a race was won by.
    won: Any = None

    def cancel(self, msg: Any = None) -> bool:
        if not self.done():
            return super().cancel(msg)
        if not self.is_read and not self.cancelled() and _Future.exception(self) is None:
            self.is_lost = True
            if self.record is not None:
                self.record.give_up()
            elif isinstance(self.won, EventPromise):
                self.won.cancel()
        return False

    def cancelled(self) -> bool:
        return self.is_lost or super().cancelled()

    def exception(self) -> BaseException | None:
        if self.is_lost:
            raise asyncio.CancelledError
        return super().exception()

    def result(self) -> Any:
        return self._read(super().result())

    def __await__(self) -> Any:
        # A task asks for the result() of what it has waited for, and not for one that is there before.
        if self.done():
            self.result()
        return super().__await__()

    __iter__ = __await__

    def unread(self) -> Any:
        """The value, which the code has not read by that."""
        return super().result()

    def _read(self, value: Any) -> Any:
        if self.is_lost:
            raise asyncio.CancelledError
        if not self.is_read:
            self.is_read = True
            if self.record is not None:
                self.record.is_read = True
            elif isinstance(self.won, EventPromise):
                self.won.result()
        return value


class FlowTask(_Task):
    """A task of a flow. Its hash is the same in each replay."""

    def __init__(self, coroutine: Any, **options: Any) -> None:
        loop: Any = options["loop"]
        self.number: int = loop.number + 1
        loop.number = self.number
        _Task.__init__(self, coroutine, **options)

    def __hash__(self) -> int:
        return self.number


async def _waited(awaitable: Any) -> Any:
    return await awaitable


class FlowLoop:
    """Makes the calls that are ready, and knows the tasks."""

    def __init__(self, flow: AsyncFlow) -> None:
        self.flow = flow
        self.ready: collections.deque[Call] = collections.deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.number = 0
        self.error: BaseException | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise FlowError(
            f"a flow's event loop has no {name}: a flow awaits steps, events and sleeps; do input, output and threads in a step, or in"
            " a function that flow.local runs"
        )

    # --- what asyncio asks of a loop ---

    def call_soon(self, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None) -> Call:
        call = Call(callback, arguments, context)
        self.ready.append(call)
        return call

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None) -> Call:
        if delay <= 0:
            return self.call_soon(callback, *arguments, context=context)
        call = Call(callback, arguments, context or contextvars.copy_context())
        flow = self.flow
        call.when = flow.time_s() + delay
        call.record = flow.wait_for(SLEEP, f'{{"event":null,"delay_ms":{max(1, -int(-delay * 1000 // 1))}')
        call.record.promise = call
        if call.record.order:
            self.ready.append(call)
        return call

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any, context: contextvars.Context | None = None) -> Call:
        return self.call_later(when - self.time(), callback, *arguments, context=context)

    def time(self) -> float:
        return self.flow.time_s()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        if not asyncio.iscoroutine(coroutine):
            # A step, such as in a group of tasks.
            coroutine = _waited(coroutine)
        if "name" not in options:
            options["name"] = getattr(coroutine, "__name__", "task")
        eager = options.pop("eager_start", None)
        del eager
        task: asyncio.Task[Any] = FlowTask(coroutine, loop=self, **options)
        # A process keeps many flows: asyncio would look for the task among the tasks of the same number in all of them.
        asyncio.tasks._unregister_task(task)
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignores an exception that nobody awaits: it does not affect the flow's outcome."""

    def _timer_handle_cancelled(self, call: Any) -> None:
        """Nothing to do."""

    # --- turning ---

    def run(self) -> None:
        """Makes calls until none is ready."""
        ready = self.ready
        for _ in range(TURNS_MAX):
            if not ready:
                return
            call = ready.popleft()
            callback = call.callback
            if callback is None:
                continue
            if call.context is not None:
                call.context.run(callback, *call.arguments)
            else:
                callback(*call.arguments)
        raise FlowError(f"flow {self.flow.name} has made {TURNS_MAX:,} calls (TURNS_MAX) without awaiting a step: it does not end")

    def close(self) -> None:
        """Ends the coroutines that wait."""
        self.ready.clear()
        for task in self.tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            for _ in range(CLOSINGS_MAX):
                try:
                    coroutine.close()
                    break
                except RuntimeError as error:
                    # The coroutine has awaited something else while it ended.
                    if "ignored GeneratorExit" not in str(error):
                        break
                except BaseException:
                    break
        self.ready.clear()
        self.tasks.clear()


class AsyncFlow(Flow):
    """An instance of an `async def` flow."""

    def run(self, payload: Any) -> Any:
        """Its value, or its `Suspension`."""
        value = self.begin(payload)
        if self.is_waiting:
            self.close()
        return value

    def begin(self, payload: Any) -> Any:
        """The same. One that waits is left as it is, to be resumed or closed."""
        self._loop = FlowLoop(self)
        return self._turn(functools.partial(self._replay, payload))

    def resume(self, outcomes: list[Any]) -> Any:
        """The same, without a replay, for one that waits and was not closed. The outcomes are those of all children."""
        self._outcomes = outcomes
        return self._turn(self._proceed)

    def is_at(self, memos: list[Any]) -> bool:
        """Whether its memo is this one."""
        return self._memos == memos

    def holds_nothing(self) -> bool:
        """Whether it waits without anything that its code would end when it is unwound, such as a lock. One that has steps of
        another instance or has begun anew is replayed: its memo is in another form there."""
        return not self._begun and all([task.done() or holds_nothing(task.get_coro()) for task in self._loop.tasks])

    def close(self) -> None:
        """Unwinds it."""
        loop = self._loop
        before = asyncio._get_running_loop()
        _set_running_loop(loop)  # type: ignore[arg-type]
        self._is_over = True
        try:
            loop.close()
            self._part(loop)
        finally:
            _set_running_loop(before)

    def _part(self, loop: Any) -> None:
        """Parts what refers to each other: what is left would wait for the garbage collector, whose looks cost more than the runs."""
        for record in self._owners:
            if record is not None and isinstance(record.promise, Promise):
                promise, record.promise = record.promise, None
                _Future.cancel(promise)
        loop.ready.clear()
        loop.flow = None
        self.__dict__.pop("_main", None)

    def _turn(self, turn: Callable[[], Any]) -> Any:
        before = asyncio._get_running_loop()
        _set_running_loop(self._loop)  # type: ignore[arg-type]
        self.is_waiting = False
        try:
            value = turn()
            self.is_waiting = type(value) is Suspension and self._next is None
            return value
        finally:
            _set_running_loop(before)
            if not self.is_waiting:
                self.close()

    def _replay(self, payload: Any) -> Any:
        loop = self._loop
        self._wave_ms: int | None = None
        self._is_to_cancel = False
        memos = self._memos
        self._is_replayed = bool(memos)
        if memos:
            self._wave_ms = memos[0].get("time")
        begun = self._program.function(self, self._payload(payload))
        main: asyncio.Task[Any] = asyncio.Task(begun, loop=loop, name=self.name)  # type: ignore[arg-type]
        self._main = main
        loop.tasks.append(main)
        loop.run()
        spawned = 0
        owners = self._owners
        for number, memo in enumerate(memos):
            if self._next is not None or main.done():
                return self._ended(main)
            if "cancelled" in memo:
                # What it does then is in the next part.
                self._is_to_cancel = True
                self._before_cancel = spawned, 0
                continue
            if number:
                self._wave_ms = memo.get("time")
                self._cancel()
                seen = memo.get("seen")
                if seen is None:
                    for index in range(spawned):
                        if owners[index] is not None:
                            self._deliver(index)
                else:
                    for index in each(seen):
                        self._deliver(index)
                loop.run()
            for entry in memo.get("steps", ()):
                spawned += 1 if len(entry) < 4 else entry[3]
        if self._next is not None or main.done():
            return self._ended(main)
        return self._proceed() if memos else self._suspension([], True)

    def _proceed(self) -> Any:
        """Goes on with what has ended since the last suspension."""
        self._is_replayed, self._wave_ms = False, None
        if self.stops is None:
            self._cancel()
        seen = self._untold()
        is_all = len(seen) == len(self._owners) - self._owners.count(None)
        for index in seen:
            self._deliver(index)
        self._loop.run()
        if self._next is not None or self._main.done():
            return self._ended(self._main)
        return self._suspension(seen, is_all)

    def _cancel(self) -> None:
        """Raises the cancellation where the code waits, in an instance that cleans up. It is told first of what ended before the cancel."""
        if self._is_to_cancel:
            self._deliver_before_cancel(self._before_cancel[0])
            self._loop.run()
            if self._is_to_cancel:
                self._begin_to_clean_up()
                self._main.cancel()
                self._loop.run()

    def _begin_to_clean_up(self) -> None:
        self._is_to_cancel = False
        self._before_cancel = self._before_cancel[0], self._told
        # Steps that were about to begin do not.
        for record in self._fresh + self._revived:
            if isinstance(record.promise, Promise):
                record.promise.cancel()

    def _hear_cancel(self) -> None:
        if self._is_to_cancel:
            if asyncio.current_task(self._loop) is self._main:  # type: ignore[arg-type]
                self._begin_to_clean_up()
            raise asyncio.CancelledError

    def _ended(self, main: asyncio.Task[Any]) -> Any:
        if self._next is not None:
            return None if self._cleans_up else self._anew()
        return None if main.cancelled() and self._cleans_up else main.result()

    def time_s(self) -> float:
        """The loop's time: that of the run in which this part of the flow was run first."""
        if self._wave_ms is None:
            self._wave_ms = self._clock_ms()
            if not self._is_replayed:
                self._time_ms = self._wave_ms
        return self._wave_ms / 1000

    def first(self, *awaitables: Any) -> Any:
        if not awaitables:
            raise FlowError("flow.first() of nothing never ends: give steps, events, sleeps or coroutines")
        loop = self._loop
        winner: Any = EventPromise(None, "first", loop)
        losers: list[Any] = []

        def ended(index: int, future: Any) -> None:
            if winner.done():
                return
            if future.cancelled():
                winner.cancel()
            elif future.exception() is not None:
                winner.set_exception(future.exception())
            else:
                name = future.name if isinstance(future, Promise) else future.get_name() if hasattr(future, "get_name") else ""
                value = future.unread() if isinstance(future, EventPromise) else future.result()
                winner.won = future
                winner.set_result(Winner(name, value, index))
            for loser in losers:
                if loser is not future:
                    loser.cancel()

        for index, awaitable in enumerate(awaitables):
            future = awaitable
            if not asyncio.isfuture(awaitable):
                future = loop.create_task(awaitable)
            # A task that the code has made is the code's own.
            if future is not awaitable or isinstance(future, Promise):
                losers.append(future)
            future.add_done_callback(functools.partial(ended, index))
        # Cancelled itself, such as by another race.
        def given_up(race: Any) -> None:
            if race.cancelled():
                for loser in losers:
                    loser.cancel()

        winner.add_done_callback(given_up)
        return winner

    def _promise(self, record: Record) -> Promise:
        name = record.name[1:] if record.name[:1] == "@" else record.name
        promise = (EventPromise if record.is_event else Promise)(record, name, self._loop)
        record.promise = promise
        if record.order:
            self._settle(record)
        return promise

    def _settle(self, record: Record) -> None:
        promise: Any = record.promise
        record.promise = None
        if type(promise) is Call:
            if promise.callback is not None and not is_lost(record, self._outcomes, self._before_cancel):
                self._loop.ready.append(promise)
            elif promise.callback is not None and promise.arguments and asyncio.isfuture(promise.arguments[0]):
                # A sleep, or what waits for a limited time, of another task than the one that is cancelled.
                promise.arguments[0].cancel()
            return
        if promise.done():
            return
        if is_lost(record, self._outcomes, self._before_cancel):
            promise.cancel()
            return
        try:
            value, error = self._outcome(record)
        except Exception as problem:
            # The conversion to the annotated type has failed.
            value, error = None, problem
        if error is None:
            promise.set_result(value)
        else:
            promise.set_exception(error)

    def _known_value(self, name: str, value: Any, error: BaseException | None = None) -> Promise:
        promise = Promise(None, name, self._loop)
        if error is None:
            promise.set_result(value)
        else:
            promise.set_exception(error)
        return promise

    def _run_here(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Runs the function outside of the flow's loop, because it may run its own loop."""
        loop: Any = self._loop
        task = asyncio.current_task(loop)
        _set_running_loop(None)
        _set_current_task(loop, task, None)
        try:
            return super()._run_here(function, arguments, named)
        finally:
            _set_current_task(loop, None, task)
            _set_running_loop(loop)


def _set_current_task(loop: Any, before: Any, after: Any) -> None:
    tasks: Any = asyncio.tasks
    if sys.version_info >= (3, 12):
        if sys.version_info >= (3, 14) and asyncio._get_running_loop() is not loop:
            # asyncio asks only the running loop for it.
            _set_running_loop(loop)
            tasks._swap_current_task(loop, after)
            _set_running_loop(None)
        else:
            tasks._swap_current_task(loop, after)
        return
    if before is not None:
        tasks._leave_task(loop, before)
    if after is not None:
        tasks._enter_task(loop, after)


class PlainFlow(Flow):
    """An instance of a `def` flow: it runs from its beginning until a result is not there."""

    def run(self, payload: Any) -> Any:
        """Its value, or its `Suspension`."""
        spawned = 0
        owners = self._owners
        self._is_to_cancel = False
        for number, memo in enumerate(self._memos):
            if "cancelled" in memo:
                self._is_to_cancel = True
                self._deliver_before_cancel(spawned)
                self._before_cancel = spawned, self._told
            elif number:
                seen = memo.get("seen")
                for index in range(spawned) if seen is None else each(seen):
                    if owners[index] is not None:
                        self._deliver(index)
            for entry in memo.get("steps", ()):
                spawned += 1 if len(entry) < 4 else entry[3]
        seen_now = self._untold()
        is_all = len(seen_now) == len(owners) - owners.count(None)
        for index in seen_now:
            self._deliver(index)
        value, is_done = None, False
        try:
            value = self._program.function(self, self._payload(payload))
            is_done = True
        except Suspended:
            pass
        except asyncio.CancelledError:
            if not self._cleans_up:
                raise
            is_done = True
        if self._next is not None:
            return None if self._cleans_up else self._anew()
        if is_done:
            return value
        self._is_over = True
        return self._suspension(seen_now, is_all)

    def first(self, *awaitables: Any) -> Any:
        results: list[Result] = list(awaitables)

        def answer() -> Any:
            ended = [(order, index) for index, order in enumerate([one.order() for one in results]) if order is not None]
            self._hear(min(ended)[0] if ended else None)
            if not ended:
                self._unwind()
            index = min(ended)[1]
            winner = results[index]
            for one in results:
                if one is not winner:
                    one.give_up()
            return Winner(winner.name, winner.result(), index)

        return Result("first", None, answer, results)

    def _unwind(self) -> NoReturn:
        """Waits: what runs on the way out begins no step."""
        self._is_over = True
        raise Suspended

    def _hear(self, order: int | None) -> None:
        """Raises the cancellation, in an instance that cleans up, where the code asks for what it had not been told before."""
        if self._is_to_cancel and (order is None or order > self._before_cancel[1]):
            self._hear_cancel()

    def _hear_cancel(self) -> None:
        if self._is_to_cancel:
            self._is_to_cancel = False
            for record in self._fresh:
                record.give_up()
            raise asyncio.CancelledError

    def _promise(self, record: Record) -> Result:
        def answer() -> Any:
            self._hear(record.order or None)
            if self._cleans_up and record.is_dropped:
                raise asyncio.CancelledError
            if not record.order:
                self._unwind()
            if is_lost(record, self._outcomes, self._before_cancel):
                raise asyncio.CancelledError
            value, error = self._outcome(record)
            if error is not None:
                raise error
            if record.is_event:
                if record.is_given_up and not record.is_read:
                    # It goes to the next wait.
                    raise self._failure(record, {**self._outcomes[record.first], "state": "cancelled"})
                record.is_read = True
            return value

        return Result(record.name[1:] if record.name[:1] == "@" else record.name, record, answer)

    def _settle(self, record: Record) -> None:
        """Nothing waits."""

    def _known_value(self, name: str, value: Any, error: BaseException | None = None) -> Result:
        def answer() -> Any:
            if error is not None:
                raise error
            return value

        return Result(name, None, answer)


def run(
    program: Program, is_async: bool, payload: Any, memos: list[Any], outcomes: list[Any], job: str | None, now_ms: int | None = None
) -> Any:
    """Runs an instance from its beginning: its value, or its `Suspension`."""
    flow: Any = (AsyncFlow if is_async else PlainFlow)(program, memos, outcomes, job, now_ms)
    return flow.run(payload)


def running(program: Program, is_async: bool, runtime: Any) -> Callable[[Any, list[Any], list[Any]], Any]:
    """What a worker's process calls with an instance's payload, memo and children. The runtime is what Gristmill offers there."""
    kept = Kept(functools.partial(AsyncFlow, program))

    def run_here(payload: Any, memos: list[Any], outcomes: list[Any]) -> Any:
        id: str = runtime.job_id()
        if is_async:
            value = kept.run(id, payload, memos, outcomes)
        else:
            value = PlainFlow(program, memos, outcomes, id).run(payload)
        if type(value) is Suspension:
            return runtime.suspended(value.text)
        check_awaited(value)
        return value

    return run_here
