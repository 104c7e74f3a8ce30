"""For tests of applications."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from ._app import App

# Files here are kept in memory, where the system has it.
_MEMORY = "/dev/shm"


@contextlib.contextmanager
def temporary_store(app: App) -> Iterator[App]:
    """Gives an application a new, empty store for the time of a `with` block.

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
    before = app.store, app.durable
    folder = tempfile.mkdtemp(prefix="gristmill-test-", dir=_MEMORY if os.path.isdir(_MEMORY) else None)
    app.close()
    app.store, app.durable = os.path.join(folder, "jobs.db"), False
    try:
        yield app
    finally:
        app.close()
        app.store, app.durable = before
        shutil.rmtree(folder, ignore_errors=True)
