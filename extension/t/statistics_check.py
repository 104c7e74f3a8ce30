#!/usr/bin/env python3
"""pg_stat_batchexec counts what batched nodes do, in all sessions.

    make -C extension test-statistics
"""

import argparse
import re
import unittest

from prerequisites import (EXTENSION_DIRECTORY, LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite,
                           inside_python_environment, run_check)
from server import Server, stop_on_signals

ROWS = 50_000
SETTINGS = {"max_parallel_workers_per_gather": "0", "jit": "off"}
TABLE = (f"create table rows as select x as a, x % 10 as b from generate_series(1, {ROWS}) x",
         "vacuum (freeze, analyze) rows", "create table copies (a int, b int)")
PARALLEL = ("set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; "
            "set min_parallel_table_scan_size = 0")


def script(library: str) -> str:
    """The extension's SQL of all versions, for a library that is not installed."""
    texts = [(EXTENSION_DIRECTORY / f"pg_batchexec--{versions}.sql").read_text() for versions in ("1.0", "1.0--1.1")]
    return re.sub(r"^\\echo.*$", "", "\n".join(texts), flags=re.M).replace("MODULE_PATHNAME", library)


class Statistics(unittest.TestCase):
    """Each test begins with counters at zero."""

    server = None

    def setUp(self):
        self.session = comparison.Session(self.server.conninfo())
        self.session.must("select pg_stat_batchexec_reset()")

    def row(self, node: str) -> dict:
        names = ("runs", "original_runs", "batches", "rows", "pages", "saved_cost")
        values = self.session.must(f"select {', '.join(names)} from pg_stat_batchexec where node = '{node}'")[0]
        return {name: None if value is None else float(value) for name, value in zip(names, values)}

    def run_elsewhere(self, *statements: str) -> None:
        """In a session of its own."""
        session = comparison.Session(self.server.conninfo())
        for statement in statements:
            session.must(statement)

    def test_counts_rows_and_pages(self):
        pages = float(self.session.must("select relpages from pg_class where relname = 'rows'")[0][0])
        self.run_elsewhere("select sum(a) from rows", "select sum(a) from rows where b = 3")
        found = self.row("BatchAgg")
        self.assertEqual((found["runs"], found["original_runs"]), (2, 0))
        self.assertEqual((found["batches"], found["rows"], found["pages"]), (2 * pages, 2 * ROWS, 2 * pages))
        self.assertGreater(found["saved_cost"], 2 * ROWS * 0.007)
        self.assertEqual(self.row("BatchScan")["runs"], 0)

    def test_counts_what_workers_read(self):
        self.run_elsewhere(PARALLEL, "select sum(a) from rows", "select a from rows where b = 3")
        self.assertEqual(self.row("BatchAgg")["rows"], ROWS)
        self.assertEqual(self.row("BatchScan")["rows"], ROWS)

    def test_counts_rows_that_are_gathered(self):
        self.run_elsewhere(f"select sum(g), count(*), max(g) from generate_series(1, {ROWS}) g")
        found = self.row("BatchRows")
        self.assertEqual((found["runs"], found["rows"]), (1, ROWS))
        self.assertGreater(found["batches"], 10)
        self.assertIsNone(found["saved_cost"])

    def test_counts_rows_that_are_sorted(self):
        self.run_elsewhere("select a, b from rows order by b desc, a")
        found = self.row("BatchSort")
        self.assertEqual((found["runs"], found["rows"]), (1, ROWS))
        self.assertGreater(found["batches"], 10)
        self.assertIsNone(found["saved_cost"])

    def test_counts_inserts(self):
        self.run_elsewhere("insert into copies select a, b from rows")
        found = self.row("BatchInsert")
        self.assertEqual((found["runs"], found["rows"]), (1, ROWS))
        self.assertGreater(found["batches"], 10)

    def test_counts_rows_of_new_tables(self):
        for statement in ("create table made as select a, b from rows", "select a, b into temp made from rows",
                          "create materialized view made as select a, b from rows",
                          "explain (analyze) create table made as select a, b from rows"):
            with self.subTest(statement=statement):
                self.session.must("select pg_stat_batchexec_reset()")
                self.run_elsewhere("begin", statement, "rollback")
                found = self.row("BatchInsert")
                self.assertEqual((found["runs"], found["rows"]), (1, ROWS))
                self.assertGreater(found["batches"], 10)

    def test_counts_rows_of_refreshed_views(self):
        self.run_elsewhere("create materialized view seen as select a, b from rows with no data")
        self.assertEqual(self.row("BatchInsert")["runs"], 0)
        self.run_elsewhere("refresh materialized view seen", "create unique index on seen (a)",
                           "refresh materialized view concurrently seen")
        found = self.row("BatchInsert")
        # The differences between the old rows and the new ones, of which there are none, are a new table as well.
        self.assertEqual((found["runs"], found["rows"]), (3, 2 * ROWS))
        self.run_elsewhere("drop materialized view seen")

    def test_rows_of_new_tables_are_written_one_by_one(self):
        """Where a function might look at them, batching is off, or the rows are few."""
        self.run_elsewhere("create function look(i int) returns int language plpgsql volatile as 'begin return i; end'")
        for statements in (("create table made as select look(a) from rows",), ("create table made as values (1), (2)",),
                           ("set batchexec.enabled = off", "create table made as select a from rows"),
                           ("create table made (a) as select 1 with no data",)):
            with self.subTest(statement=statements[-1]):
                self.run_elsewhere("begin", *statements, "rollback")
                self.assertEqual(self.row("BatchInsert")["runs"], 0)
        self.run_elsewhere("drop function look(int)")

    def test_counts_joins(self):
        self.run_elsewhere("set batchexec.mode = prefer", "set enable_mergejoin = off",
                           "select count(*) from rows r join rows s using (a)")
        self.assertEqual(self.row("BatchJoin")["runs"], 1)
        self.assertIsNone(self.row("BatchJoin")["rows"])

    def test_counts_originals_apart(self):
        self.run_elsewhere("set plan_cache_mode = force_generic_plan", "prepare q as select sum(a) from rows",
                           "execute q", "set batchexec.enabled = off", "execute q")
        found = self.row("BatchAgg")
        self.assertEqual((found["runs"], found["original_runs"], found["rows"]), (1, 1, ROWS))

    def test_explain_alone_is_not_counted(self):
        self.run_elsewhere("explain select sum(a) from rows")
        self.assertEqual(self.row("BatchAgg")["runs"], 0)

    def test_others_may_look_but_not_reset(self):
        self.session.must("create role reader")
        try:
            self.session.must("set role reader")
            self.assertEqual(len(self.session.must("select * from pg_stat_batchexec")), 6)
            self.assertEqual(self.session.run("select pg_stat_batchexec_reset()"), ("error", "42501"))
        finally:
            self.session.must("reset role")
            self.session.must("drop role reader")


