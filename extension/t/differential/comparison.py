"""Running one query batched and as stock, and saying whether the two agree."""

from dataclasses import dataclass

from psycopg import pq

from .queries import Query

SESSION_SETUP = ("set synchronize_seqscans = off; set extra_float_digits = 3; set timezone = 'UTC'; "
                 "set lock_timeout = '2s'; set statement_timeout = '60s'; set client_min_messages = error; "
                 "set jit = off")
# Two errors of these classes say that the generator wrote no valid query, not that the query failed.
INVALID_CLASSES = ("42",)
BATCHED_MARK = b"Custom Scan (Batch"
ROWS_SHOWN_MAX = 8


class ServerLost(Exception):
    """The connection broke: the server crashed or closed it."""


@dataclass
class Answer:
    """What the statements of a query gave: per statement an SQLSTATE or the rows; ends at an error."""
    outcomes: list

    @property
    def error(self) -> str:
        return self.outcomes[-1][1] if self.outcomes and self.outcomes[-1][0] == "error" else ""

    def canonical(self, is_ordered: bool, sorted_columns: int = 0) -> list:
        """The same answer with the rows sorted, unless their order is part of it, or that of some columns."""
        if is_ordered:
            return self.outcomes
        if sorted_columns:
            return [(kind, [row[:sorted_columns] for row in rows] + sorted(rows, key=_sort_key)) if kind == "rows" else (kind, rows)
                    for kind, rows in self.outcomes]
        return [(kind, sorted(rows, key=_sort_key)) if kind == "rows" else (kind, rows)
                for kind, rows in self.outcomes]


def _sort_key(row: tuple) -> list:
    return [(value is None, value or b"") for value in row]


class Session:
    """A connection to the server under test."""

    def __init__(self, conninfo: str, setup=()):
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise ServerLost(self.connection.error_message.decode())
        for statement in (SESSION_SETUP, *setup):
            self.must(statement)

    def run(self, statement: str) -> tuple:
        """("rows", rows), ("done", command tag) or ("error", SQLSTATE)."""
        result = self.connection.exec_(statement.encode())
        if result.status == pq.ExecStatus.TUPLES_OK:
            columns = range(result.nfields)
            return "rows", [tuple(result.get_value(row, column) for column in columns)
                            for row in range(result.ntuples)]
        if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
            return "done", (result.command_status or b"").decode()
        if self.connection.status != pq.ConnStatus.OK:
            raise ServerLost(f"{result.error_message.decode().strip()} in: {statement}")
        self.message = result.error_message.decode().strip()
        return "error", (result.error_field(pq.DiagnosticField.SQLSTATE) or b"?").decode()

    def must(self, statement: str) -> list:
        """Run a statement that has to succeed; its rows."""
        kind, value = self.run(statement)
        if kind == "error":
            raise RuntimeError(f"{value} {self.message} in: {statement[:2000]}")
        return value

    def answer(self, query: Query, savepoint: bool = False) -> Answer:
        """Run the query's statements up to the first error and leave the session as it was."""
        statements = query.statements()
        if savepoint:
            self.must("savepoint around")
        outcomes = []
        for statement in statements:
            outcomes.append(self.run(statement))
            if outcomes[-1][0] == "error":
                break
        if savepoint:
            self.must("rollback to around")
        elif outcomes[-1][0] == "error" and statements[0].startswith("begin"):
            self.must("rollback")
        if any(statement.startswith("prepare") for statement in statements):
            self.must("deallocate all")
            self.must("reset plan_cache_mode; reset batchexec.enabled")
        return Answer(outcomes)

    def use(self, mode: str) -> None:
        """Switch between `prefer` (batched) and `forbid` (stock)."""
        self.must(f"set batchexec.mode = {mode}")

    def explain(self, query: Query, analyze: bool = False, savepoint: bool = False) -> tuple:
        """The outcome of EXPLAIN VERBOSE of the query, with ANALYZE on demand."""
        prepare = [statement for statement in query.statements() if statement.startswith(("prepare", "set plan"))]
        for statement in prepare:
            self.must(statement)
        options = "verbose, costs off" + (", analyze, timing off, summary off, buffers" if analyze else "")
        if savepoint:
            self.must("savepoint explaining")
        outcome = self.run(f"explain ({options}) {query.explained()}")
        if savepoint:
            # An error has aborted the transaction; the statements below need it in order.
            self.must("rollback to explaining")
        if prepare:
            self.must("deallocate all")
            self.must("reset plan_cache_mode")
        return outcome


def is_batched(explained: tuple) -> bool:
    """Whether a plan, as Session.explain gives it, holds a batched node."""
    kind, rows = explained
    return kind == "rows" and any(BATCHED_MARK in row[0] for row in rows)


class Pair:
    """Two ways to answer the same query: `batched` and `stock` sessions, which may be one session."""

    def __init__(self, batched: Session, stock: Session, savepoint: bool = False):
        self.batched = batched
        self.stock = stock
        self.savepoint = savepoint

    def answers(self, query: Query, stock_first: bool = False) -> dict:
        taken = {}
        for side in ("stock", "batched") if stock_first else ("batched", "stock"):
            session = getattr(self, side)
            session.use("prefer" if side == "batched" else "forbid")
            taken[side] = session.answer(query, self.savepoint)
        return taken

    def differs(self, query: Query, stock_first: bool = False) -> bool:
        taken = self.answers(query, stock_first)
        return difference(query, taken) is not None


def difference(query: Query, taken: dict):
    """None when the answers agree; else a few lines that say how they differ."""
    batched, stock = (taken[side].canonical(query.is_ordered, query.sorted_columns) for side in ("batched", "stock"))
    if batched == stock:
        return None
    for number, (got, expected) in enumerate(zip(batched, stock)):
        if got != expected:
            return f"statement {number + 1}: {_described(expected, got)}"
    return f"{len(batched)} statements ran batched, {len(stock)} as stock"


def _described(expected: tuple, got: tuple) -> str:
    if expected[0] != "rows" or got[0] != "rows":
        return f"stock gives {_outcome(expected)}, batched gives {_outcome(got)}"
    if sorted(expected[1], key=_sort_key) == sorted(got[1], key=_sort_key):
        return f"the same {len(got[1])} rows in another order"
    missing = [row for row in expected[1] if row not in got[1]][:ROWS_SHOWN_MAX]
    surplus = [row for row in got[1] if row not in expected[1]][:ROWS_SHOWN_MAX]
    return (f"stock gives {len(expected[1])} rows, batched {len(got[1])}\n"
            f"  in stock only: {_rows(missing)}\n  in batched only: {_rows(surplus)}")


def _outcome(outcome: tuple) -> str:
    kind, value = outcome
    return f"{len(value)} rows {_rows(value[:ROWS_SHOWN_MAX])}" if kind == "rows" else f"{kind} {value}"


def _rows(rows: list) -> str:
    return "; ".join("(" + ", ".join("NULL" if value is None else value.decode(errors="replace")[:60]
                                     for value in row) + ")" for row in rows) or "none"
