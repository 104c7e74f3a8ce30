"""Datasets of Ray as jobs, and results of jobs as datasets."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from .._app import App
from .._errors import JobFailed, ResultTimeout
from .._handle import Submitted
from .._items.keyed import keyed_portions
from .._items.portions import JOBS_MAX, portions
from .._job import Job
from .._process import stop_import
from .._remote.connection import TOKEN_VARIABLE
from .._remote.engine import FINAL, WAIT_FIRST_S, WAIT_S_MAX, RemoteEngine
from .._values import to_plain

R = TypeVar("R")

# Their types are partial, or there are none: their objects are of any type here.
ray_data: Any = importlib.import_module("ray.data")
pyarrow: Any = importlib.import_module("pyarrow")

# Batches that one task of Ray reads: 100,000 results of full batches.
READ_BATCHES = 100

# Single jobs of one batch that are awaited one by one; for more of them, the end of the whole batch is awaited.
JOBS_AWAITED_MAX = 16

# A batch, and its wanted positions; all of them for None.
_Wanted = tuple[int, list[int] | None]


def submit_rows(
    job: Job[..., R],
    dataset: Any,
    *,
    column: str | None = None,
    key: str | None = None,
    **options: Any,
) -> Submitted[R]:
    """Submits a job for each row of a `ray.data.Dataset`, from the nodes that hold the rows; all are on disk when this returns,
    in no particular order.

    A function of one parameter gets the row as a dict, or with `column` the value of that column; one of several parameters
    gets the columns of their names. `key`: the column with the deduplication key of a row (text): Ray then repeats a portion of
    rows whose node was lost, and no job is submitted twice. Without it, such a portion is not repeated, and the call fails;
    its jobs may be stored. Other options are those of `Job.submit_many`.
    """
    stop_import(f"submit_rows({job.name}, …)")
    _check_server(job.app)
    names = None if column is not None or job.shape.is_single else _parameters(job)
    submit = _Submit(_server(job.app), job.common(**options), names, column, key).submit
    repeats: dict[str, Any] = {} if key is not None else {"max_retries": 0}
    parts = dataset.map_batches(submit, batch_size=JOBS_MAX, batch_format="pyarrow", **repeats).take_all()
    return Submitted(job.app, [tuple(json.loads(part["batch"])) for part in parts], job)


def read_results(
    app: App, batches: Submitted[Any] | Iterable[int], *, timeout: float | None = None, return_exceptions: bool = False
) -> Any:
    """The results of submitted jobs, or of batches by their ids, as a `ray.data.Dataset` that the cluster's nodes read. Waits
    until the jobs have ended.

    Its rows have `job` (such as "42:7"), `state` and `value`; with `return_exceptions`, also `error`, the message of a job
    that did not complete. Otherwise such a job raises `JobFailed` when its part is read. Raises `ResultTimeout` after `timeout`
    seconds.
    """
    _check_server(app)
    wanted = _wanted(batches)
    engine = RemoteEngine(app.store)
    try:
        until = None if timeout is None else time.monotonic() + timeout
        for batch, positions in wanted:
            _wait(engine, batch, positions, until)
    finally:
        engine.close()
    parts = [{"wanted": json.dumps(wanted[first : first + READ_BATCHES])} for first in range(0, len(wanted), READ_BATCHES)]
    read = _Read(_server(app), return_exceptions).read
    return ray_data.from_items(parts, override_num_blocks=len(parts) or None).flat_map(read)


class _Submit:
    """Submits the rows of a table, in a task of Ray."""

    def __init__(
        self,
        server: tuple[str, str | None],
        common: dict[str, Any],
        names: tuple[list[str], list[str]] | None,
        column: str | None,
        key: str | None,
    ) -> None:
        self.server = server
        self.common = common
        # The parameters of a function of several, and those without a default.
        self.names = names
        self.column = column
        self.key = key

    def submit(self, table: Any) -> Any:
        """The batches of the rows, as a table."""
        rows: list[dict[str, Any]] = table.to_pylist()
        key = self.key
        engine = RemoteEngine(*self.server)
        try:
            batches: list[tuple[int, ...]] = []
            if key is None:
                for portion in portions(map(self.payload, rows), to_plain):
                    batches.extend(engine.submit_encoded(self.common, portion))
            else:
                pairs = ((self.payload(row), str(_value(row, key))) for row in rows)
                for payloads, keys in keyed_portions(pairs, to_plain):
                    batches.extend((batch, 1, position) for batch, position in engine.submit_keyed(self.common, payloads, keys, "{}"))
        finally:
            engine.close()
        return pyarrow.table({"batch": [json.dumps(batch) for batch in batches]})

    def payload(self, row: dict[str, Any]) -> Any:
        """The payload of a row."""
        if self.column is not None:
            return _value(row, self.column)
        if self.names is None:
            return row
        names, required = self.names
        unknown, missing = sorted(set(row) - set(names)), sorted(set(required) - set(row))
        if unknown or missing:
            raise TypeError(
                f"the columns {sorted(row)} are not the parameters {names}: select and rename columns, or give a column="
            )
        return row


class _Read:
    """Reads the results of some batches, in a task of Ray."""

    def __init__(self, server: tuple[str, str | None], return_exceptions: bool) -> None:
        self.server = server
        self.return_exceptions = return_exceptions

    def read(self, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The results of the batches of a part."""
        wanted: dict[int, list[int] | None] = dict(json.loads(part["wanted"]))
        engine = RemoteEngine(*self.server)
        try:
            # One batch after the other bounds the memory of an answer.
            for batch, positions in wanted.items():
                among = None if positions is None else set(positions)
                for line in engine.outcome_lines([batch]):
                    if among is None or int(line["job"].partition(":")[2]) in among:
                        yield self.row(line)
        finally:
            engine.close()

    def row(self, line: dict[str, Any]) -> dict[str, Any]:
        """The row of one outcome."""
        error = line.get("error")
        if line["state"] != "completed" and not self.return_exceptions:
            found = () if error is None else (error["type"], error["message"], error.get("traceback"))
            raise JobFailed(line["job"], line["state"], *found)
        row = {"job": line["job"], "state": line["state"], "value": line.get("value")}
        if self.return_exceptions:
            row["error"] = None if error is None else f"{error['type']}: {error['message']}"
        return row


