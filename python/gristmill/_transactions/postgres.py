"""Submits within a transaction of the caller's, by the SQL function `gristmill.submit` of a store in PostgreSQL.

Connections of psycopg (2 and 3), asyncpg, SQLAlchemy and Django serve; none of these libraries is imported unless its connection
is given. For a store in a file, `sqlite` does the same.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .._items.portions import encoded, portions
from .._values import to_plain

if TYPE_CHECKING:
    from .._app import App

# Its arguments in this order, each once.
ARGUMENTS = ("kind", "payloads", "queue", "priority", "delay_s", "expires_s", "options")
# The payloads travel as one JSON list: drivers differ in how they send arrays.
_STATEMENT = (
    "SELECT * FROM gristmill.submit(CAST({kind} AS text),"
    " ARRAY(SELECT p.value FROM json_array_elements(CAST({payloads} AS json)) WITH ORDINALITY AS p(value, n) ORDER BY p.n),"
    " CAST({queue} AS text), CAST({priority} AS integer),"
    " clock_timestamp() + make_interval(secs => CAST({delay_s} AS double precision)),"
    " clock_timestamp() + make_interval(secs => CAST({expires_s} AS double precision)),"
    " CAST({options} AS jsonb))"
)

Ids = list[tuple[int, int]]


class Call:
    """One call of the function."""

    def __init__(self, common: dict[str, Any], payloads: list[str], key: str | None = None, unique: str | None = None) -> None:
        options = json.loads(common["options"])
        if "cached_ms" in options:
            raise ValueError("cached= is not for submits within a transaction: omit it, or submit without connection=")
        priority = options.pop("priority", 0)
        if common["tags"]:
            options["tags"] = dict(common["tags"])
        if common["after"]:
            options["after"] = common["after"]
        if key is not None:
            options.update(key=key, unique=json.loads(unique or "{}"))
        self.values: dict[str, Any] = {
            "kind": common["kind"],
            "payloads": f"[{','.join(payloads)}]",
            "queue": common["queue"],
            "priority": priority,
            "delay_s": _seconds(common["delay_ms"]),
            "expires_s": _seconds(common["expires_ms"]),
            "options": json.dumps(options),
        }

    def statement(self, place: Callable[[int, str], str]) -> str:
        """The statement, with the driver's placeholders: `place` returns the placeholder for an argument's number (from 1) and name."""
        return _STATEMENT.format(**{name: place(number, name) for number, name in enumerate(ARGUMENTS, 1)})

    def in_order(self) -> list[Any]:
        """The arguments' values."""
        return [self.values[name] for name in ARGUMENTS]


def submit_one(
    app: App, connection: Any, common: dict[str, Any], payload: Any, key: str | None, unique: str | None
) -> tuple[int, int]:
    """Submits one job. Returns its batch and position."""
    if app.is_file:
        from . import sqlite

        return sqlite.submit_one(app, connection, common, payload, key)
    [job] = _submit(app, connection, _one(common, payload, key, unique))
    return job


def submit_many(app: App, connection: Any, common: dict[str, Any], payloads: Iterable[Any]) -> list[tuple[int, ...]]:
    """Submits jobs: their batches with the numbers of jobs, and of one that other submits share with the position of the job."""
    batches: list[tuple[int, ...]] = []
    if app.is_file:
        from . import sqlite

        batches.extend(sqlite.submit_many(app, connection, common, payloads))
        return batches
    for portion in portions(payloads, to_plain):
        jobs = _submit(app, connection, Call(common, portion))
        for batch, run in itertools.groupby(jobs, lambda job: job[0]):
            positions = [position for _, position in run]
            batches.append((batch, 1, positions[0]) if len(positions) == 1 else (batch, len(positions)))
    return batches


def _one(common: dict[str, Any], payload: Any, key: str | None, unique: str | None) -> Call:
    """The call that submits one job."""
    return Call(common, [encoded(payload, to_plain)], key, unique)


def _submit(app: App, connection: Any, call: Call) -> Ids:
    """Runs a call on a connection, and returns the ids of the jobs."""
    family = _family(app, connection)
    if family == "sqlalchemy":
        from sqlalchemy import text

        rows = connection.execute(text(call.statement(_named)), call.values).all()
    elif family in ("psycopg", "psycopg2", "django"):
        with _cursor(family, connection) as cursor:
            cursor.execute(call.statement(_marked), call.in_order())
            rows = cursor.fetchall()
    else:
        raise TypeError("asyncpg's connections are asynchronous: await submit_async(…, connection=…)")
    return _ids(rows)


async def submit_async(
    app: App, connection: Any, common: dict[str, Any], payload: Any, key: str | None, unique: str | None
) -> tuple[int, int]:
    """Submits one job on an asynchronous connection."""
    if app.is_file:
        raise TypeError("connections to a store in a file are not asynchronous: call submit(…, connection=…)")
    [job] = await _submit_async(app, connection, _one(common, payload, key, unique))
    return job


async def _submit_async(app: App, connection: Any, call: Call) -> Ids:
    family = _family(app, connection)
    if family == "asyncpg":
        return _ids(await connection.fetch(call.statement(_numbered), *call.in_order()))
    if family == "sqlalchemy":
        from sqlalchemy import text

        result = await connection.execute(text(call.statement(_named)), call.values)
        return _ids(result.all())
    if family == "psycopg":
        async with _cursor(family, connection) as cursor:
            await cursor.execute(call.statement(_marked), call.in_order())
            return _ids(await cursor.fetchall())
    raise TypeError(f"a {type(connection).__qualname__} is not asynchronous: call submit(…, connection=…)")


def _named(number: int, name: str) -> str:
    """SQLAlchemy's placeholder."""
    return f":{name}"


def _numbered(number: int, name: str) -> str:
    """asyncpg's placeholder."""
    return f"${number}"


def _marked(number: int, name: str) -> str:
    """psycopg's placeholder."""
    return "%s"


def _cursor(family: str, connection: Any) -> Any:
    """A cursor whose rows are tuples, whatever rows the connection normally returns."""
    if family == "psycopg":
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)
    if family == "psycopg2":
        from psycopg2.extensions import cursor

        return connection.cursor(cursor_factory=cursor)
    return connection.cursor()


def _family(app: App, connection: Any) -> str:
    """The library of a connection."""
    modules = [of.__module__.partition(".")[0] for of in type(connection).__mro__]
    if app.is_server:
        raise TypeError(f"connection= needs a store in PostgreSQL or in a file, and {app!r} is a server")
    if "sqlite3" in modules:
        raise TypeError(f"connection= is to a file of SQLite, and {app!r} is in PostgreSQL: connect to its database")
    for family in ("sqlalchemy", "psycopg", "psycopg2", "asyncpg", "django"):
        if family in modules:
            return family
    raise TypeError(
        f"connection= is a {type(connection).__qualname__}: give a connection of psycopg, asyncpg, SQLAlchemy or Django"
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _ids(rows: Iterable[Any]) -> Ids:
    found: Ids = []
    for row in rows:
        batch, _, position = row[0].partition(":")
        found.append((int(batch), int(position)))
    return found
