"""Tools for tests of applications: an empty store, a clock that tests move, jobs that run at once, and checks of submits."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from typing import Any

from .._app import App
from .._job import Job
from .._values import to_plain
from .clock import Clock
from .eager import EagerEngine
from .flows import run_flow

__all__ = ["Clock", "assert_submitted", "eager", "run_flow", "submitted", "temporary_store"]

# Files here are kept in memory, where the system has it.
_MEMORY = "/dev/shm"

# An empty store, once one was made. Its tables take longer to make than to copy, and a suite makes hundreds of stores.
_empty: bytes | None = None


@contextlib.contextmanager
def temporary_store(app: App, clock: Clock | None = None) -> Generator[App, None, None]:
    """Gives an application a new, empty store for the time of a `with` block. With a clock, the store has its time.

    >>> import gristmill
    >>> app = gristmill.App("jobs.db")
    >>> @app.job
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> with temporary_store(app):
    ...     handle = double.submit(21)
    ...     app.drain(), handle.result()
    (1, 42)
    """
    before = app.store, app.durable, app.clock
    folder = tempfile.mkdtemp(prefix="gristmill-test-", dir=_MEMORY if os.path.isdir(_MEMORY) else None)
    app.close()
    app.store, app.durable = os.path.join(folder, "jobs.db"), False
    app.clock = clock
    try:
        _make_empty(app.store)
        yield app
    finally:
        app.close()
        app.store, app.durable, app.clock = before
        shutil.rmtree(folder, ignore_errors=True)


def _make_empty(place: str) -> None:
    """Makes an empty store in a file."""
    global _empty
    if _empty is None:
        from .._native import Engine

        Engine.open_for_tests(place, 0).close()
        with open(place, "rb") as file:
            _empty = file.read()
        return
    with open(place, "xb", opener=_private) as file:
        file.write(_empty)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def eager(app: App) -> Generator[App, None, None]:
    """Within the `with` block, a submit runs the job at once, in this thread, and nothing is stored. Delays, prerequisites and
    keys are not heeded. A job that fails is retried without delay, and its handle raises `JobFailed` as always.

    >>> import gristmill
    >>> app = gristmill.App("jobs.db")
    >>> @app.job
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> with eager(app):
    ...     double.submit(21).result()
    42
    """
    app.close()
    app.run_eagerly(EagerEngine(app))
    try:
        yield app
    finally:
        app.close()


def submitted(job: Job[..., Any]) -> list[Any]:
    """The payloads of the job that were submitted, in order, as JSON has them: at most 10,000.

    >>> jobs = double.submit_many([1, 2])
    >>> submitted(double)
    [1, 2]
    """
    return [json.loads(payload) for payload in job.app.engine().payloads(job.name)]


def assert_submitted(job: Job[..., Any], *payloads: Any) -> None:
    """Fails unless exactly these payloads were submitted, in this order. A payload of several parameters is a dict of them.

    >>> handle = double.submit(1)
    >>> assert_submitted(double, 1)
    >>> assert_submitted(double, 2)
    Traceback (most recent call last):
    AssertionError: double was submitted with [1], and not with [2]
    """
    expected = json.loads(json.dumps(payloads, default=to_plain))
    found = submitted(job)
    if found != expected:
        raise AssertionError(f"{job.name} was submitted with {found!r}, and not with {expected!r}")