def _check_server(app: App) -> None:
    if not app.is_server:
        raise ValueError(f"the nodes of a cluster ask a server, and {app!r} is none: give the application a server's URL")


def _server(app: App) -> tuple[str, str | None]:
    # The nodes' environment need not have the token.
    return app.store, os.environ.get(TOKEN_VARIABLE)


def _parameters(job: Job[..., Any]) -> tuple[list[str], list[str]]:
    parameters = job.shape.signature.parameters.values()
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    return job.shape.names, required


def _value(row: dict[str, Any], column: str) -> Any:
    if column not in row:
        raise TypeError(f"there is no column {column!r}; there are {sorted(row)}")
    return row[column]


def _wanted(batches: Submitted[Any] | Iterable[int]) -> list[_Wanted]:
    if not isinstance(batches, Submitted):
        return [(int(batch), None) for batch in batches]
    found: list[_Wanted] = []
    for batch, parts in itertools.groupby(sorted(batches.places(), key=lambda place: place[0]), lambda place: place[0]):
        positions = [position for _, position in parts]
        found.append((batch, None if None in positions else [position for position in positions if position is not None]))
    return found


def _wait(engine: RemoteEngine, batch: int, positions: list[int] | None, until: float | None) -> None:
    """Waits until the jobs of a batch have ended."""
    if positions is not None and len(positions) <= JOBS_AWAITED_MAX:
        for position in positions:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            if engine.wait_job(batch, position, left_s) is None:
                raise ResultTimeout(f"job {batch}:{position} has not ended; it continues")
        return
    wait_s = WAIT_FIRST_S
    while True:
        states = engine.counts(batch=batch)
        if not sum(jobs for state, jobs in states.items() if state not in FINAL):
            return
        left_s = wait_s if until is None else min(wait_s, until - time.monotonic())
        if left_s <= 0:
            raise ResultTimeout(f"the jobs of batch {batch} have not ended; they continue")
        engine.wait_batch(batch, left_s)
        wait_s = min(2 * wait_s, WAIT_S_MAX)
