"""Submits within a transaction on the store's own file, over connections of the module `sqlite3`.

The extension module prepares the rows of the jobs, and the connection inserts them. The store is not opened for it: two libraries
of SQLite in one process must not have the same file open. The system gives the locks of a file to the process, so each library
would take the locks of the other for its own, and both would write at once.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _forks
from .._native import submit_over
from .._values import to_plain

if TYPE_CHECKING:
    from .._app import App

# The first version of SQLite that reads the store's tables.
VERSION_MIN = (3, 37, 0)
# Jobs that are prepared and inserted at once.
PORTION_JOBS = 1_000


def submit_one(app: App, connection: Any, common: dict[str, Any], payload: Any, key: str | None) -> tuple[int, int]:
    """Submits one job. Returns its batch and position."""
    if key is not None:
        raise ValueError(
            "key= is not for submits within a transaction on a file: give the table of your rows a UNIQUE column, so that a repeat"
            " fails with its row"
        )
    [(batch, _)] = submit_many(app, connection, common, [payload])
    return batch, 0


def submit_many(app: App, connection: Any, common: dict[str, Any], payloads: Iterable[Any]) -> list[tuple[int, int]]:
    """Submits jobs. Returns their batches, with the numbers of jobs."""
    if "cached_ms" in json.loads(common["options"]):
        raise ValueError("cached= is not for submits within a transaction: omit it, or submit without connection=")
    driver = _driver_connection(connection)
    cursor = driver.cursor()
    # Rows are tuples here, whatever the connection's own are.
    cursor.row_factory = None
    _check(app, driver, cursor)
    begins = not driver.in_transaction
    if begins:
        cursor.execute("BEGIN IMMEDIATE")
    cursor.execute("SAVEPOINT gristmill_submit")
    submitted: list[tuple[int, int]] = []
    try:
        query = functools.partial(_query, cursor)
        now_ms = None if app.clock is None else app.clock.now_ms()
        for portion in _portions(payloads):
            submitted += submit_over(common, portion, to_plain, app.store, query, cursor.executemany, now_ms)
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back by itself.
        if driver.in_transaction:
            cursor.execute("ROLLBACK" if begins else "ROLLBACK TO gristmill_submit")
        if driver.in_transaction:
            cursor.execute("RELEASE gristmill_submit")
        raise
    cursor.execute("RELEASE gristmill_submit")
    return submitted


def _query(cursor: sqlite3.Cursor, sql: str, parameters: Any) -> list[Any]:
    return cursor.execute(sql, parameters).fetchall()


def _portions(payloads: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(payloads)
    while portion := list(itertools.islice(left, PORTION_JOBS)):
        yield portion


def _driver_connection(connection: Any) -> sqlite3.Connection:
    """The connection of `sqlite3` that this is, or that a library wraps."""
    modules = [of.__module__.partition(".")[0] for of in type(connection).__mro__]
    driver: Any = connection
    if hasattr(connection, "sync_session") or hasattr(connection, "sync_connection"):
        raise TypeError("connections to a store in a file are not asynchronous: give a synchronous one")
    if "sqlalchemy" in modules:
        # The session's own, which begins its transaction.
        of_session = getattr(connection, "connection", None)
        core: Any = of_session() if callable(of_session) else connection
        if not core.in_transaction():
            core.begin()
        driver = core.connection.driver_connection
    elif "django" in modules:
        connection.ensure_connection()
        driver = connection.connection
    if not isinstance(driver, sqlite3.Connection):
        raise TypeError(
            f"connection= is a {type(driver).__qualname__}, and the store is in a file: give a connection of sqlite3, or one of"
            " SQLAlchemy or Django over sqlite3, to that file"
        )
    return driver


def _check(app: App, driver: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    """Refuses an unsuitable connection."""
    if sqlite3.sqlite_version_info < VERSION_MIN:
        raise RuntimeError(f"the module sqlite3 has SQLite {sqlite3.sqlite_version}; the store's tables need 3.37 or newer")
    if _forks.is_open(app.store):
        raise RuntimeError(
            f"this process has {app.store} open as a store, too, whose library of SQLite is another one: close the application"
            " before connecting, and run workers in processes of their own"
        )
    files = [row[2] for row in cursor.execute("PRAGMA database_list") if row[1] in ("main", b"main")]
    place = os.fsdecode(files[0]) if files else ""
    if not place or not os.path.exists(app.store) or not os.path.samefile(place, app.store):
        raise ValueError(f"connection= is to {place or 'no file'}, but the store is {app.store}: connect to that file")
    is_autocommit = getattr(driver, "autocommit", None) is True
    if not driver.in_transaction and (is_autocommit or driver.isolation_level is None):
        raise ValueError(
            'the connection has no transaction: begin one, by execute("BEGIN IMMEDIATE") or, in Django, by transaction.atomic()'
        )
