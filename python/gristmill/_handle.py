"""Handles of submitted jobs."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ._errors import JobFailed, ResultTimeout, StoreError
from ._options import Span
from ._spans import seconds

if TYPE_CHECKING:
    from ._app import App
    from ._job import Job
    from ._operations.records import JobDetails

R = TypeVar("R")

Ended = tuple[str | None, str | None, tuple[str, str, str | None] | None]


class Handle(Generic[R]):
    """A submitted job. `await handle` is `handle.result()` for asynchronous code.

    >>> handle = double.submit(1)
    >>> handle.id, handle.state()
    ('1:0', 'waiting')
    """

    __slots__ = ("app", "batch", "position", "_job")

    def __init__(self, app: App, batch: int, position: int, job: Job[..., R] | None = None) -> None:
        self.app = app
        self.batch = batch
        self.position = position
        self._job = job

    @property
    def id(self) -> str:
        """The job's id, such as "42:7", as the command line shows it.

        >>> double.submit(1).id
        '1:0'
        """
        return f"{self.batch}:{self.position}"

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<gristmill job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.batch, self.position) == (other.batch, other.position)

    def __hash__(self) -> int:
        return hash((self.batch, self.position))

    def result(self, timeout: Span | None = None) -> R:
        """Waits for the job's end and returns its result. Raises `JobFailed` where it ended otherwise, and `ResultTimeout` (a
        TimeoutError) after `timeout` (seconds, a timedelta or text such as "5m").

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> handle = app.job(abs).submit(-1)
        >>> handle.result(timeout=0.01)
        Traceback (most recent call last):
        gristmill._errors.ResultTimeout: job 1:0 has not ended after 0.01 s; it continues, if a worker runs its kind
        >>> app.drain(), handle.result()
        (1, 1)
        >>> app.close()
        """
        patience = None if timeout is None else _patience(timeout)
        ended = self.app.engine().wait_job(self.batch, self.position, patience)
        if ended is None:
            raise ResultTimeout(f"job {self.id} has not ended after {patience} s; it continues, if a worker runs its kind")
        return self.concluded(ended)

    def concluded(self, ended: Ended) -> R:
        """The result of a job that ended in this way."""
        state, value, error = ended
        if state == "completed" and value is not None:
            result: R = json.loads(value)
            return result if self._job is None else self._job.result_of(result)
        if state is None:
            raise StoreError(value)
        type, message, job_traceback = error or (None, "", None)
        raise JobFailed(self.id, state, type, message, job_traceback)

    def __await__(self) -> Generator[Any, None, R]:
        return self._wait().__await__()

    async def _wait(self) -> R:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()

        def set_result(ended: Ended) -> None:
            if not future.done():
                future.set_result(ended)

        def told(*ended: Any) -> None:
            # The loop may have been closed meanwhile.
            if not loop.is_closed():
                loop.call_soon_threadsafe(set_result, ended)

        self.app.engine().watch_job(self.batch, self.position, told)
        return self.concluded(await future)

    def state(self) -> str:
        """The job's state: "blocked", "waiting", "scheduled", "paused", "running", "completed", "dead", "cancelled" or "expired".

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> app.job(abs).submit(-1, delay="1h").state()
        'scheduled'
        >>> app.close()
        """
        state = self.app.engine().job_state(self.batch, self.position)
        if state is None:
            raise StoreError(f"job {self.id} does not exist, or was pruned")
        return state

    def log(self) -> str | None:
        """What the job printed and logged in its last attempt; None while it runs or where it printed nothing.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> @app.job
        ... def say(word: str) -> None:
        ...     print(word)
        >>> handle = say.submit("hello")
        >>> app.drain(), handle.log()
        (1, 'hello\\n')
        >>> app.close()
        """
        return self.app.engine().job_log(self.batch, self.position)

    def details(self) -> JobDetails | None:
        """Everything that is known of the job; None where it was pruned.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> details = app.job(abs).submit(-1, tags={"customer": "7"}).details()
        >>> details.payload, details.tags, details.row.kind
        (-1, {'customer': '7'}, 'abs')
        >>> app.close()
        """
        return self.app.details(self)

    def cancel(self) -> bool:
        """Cancels the job; whether it had not ended.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> handle = app.job(abs).submit(-1)
        >>> handle.cancel(), handle.cancel(), handle.state()
        (True, False, 'cancelled')
        >>> app.close()
        """
        return self.app.engine().cancel_jobs([(self.batch, self.position)]) > 0


    def send_event(self, name: str, value: Any = None) -> bool:
        """Sends an event to the flow; whether it had not ended. One that the flow does not await yet is kept for it.

        >>> import gristmill
        >>> from gristmill.testing import eager
        >>> app = gristmill.App("jobs.db")
        >>> @app.flow
        ... async def approved(flow) -> str:
        ...     return await flow.event("approve")
        >>> with eager(app):
        ...     handle = approved.submit()
        ...     handle.send_event("approve", "yes"), handle.result()
        (True, 'yes')
        """
        return self.app.send_event(self, name, value)

    def fork(self, from_step: str | int, *, step_key: str | None = None, version: str | None = None) -> Handle[R]:
        """Begins a new instance of the flow, which has ended: with the outcomes of all steps that it began before `from_step`
        (the name of a step, or its number in `gristmill flow show`). This step and what follows run again. `version`: that of
        the new instance. Raises `ForkRefused` where the flow has no such step, or has not ended.

        >>> import gristmill
        >>> from gristmill.testing import temporary_store
        >>> app = gristmill.App("jobs.db")
        >>> @app.job
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> @app.flow
        ... async def quadruple(flow, number: int) -> int:
        ...     doubled = await flow.step(double, number)
        ...     return await flow.step(double, doubled, name="again")
        >>> with temporary_store(app):
        ...     handle = quadruple.submit(21)
        ...     ran = app.drain()
        ...     fork = handle.fork("again")
        ...     ran = app.drain()
        ...     handle.result(), fork.result(), app.counts(job=double)["completed"]
        (84, 84, 3)
        """
        [(_, fork)] = self.app.fork_flows(from_step, self, step_key=step_key, version=version)
        if not isinstance(fork, str):
            raise fork
        batch, _, position = fork.partition(":")
        return Handle(self.app, int(batch), int(position), self._job)


class Submitted(Sequence[Handle[R]]):
    """The jobs of one `submit_many`, in the order of the items. Handles are made when they are asked for.

    >>> jobs = double.submit_many(range(3))
    >>> len(jobs), jobs[-1].id
    (3, '1:2')
    """

    def __init__(self, app: App, batches: Sequence[tuple[int, ...]], job: Job[..., R] | None = None) -> None:
        self.app = app
        self.batches = [(part[0], part[1]) for part in batches]
        # Of batches that are shared with other submits, the position of the one job here.
        self._alone = {at: part[2] for at, part in enumerate(batches) if len(part) > 2}
        self._job = job
        self._starts = [0]
        for _, count in self.batches:
            self._starts.append(self._starts[-1] + count)

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        return f"<{len(self)} gristmill jobs>"

    @overload
    def __getitem__(self, index: int) -> Handle[R]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Handle[R]]: ...

    def __getitem__(self, index: int | slice) -> Handle[R] | list[Handle[R]]:
        import bisect

        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"job {index} of {len(self)}")
        at = bisect.bisect_right(self._starts, place) - 1
        position = self._alone.get(at, place - self._starts[at])
        return Handle(self.app, self.batches[at][0], position, self._job)

    def __iter__(self) -> Iterator[Handle[R]]:
        for at, (batch, count) in enumerate(self.batches):
            first = self._alone.get(at, 0)
            for position in range(first, first + count):
                yield Handle(self.app, batch, position, self._job)

    def results(self, timeout: Span | None = None) -> list[R]:
        """The results of all jobs, in order. Raises as `Handle.result` does; the timeout is for all of them.

        >>> import gristmill, tempfile
        >>> app = gristmill.App(tempfile.mkdtemp() + "/jobs.db")
        >>> jobs = app.job(abs).submit_many([-1, -2])
        >>> app.drain(), jobs.results(), jobs[1].result()
        (2, [1, 2], 2)
        >>> app.close()
        """
        import time

        from ._map import BatchResults

        until = None if timeout is None else time.monotonic() + _patience(timeout)
        convert = None if self._job is None else self._job.shape.result
        engine = self.app.engine()
        results: list[R] = []
        for at, (batch, count) in enumerate(self.batches):
            if at in self._alone:
                left = None if until is None else max(0.0, until - time.monotonic())
                results.append(Handle(self.app, batch, self._alone[at], self._job).result(left))
                continue
            known = BatchResults(batch, count)
            while True:
                for piece in engine.outcomes(batch):
                    known.take(piece, convert)
                if not known.missing:
                    break
                left = None if until is None else max(0.0, until - time.monotonic())
                if engine.wait_job(batch, known.first_missing(), left) is None:
                    raise ResultTimeout(f"jobs of batch {batch} have not ended after {timeout} s; they continue")
            results.extend(known.raised())
        return results

    def places(self) -> list[tuple[int, int | None]]:
        """The batches; of one that is shared with other submits, with the position of the one job here."""
        return [(batch, self._alone.get(at)) for at, (batch, _) in enumerate(self.batches)]

    def prerequisites(self) -> list[str]:
        """The batches, in the form for `after`."""
        return [
            f"{batch}:{self._alone[at]}" if at in self._alone else str(batch) for at, (batch, _) in enumerate(self.batches)
        ]


def _patience(timeout: Span) -> float:
    """The seconds to wait; a negative number means none, as in `concurrent.futures`."""
    return timeout if isinstance(timeout, (int, float)) else seconds(timeout)
