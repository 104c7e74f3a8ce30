"""What must not happen to a file that a process has open: a fork, and a second library of SQLite.

SQLite's memory of its locks does not survive a fork: a child that opened the file anew would believe to hold locks that only
its parent has. So a store is closed before a fork, and each side opens it again at its next use. Where it cannot be closed,
since a worker or another thread is using it, the child refuses to open the same file.

The system gives the locks of a file to the process. The libraries of SQLite in this package and in the module `sqlite3` would take
each other's locks for their own, and both would write at once. So a store refuses to open a file that `sqlite3` has open.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._app import App

# Applications of this process with a store in a file that was opened.
opened: weakref.WeakSet[App] = weakref.WeakSet()

# Files that the parent had open when this process was forked.
_inherited: set[str] = set()


# How long the last query of a store that was closed may take to let go of its file. Seconds.
CLOSING_S = 2.0


def is_open(store: str) -> bool:
    """Reports whether this process has the file open as a store."""
    return any(app.is_open() and _is_same(app.store, store) for app in list(opened))


def check(store: str) -> None:
    """Fails if this process must not open the file."""
    # First, since such a child has descriptors of the file from its parent.
    if os.path.realpath(store) in _inherited:
        raise RuntimeError(
            f"this process was forked while its parent was at work on {store}: fork before a worker or a map begins, or start"
            ' processes by the method "spawn"'
        )
    _check_other_libraries(store)


def _check_other_libraries(store: str) -> None:
    # Where the file is open as a store, whose descriptors are whose cannot be told.
    if "sqlite3" not in sys.modules or is_open(store):
        return
    until = time.monotonic() + CLOSING_S
    while _has_descriptor(store):
        if time.monotonic() >= until:
            raise RuntimeError(
                f"this process has {store} open by another library of SQLite, such as the module sqlite3: close those connections"
                " first, or use the store in a process of its own"
            )
        time.sleep(0.01)


def _has_descriptor(store: str) -> bool:
    """Whether this process has the file open. Opening and closing it here would take the locks of others away."""
    try:
        file = os.stat(store)
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            found = os.stat(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if os.path.samestat(found, file):
            return True
    return False


def _is_same(store: str, other: str) -> bool:
    try:
        return os.path.samefile(store, other)
    except OSError:
        return os.path.realpath(store) == os.path.realpath(other)


def _before() -> None:
    from ._native import calls_open
    from ._work import running

    if calls_open() == 0 and not running():
        for app in list(opened):
            app.close()


def _after_in_child() -> None:
    for app in list(opened):
        if app.is_open():
            _inherited.add(os.path.realpath(app.store))
    opened.clear()


os.register_at_fork(before=_before, after_in_child=_after_in_child)
