"""Batch handlers: a function of a list of payloads, called with the jobs of many submits."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ._errors import Retry
from ._job import Job
from ._options import AT_ONCE_MAX, whole_number
from ._values import converter, hints_of

if TYPE_CHECKING:
    from ._app import App

# Payloads of this many batches are in a process at once: one that runs, and the next one that gathers.
BATCHES_HELD = 2
# Jobs in one batch. All of them are running jobs of the process.
SIZE_MAX = AT_ONCE_MAX


# A payload with the future of its result.
Gathered = tuple[Any, "asyncio.Future[Any]"]


class BatchShape:
    """The types of the items of a batch handler's lists."""

    is_single = True
    names: tuple[str, ...] = ()
    named_rest: str | None = None

    def __init__(self, handler: Any) -> None:
        function = handler.__call__ if inspect.isclass(handler) else handler
        hints = hints_of(function)
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        if len(names) != 1:
            raise TypeError(f"{handler!r}: a batch handler takes one argument, a list of payloads")
        self.payloads = converter(hints.get(names[0]))
        results = hints.get("return")
        arguments = getattr(results, "__args__", None)
        self.result = converter(arguments[0]) if arguments and len(arguments) == 1 else None

    def payload(self, arguments: tuple[Any, ...], named: Any = None) -> Any:
        if len(arguments) != 1 or named:
            raise TypeError(f"a job of a batch handler has one payload, not {len(arguments)} arguments")
        return arguments[0]

    def encoder(self, items: Any, starmap: bool) -> None:
        if starmap:
            raise TypeError("a job of a batch handler has one payload: starmap=True is for functions of several parameters")

    def arguments_of(self, payload: Any) -> Any:
        return payload if self.payloads is None else self.payloads([payload])[0]


class BatchJob(Job[..., Any]):
    """A job that runs together with others."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        name: str,
        queue: str,
        options: dict[str, Any],
        size: int,
        wait_s: float,
        key: Callable[[Any], Hashable] | None,
        processes: int,
    ) -> None:
        whole_number("size", size, 1, SIZE_MAX)
        if key is not None and not callable(key):
            raise TypeError(f"key={key!r}: give a function of a payload")
        # What `Job` reads of a function of single payloads.
        super().__init__(app, _one, name, queue, options, processes, concurrency=min(size * BATCHES_HELD, AT_ONCE_MAX))
        self.function = function
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.shape = BatchShape(function)  # type: ignore[assignment]
        self.size = size
        self.wait_s = wait_s
        self.key = key
        self._instance: Any = None

    @staticmethod
    def shape_of(function: Any) -> Any:
        return BatchShape(function)

    def __getstate__(self) -> dict[str, Any]:
        # An instance of its class is made in each process.
        return {**super().__getstate__(), "_instance": None}

    def is_asynchronous(self) -> bool:
        return True

    def __call__(self, payloads: list[Any]) -> Any:
        """Runs the handler here, over a list."""
        if inspect.isclass(self.function):
            if self._instance is None:
                self._instance = prepared(self.function)
            return self._instance(payloads)
        return self.function(payloads)

    def entry(self) -> Callable[[Any], Any]:
        return Batcher.over(self.function, self.size, self.wait_s, self.key, self.shape).main


def _one(payload: Any) -> Any:
    raise NotImplementedError


def prepared(handler: Any) -> Any:
    """An instance of a handler's class, set up."""
    instance = handler()
    setup = getattr(instance, "setup", None)
    if setup is not None:
        setup()
    return instance


class Batcher:
    """Gathers the payloads of the jobs of one process, and calls the handler."""

    def __init__(
        self,
        call: Callable[[list[Any]], Any],
        size: int,
        wait_s: float,
        key: Callable[[Any], Hashable] | None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self.call = call
        self.size = size
        self.wait_s = wait_s
        self.key = key
        self.convert = convert
        # By key: the payloads with the futures of their results, and the timer of the first one.
        self.gathering: dict[Hashable, tuple[list[Gathered], asyncio.TimerHandle]] = {}
        # Batches that run: asyncio itself holds tasks weakly.
        self.running: set[asyncio.Task[None]] = set()

    @staticmethod
    def over(handler: Any, size: int, wait_s: float, key: Any, shape: Any) -> Batcher:
        """The batcher of a handler in a worker's process: a class is set up once, here."""
        call = prepared(handler) if inspect.isclass(handler) else handler
        return Batcher(call, size, wait_s, key, shape.payloads)

    async def main(self, payload: Any) -> Any:
        """Runs one job: waits until its batch has run."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        key = None if self.key is None else self.key(payload)
        gathered = self.gathering.get(key)
        if gathered is None:
            gathered = self.gathering[key] = ([], loop.call_later(self.wait_s, self.begin, key))
        gathered[0].append((payload, future))
        if len(gathered[0]) >= self.size:
            self.begin(key)
        return await future

    def begin(self, key: Hashable) -> None:
        """Begins a batch for the key."""
        items, timer = self.gathering.pop(key)
        timer.cancel()
        task = asyncio.get_running_loop().create_task(self.run(items))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def run(self, items: list[Gathered]) -> None:
        """Runs a batch. One that fails is halved until the culprit is alone."""
        # Jobs that were cancelled or timed out meanwhile are not run.
        items = [item for item in items if not item[1].done()]
        portions = self.portions(items)
        while portions:
            portion = portions.pop(0)
            try:
                results = await self.results([payload for payload, _ in portion])
            except Exception as error:
                if len(portion) == 1 or isinstance(error, (Retry, WrongResults)):
                    for _, future in portion:
                        _end(future, error)
                    continue
                half = (len(portion) + 1) // 2
                if _is_out_of_memory(error):
                    # The rest of this batch is cut as later batches are.
                    self.size = min(self.size, half)
                    portions = self.portions([*portion, *itertools.chain.from_iterable(portions)])
                else:
                    portions[:0] = [portion[:half], portion[half:]]
                continue
            except BaseException as error:
                for _, future in [item for items in (portion, *portions) for item in items]:
                    _end(future, error)
                raise
            for (_, future), result in zip(portion, results):
                _end(future, result)

    def portions(self, items: list[Gathered]) -> list[list[Gathered]]:
        return [items[first : first + self.size] for first in range(0, len(items), self.size)]

    async def results(self, payloads: list[Any]) -> list[Any]:
        if self.convert is not None:
            payloads = self.convert(payloads)
        count = len(payloads)
        results = self.call(payloads)
        if inspect.isawaitable(results):
            results = await results
        results = list(results)
        if len(results) != count:
            raise WrongResults(f"the batch handler returned {len(results)} results for {count} payloads: return one for each")
        return results


class WrongResults(Exception):
    """A batch handler returned another number of results than it got payloads."""

    permanent = True


def _end(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, StopIteration):
        result = RuntimeError(f"the batch handler raised {result!r}")
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _is_out_of_memory(error: Exception) -> bool:
    # torch.OutOfMemoryError and its relatives, without an import of them.
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
