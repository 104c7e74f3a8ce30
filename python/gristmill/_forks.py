"""Forks of a process that has a store open.

SQLite's memory of its locks does not survive a fork: a child that opened the file anew would believe to hold locks that only
its parent has. So a store is closed before a fork, and each side opens it again at its next use. Where it cannot be closed,
since a worker or another thread is using it, the child refuses to open the same file.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._app import App

# Applications of this process with a store in a file that was opened.
opened: weakref.WeakSet[App] = weakref.WeakSet()

# Files that the parent had open when this process was forked.
_inherited: set[str] = set()


def check(store: str) -> None:
    """Fails where this process must not open the file."""
    if os.path.realpath(store) in _inherited:
        raise RuntimeError(
            f"this process was forked while its parent was at work on {store}: fork before a worker or a map begins, or start"
            ' processes by the method "spawn"'
        )


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
