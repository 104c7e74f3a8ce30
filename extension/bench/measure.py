"""Timing one query, stock against batched, in one session.

CPU time is the server's own (`log_statement_stats`: getrusage of the backend around one statement,
microseconds), wall time is the client's. The two sides take turns, so a slow moment of the machine
falls on both.
"""

import re
import statistics
import time
from dataclasses import dataclass

from psycopg import pq

WARM_UP_RUNS = 2
USAGE = re.compile(rb"([0-9.]+) s user, ([0-9.]+) s system, ([0-9.]+) s elapsed")


class QueryFailed(Exception):
    """A statement of the benchmark was refused; the message holds the server's and the statement."""


@dataclass
class Timing:
    """Medians of one side, in milliseconds."""
    cpu_ms: float
    wall_ms: float


class Session:
    """One connection that knows how to time a statement."""

    def __init__(self, conninfo: str):
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise QueryFailed(self.connection.error_message.decode())
        self._usage = None
        self.connection.notice_handler = self._take_notice

    def _take_notice(self, notice) -> None:
        detail = notice.error_field(pq.DiagnosticField.MESSAGE_DETAIL) or b""
        found = USAGE.search(detail)
        if found:
            self._usage = float(found[1]) + float(found[2])

    def execute(self, sql: str) -> list:
        """Run one or more statements; the last one's rows as lists of text."""
        result = self.connection.exec_(sql.encode())
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise QueryFailed(f"{result.error_message.decode().strip()} in: {sql}")
        return [[value.decode() if (value := result.get_value(row, column)) is not None else None
                 for column in range(result.nfields)] for row in range(result.ntuples)]

    def count_usage(self) -> None:
        """Have the server report each statement's CPU time from now on."""
        self.execute("set client_min_messages = log")
        self.execute("set log_statement_stats = on")

    def time(self, sql: str) -> Timing:
        """Run the statement once."""
        command = sql.encode()
        self._usage = None
        start = time.perf_counter()
        result = self.connection.exec_(command)
        wall_s = time.perf_counter() - start
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise QueryFailed(f"{result.error_message.decode().strip()} in: {sql}")
        if self._usage is None:
            raise QueryFailed("the server reported no CPU time; is log_statement_stats on?")
        return Timing(self._usage * 1e3, wall_s * 1e3)

    def batched_nodes(self, sql: str) -> int:
        """How many nodes of the plan run batched."""
        return sum("Custom Scan (Batch" in row[0] for row in self.execute(f"explain (costs off) {sql}"))


def median(timings: list) -> Timing:
    return Timing(statistics.median(timing.cpu_ms for timing in timings),
                  statistics.median(timing.wall_ms for timing in timings))


def take_turns(sides: dict, rounds: int) -> dict:
    """Time several sides alternately. `sides` maps a name to a function that runs it once.

    Returns the median Timing of each name over `rounds` turns, after a warm-up of no more turns.
    """
    taken = {name: [] for name in sides}
    for turn in range(-min(WARM_UP_RUNS, rounds), rounds):
        for name, run_once in sides.items():
            timing = run_once()
            if turn >= 0:
                taken[name].append(timing)
    return {name: median(timings) for name, timings in taken.items()}


def on_and_off(session: Session, sql: str, rounds: int, before: str = "") -> dict:
    """`stock` and `batched` Timings of one statement, batchexec.enabled toggled between the runs.

    What is to run `before` each of them is not timed.
    """
    def side(enabled: str):
        def run_once() -> Timing:
            session.execute(f"{before}; set batchexec.enabled = {enabled}")
            return session.time(sql)
        return run_once
    return take_turns({"stock": side("off"), "batched": side("on")}, rounds)