class NotPreloaded(unittest.TestCase):
    """A library that a session has loaded has no shared memory."""

    server = None

    def test_says_what_to_do(self):
        session = comparison.Session(self.server.conninfo(), [f"load '{LIBRARY_NAME}'"])
        self.assertEqual(session.run("select * from pg_stat_batchexec"), ("error", "55000"))
        self.assertIn("shared_preload_libraries", session.message)
        session.must("select sum(a) from rows")


def run_tests(case, server: Server) -> tuple:
    """How many of its tests passed and failed."""
    with server:
        for statement in (*TABLE, script(LIBRARY_NAME)):
            server.psql(statement)
        case.server = server
        result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromTestCase(case))
        crashes = server.crashes()
    for line in crashes:
        print(f"server log: {line}")
    failed = len(result.failures) + len(result.errors) + len(crashes)
    return result.testsRun - failed, failed


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    stop_on_signals()
    if not Server().library.exists():
        raise MissingPrerequisite(f"{Server().library} is not built; run `make -C extension` first")
    counts = [run_tests(Statistics, Server(preload=[LIBRARY_NAME], settings=SETTINGS)),
              run_tests(NotPreloaded, Server(settings=SETTINGS))]
    print(f"{sum(passed for passed, _ in counts)} passed, {sum(failed for _, failed in counts)} failed")
    return 1 if any(failed for _, failed in counts) else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import comparison
    run_check(main)
