"""Makes a difference small: fewer clauses, then fewer rows."""

from .comparison import Pair, ServerLost
from .column_types import COLLATIONS_SETUP, quoted
from .queries import Query

ATTEMPTS_MAX = 400
SHRUNK_SUFFIX = "_few"


class Minimiser:
    """Shrinks a query that differs, as long as it goes on differing."""

    def __init__(self, pair: Pair):
        self.pair = pair
        self.attempts = 0

    def _still_differs(self, query: Query) -> bool:
        self.attempts += 1
        return self.attempts <= ATTEMPTS_MAX and self.pair.differs(query)

    def query(self, query: Query) -> Query:
        """The smallest query found by leaving out one piece at a time."""
        shrunk = True
        while shrunk:
            shrunk = False
            for smaller in query.smaller():
                if self._still_differs(smaller):
                    query, shrunk = smaller, True
                    break
        return query

    def rows(self, query: Query):
        """The query over a freshly written table with few rows, and the statements that make that table.

        Returns None if the difference needs the original table's layout.
        """
        if len({table.name for table in query.tables}) != 1 or query.tables[0].kind == "partitioned":
            return None
        table = query.tables[0]
        session = self.pair.stock
        rows = session.must(f"select {', '.join(column.name for column in table.columns)} from {table.name}")
        small = Query(**vars(query))
        small.source = query.source.replace(f"{table.name} ", f"{table.name}{SHRUNK_SUFFIX} ")
        if small.source == query.source or not self._with_rows(table, small, rows):
            return None
        chunk = max(1, len(rows) // 2)
        while chunk >= 1 and self.attempts < ATTEMPTS_MAX:
            for start in range(0, len(rows), chunk):
                fewer = rows[:start] + rows[start + chunk:]
                if self._with_rows(table, small, fewer):
                    rows = fewer
                    break
            else:
                chunk //= 2
        return small, self._statements(table, rows)

    def _with_rows(self, table, query: Query, rows: list) -> bool:
        session = self.pair.stock
        for statement in self._statements(table, rows):
            session.must(statement)
        differs = self._still_differs(query)
        session.must(f"drop table {table.name}{SHRUNK_SUFFIX}")
        return differs

    def _statements(self, table, rows: list) -> list:
        name = table.name + SHRUNK_SUFFIX
        statements = [f"create {'temporary ' if table.is_temporary else ''}table {name} ({table.declared()})"]
        if rows:
            tuples = ["(" + ", ".join("null" if value is None else quoted(value.decode()) for value in row) + ")"
                      for row in rows]
            statements.append(f"insert into {name} values\n" + ",\n".join(tuples))
        return statements


def script(seed: int, settings: list, setup: list, concurrent: list, query: Query, found: str) -> str:
    """A psql script that shows the difference."""
    lines = [f"-- Found by the differential check, seed {seed}.", f"-- {found.replace(chr(10), chr(10) + '-- ')}",
             "load 'pg_batchexec';", "set synchronize_seqscans = off;", "set extra_float_digits = 3;",
             "set timezone = 'UTC';", "set jit = off;"]
    lines += [f"{statement};" for statement in (*COLLATIONS_SETUP, *setup, *settings)]
    if concurrent:
        lines.append("-- Meanwhile another session has run, and not committed:")
        lines += [f"--   {line[:300]}" for statement in concurrent for line in f"{statement};".split("\n")]
    for mode in ("forbid", "prefer"):
        lines.append(f"set batchexec.mode = {mode};")
        lines += [f"{statement};" for statement in query.statements()]
    lines.append(f"explain (verbose, costs off) {query.explained()};")
    return "\n".join(lines) + "\n"


def minimised(seed: int, pair: Pair, settings: list, concurrent: list, query: Query, found: str) -> str:
    """The script for a difference, as small as could be made."""
    setup = [statement for table in query.tables for statement in table.setup]
    try:
        minimiser = Minimiser(pair)
        query = minimiser.query(query)
        setup = [statement for table in {table.name: table for table in query.tables}.values()
                 for statement in table.setup]
        if not pair.savepoint:
            fewer = minimiser.rows(query)
            if fewer:
                query, setup = fewer
                concurrent = []
    except (ServerLost, RuntimeError) as failure:
        found += f"\n(minimising stopped: {failure})"
    return script(seed, settings, setup, concurrent, query, found)
