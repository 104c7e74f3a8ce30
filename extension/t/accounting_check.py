#!/usr/bin/env python3
"""What a batched scan owes the server beside the right rows.

    make -C extension test-accounting

* Where a LIMIT, a FETCH, an EXISTS or a join stops a scan, it has read no more rows than stock, plus at most four.
* pg_stat counts of scans and rows, and EXPLAIN's buffer counts, are those of stock.
* A cancel and a statement timeout are heeded in the middle of a scan.
* Repeated, rescanned and failing queries leave no memory, pins or snapshots behind.
* SERIALIZABLE, cursors held open and cached plans do what they do on stock.
"""

import argparse
import re
import threading
import time
import unittest

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, inside_python_environment, run_check
from server import Server, stop_on_signals

ROWS = 200_000
# A scan that may be stopped begins with so many rows more than are wanted, and reads twice as many each time.
LIMIT_EXTRA_ROWS_MAX = 4
REPEATS = 300
GROWTH_MAX_BYTES = 256 * 1024
WIDE_BYTES = 20_000
MANY_TERMS = 20_000
# What a batched statement may take: so many times stock's time, and this for a busy machine.
SLOWER_MAX = 3
SPARE_S = 2
SETTINGS = {"shared_buffers": "256MB", "max_parallel_workers_per_gather": "0", "jit": "off"}
TABLE = (f"create table rows as select x as a, x % 10 as b, repeat('x', 20) as c from generate_series(1, {ROWS}) x",
         "vacuum (freeze, analyze) rows",
         "create table fresh as select * from rows limit 5000",
         "create table few as select x as a from generate_series(1, 20) x", "vacuum few",
         # Compressed in the row, and 20 kB once it is not.
         f"create table wide as select x as a, repeat('x', {WIDE_BYTES}) || x as c from generate_series(1, 2500) x",
         "create table names as select x::text as c from generate_series(1, 5) x")
LIMITED = ("select * from {t} limit 1", "select a from {t} where b = 3 limit 1",
           "select a from {t} where a = 40 limit 1", "select a from {t} where a = 4321 limit 1",
           "select a from {t} where b = 3 and length(c) = 20 limit 2", "select a from {t} limit 7",
           "select a from {t} offset 2 limit 1", "select (select a from {t} limit 1)",
           "select a from {t} where b < 5 limit 30", "select a from {t} where b = 7 offset 150 limit 150",
           "select a from (select a, b from {t} where a > 70 limit 500) q where b = 1 limit 3",
           "select a from {t} where a > 90 union all (select a from {t} where a > 80) limit 120",
           "with w as materialized (select a from {t} where b = 2) select a from w limit 4",
           "select exists (select 1 from {t} where a > 10)", "select 1 where exists (select 1 from {t} where a = 2222)",
           "select few.a from few where exists (select 1 from {t} where {t}.a = few.a + 500 and few.a > 3)",
           "select few.a, q.a from few, lateral (select a from {t} where b = few.a % 10 limit 1) q",
           "select few.a, {t}.a from few join {t} on {t}.a > few.a + 900 limit 1",
           "select q.a from {t} q where q.b = 4 and exists (select from few where few.a = q.a / 40) limit 5",
           "select few.a from few where few.a + 60 = any (select a from {t} where a > few.a)",
           "select distinct on (b) a from {t} where b = 6 limit 1")
FETCHED = ("select a from {t}", "select a from {t} where b = 3", "select a from {t} where a > 1234",
           "select few.a, {t}.a from few join {t} on {t}.b = few.a")
DRAINED = ("select a from {t} where b = 3", "select a from {t} where a < 0 order by a limit 1",
           "select a from {t} where b = 3 offset 3", "select count(*) from (select a from {t} offset 0) q",
           "with w as materialized (select a from {t} where b = 2) select sum(a) from w",
           "select a from few where a not in (select a from {t} where b = 1)",
           "select array(select a from {t} where b = 1)")
WHOLE = ("select count(*) from {t}", "select sum(a) from {t} where b = 1", "select b, count(*) from {t} group by b",
         "select a from {t} where a < 0", "select count(*) from few, lateral (select 1 from {t} where b = few.a) q",
         "select few.a, (select count(*) from fresh where fresh.b = few.a) from few")


def rows_read_max(stock_rows: int, scans: int = 1) -> int:
    """The most rows that a scan which may be stopped reads, where stock reads so many."""
    return 2 * stock_rows + LIMIT_EXTRA_ROWS_MAX * scans


class Accounting(unittest.TestCase):
    """Each test runs on one session of a server that `main` has started."""

    server = None

    def setUp(self):
        self.session = self.connect()

    def tearDown(self):
        self.session.connection.finish()

    def connect(self):
        return comparison.Session(self.server.conninfo(), [f"load '{LIBRARY_NAME}'"])

    def rows_read(self, mode: str, sql: str) -> dict:
        """Per table: sequential scans and rows read by this statement alone."""
        self.session.use(mode)
        # Within a transaction, nothing is sent to the shared statistics.
        self.session.must("begin")
        before = self.counts()
        self.session.must(sql)
        after = self.counts()
        self.session.must("commit")
        return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}

    def counts(self) -> dict:
        """What the session has read and not yet sent to the shared statistics."""
        return {name.decode(): (int(scans), int(rows)) for name, scans, rows in self.session.must(
            "select relname, seq_scan, seq_tup_read from pg_stat_xact_user_tables")}

    def assert_batched(self, sql: str) -> None:
        self.session.use("prefer")
        plan = self.session.must(f"explain (costs off) {sql}")
        self.assertTrue(any(comparison.BATCHED_MARK in row[0] for row in plan), f"not batched: {sql}")

    def test_limit_reads_few_rows(self):
        for table in ("rows", "fresh"):
            for template in LIMITED:
                sql = template.format(t=table)
                with self.subTest(sql=sql):
                    self.assert_batched(sql)
                    stock, batched = (self.rows_read(mode, sql)[table] for mode in ("forbid", "prefer"))
                    self.assertLessEqual(batched[1], rows_read_max(stock[1], batched[0]))

    def test_fetch_reads_few_rows(self):
        """A cursor reads what is fetched, however often, and all at full speed when asked to."""
        for template in FETCHED:
            for count in (1, 3, 40):
                sql = template.format(t="rows")
                with self.subTest(sql=sql, count=count):
                    stock, batched = (self.rows_fetched(mode, sql, count) for mode in ("forbid", "prefer"))
                    for ours, theirs in zip(batched, stock, strict=True):
                        self.assertLessEqual(ours, rows_read_max(theirs))

    def rows_fetched(self, mode: str, sql: str, count: int) -> list:
        """Rows of the table that have been read after each of some FETCHes."""
        self.session.use(mode)
        self.session.must(f"begin; declare c no scroll cursor for {sql}")
        before = self.counts()["rows"][1]
        read = []
        for _ in range(5):
            self.session.must(f"fetch {count} from c")
            read.append(self.counts()["rows"][1] - before)
        self.session.must("rollback")
        return read

    def test_function_reads_few_rows(self):
        """PL/pgSQL and SQL functions that take one row stop the scan, too."""
        self.session.must("create function first_row(wanted int) returns int language plpgsql as "
                          "'declare r int; begin select a into r from rows where b = wanted; return r; end'; "
                          "create function one_row(wanted int) returns int language sql volatile as "
                          "'select a from rows where b = wanted'")
        try:
            for function in ("first_row", "one_row"):
                with self.subTest(function=function):
                    stock, batched = (self.rows_read(mode, f"select {function}(7)")["rows"][1]
                                      for mode in ("forbid", "prefer"))
                    self.assertLessEqual(batched, rows_read_max(stock))
        finally:
            self.session.must("drop function first_row, one_row")

    def test_prepared_limit_reads_few_rows(self):
        self.session.must("set plan_cache_mode = force_generic_plan")
        for mode in ("forbid", "prefer"):
            self.session.use(mode)
            self.session.must(f"prepare {mode}_p (int) as select a from rows where b = 5 limit $1")
        for limit in (1, 3, 100, "null"):
            with self.subTest(limit=limit):
                stock, batched = (self.rows_read(mode, f"execute {mode}_p ({limit})")["rows"][1]
                                  for mode in ("forbid", "prefer"))
                self.assertLessEqual(batched, rows_read_max(stock))
        self.session.must("deallocate all; reset plan_cache_mode")

    def test_parallel_limit_reads_few_rows(self):
        # Each process may read on until the leader has its row: what it needs for one, and four more.
        self.session.must("set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; "
                          "set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; "
                          "set parallel_leader_participation = on")
        sql = "select a from rows where b = 3 limit 1"
        self.assert_batched(sql)
        plan = self.session.must("explain (analyze, costs off, timing off, summary off) " + sql)
        text = "\n".join(row[0].decode() for row in plan)
        self.assertIn("Gather", text)
        batches, mean = re.search(r"Batches: (\d+) \(rows mean ([\d.]+)", text).groups()
        self.assertLessEqual(int(batches) * float(mean), 3 * rows_read_max(10))

    def test_scans_to_the_end_use_whole_pages(self):
        """Nothing that is read in full may be slowed down by the care for what may not be."""
        # The table may end with empty pages, as it grows by several at once.
        pages = int(self.session.must("select count(distinct (ctid::text::point)[0]) from rows")[0][0])
        self.session.use("prefer")
        for template in DRAINED:
            sql = template.format(t="rows")
            with self.subTest(sql=sql):
                plan = self.session.must(f"explain (analyze, costs off, timing off, summary off) {sql}")
                text = "\n".join(row[0].decode() for row in plan)
                self.assertRegex(text, rf"Batches: {pages} ")

    def test_scan_for_a_row_that_is_not_there_uses_pages(self):
        """Of batches of a few rows there are few: each is twice as large as the one before."""
        pages = int(self.session.must("select count(distinct (ctid::text::point)[0]) from rows")[0][0])
        self.session.use("prefer")
        for sql in ("select a from rows where a < 0 limit 1", "select exists (select from rows where a < 0)",
                    "select few.a from few where few.a < 2 and exists (select from rows where a + few.a < 0)"):
            with self.subTest(sql=sql):
                plan = self.session.must(f"explain (analyze, costs off, timing off, summary off) {sql}")
                text = "\n".join(row[0].decode() for row in plan)
                batches = max(map(int, re.findall(r"Batches: (\d+) ", text)))
                self.assertLessEqual(batches, pages + 12)

    def test_first_row_takes_the_pages_that_stock_takes(self):
        for sql in ("select a from rows limit 1", "select a from rows where a > 3 limit 1", "select exists (select from rows)"):
            with self.subTest(sql=sql):
                found = []
                for mode in ("forbid", "prefer"):
                    self.session.use(mode)
                    plan = self.session.must(f"explain (analyze, buffers, costs off, timing off, summary off) {sql}")
                    found.append(int(re.search(rb"Buffers: shared hit=(\d+)", b"\n".join(row[0] for row in plan)).group(1)))
                self.assertLessEqual(found[1], found[0])

    def test_blocks_out_of_buffers_are_read_together(self):
        """From 17 on stock reads several blocks at once, and so must batches; the sums tell that none is lost or read twice."""
        if int(self.session.must("show server_version_num")[0][0]) < 170000:
            self.skipTest("the server reads each block by itself")
        self.session.must("create extension if not exists pg_buffercache")
        wanted = self.session.must("select count(*), sum(a), sum(a * 3 + b) from rows")
        workers = ("set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; "
                   "set max_parallel_workers_per_gather = 2")
        for setting in ("set max_parallel_workers_per_gather = 0", workers):
            with self.subTest(setting=setting):
                self.session.must(setting)
                reads = {mode: self.reads_of_cold_table(mode, wanted) for mode in ("forbid", "prefer")}
                self.assertGreater(reads["forbid"], 0)
                self.assertLessEqual(reads["prefer"], 1.3 * reads["forbid"] + 30)

    def reads_of_cold_table(self, mode: str, wanted: list) -> int:
        """Read operations of a scan that finds a half of the blocks in shared buffers, in pieces."""
        self.session.must("select count(*) from rows")
        self.session.must("select count(pg_buffercache_evict(bufferid)) from pg_buffercache where relfilenode = "
                          "pg_relation_filenode('rows') and relblocknumber / 150 % 2 = 0")
        self.session.use(mode)
        before = self.read_operations()
        self.assertEqual(self.session.must("select count(*), sum(a), sum(a * 3 + b) from rows"), wanted)
        return self.read_operations() - before

    def read_operations(self) -> int:
        self.session.must("select pg_stat_force_next_flush()")
        self.session.must("select pg_stat_clear_snapshot()")
        return int(self.session.must("select sum(reads) from pg_stat_io where object = 'relation'")[0][0])

    def test_statistics_count_as_stock_does(self):
        for table in ("rows", "fresh"):
            for template in WHOLE:
                sql = template.format(t=table)
                with self.subTest(sql=sql):
                    self.assert_batched(sql)
                    self.assertEqual(self.rows_read("forbid", sql), self.rows_read("prefer", sql))

    def buffers(self, mode: str, sql: str) -> int:
        self.session.use(mode)
        plan = self.session.must(f"explain (analyze, buffers, timing off, costs off, summary off) {sql}")
        found = re.search(r"Buffers: shared hit=(\d+)", "\n".join(row[0].decode() for row in plan))
        return int(found[1]) if found else 0

    def test_buffers_count_as_stock_does(self):
        # Batching looks at the visibility map, which stock does not: a page of it at the most counts more.
        for template in WHOLE[:4]:
            sql = template.format(t="rows")
            with self.subTest(sql=sql):
                stock, batched = self.buffers("forbid", sql), self.buffers("prefer", sql)
                self.assertGreaterEqual(batched, stock)
                self.assertLessEqual(batched, stock + 8 + stock // 100)

    def test_timeout_is_heeded(self):
        # A million million rows: no machine is through with them before the timeout.
        sql = "select sum(q.s) from rows x, lateral (select sum(y.a) as s from rows y where y.b < x.a) q"
        self.assert_batched(sql)
        self.session.must("set statement_timeout = '300ms'")
        started = time.monotonic()
        self.assertEqual(self.session.run(sql), ("error", "57014"))
        self.assertLess(time.monotonic() - started, 5)
        self.session.must("reset statement_timeout")

    def test_cancel_is_heeded(self):
        sql = "select sum(q.s) from rows x, lateral (select sum(y.a) as s from rows y where y.b < x.a) q"
        self.session.use("prefer")
        process = int(self.session.must("select pg_backend_pid()")[0][0])
        other = self.connect()
        outcome = []
        runner = threading.Thread(target=lambda: outcome.append(self.session.run(sql)))
        runner.start()
        active = f"select state = 'active' and query like '%lateral (%' from pg_stat_activity where pid = {process}"
        while other.must(active) != [(b"t",)]:
            pass
        other.must(f"select pg_cancel_backend({process})")
        runner.join(10)
        self.assertEqual(outcome, [("error", "57014")])
        other.connection.finish()

    def memory_bytes(self) -> int:
        """Memory of the whole backend, caches that grow with the first uses aside."""
        return int(self.session.must("select sum(total_bytes) from pg_backend_memory_contexts "
                                     "where name not in ('CacheMemoryContext', 'index info', 'relation rules', "
                                     "'CachedPlan', 'CachedPlanSource', 'CachedPlanQuery')")[0][0])

    def test_nothing_is_left_behind(self):
        statements = ["select sum(a) from fresh where b > 2", "select b, avg(a) from fresh group by b",
                      "select a from fresh limit 3", "select sum(1 / (a - 4000)) from fresh",
                      "select a / (a - 100) from fresh", "select few.a, (select sum(fresh.a) from fresh "
                      "where fresh.b = few.a) from few", "select c, min(c), count(*) from fresh group by c"]
        self.session.use("prefer")
        for statement in statements:
            with self.subTest(sql=statement):
                for _ in range(20):
                    self.session.run(statement)
                before = self.memory_bytes()
                for _ in range(REPEATS):
                    self.session.run(statement)
                self.assertLess(self.memory_bytes() - before, GROWTH_MAX_BYTES)

    def test_many_rescans_keep_memory_bounded(self):
        # One statement that rescans the inner scan 5,000 times: what it holds at its end is what counts.
        self.session.use("prefer")
        self.session.must("begin")
        self.session.must("declare c no scroll cursor for select f.a, (select sum(few.a) from few "
                          "where few.a < f.b + 3), (select count(*) from few where few.a = f.b) from fresh f")
        self.session.must("fetch 500 from c")
        before = self.memory_bytes()
        self.session.must("fetch 4000 from c")
        grown = self.memory_bytes() - before
        self.session.must("rollback")
        self.assertLess(grown, GROWTH_MAX_BYTES)

    def test_rescans_free_the_values_of_parameters(self):
        """A parameter that comes compressed is unpacked at each rescan, and freed at the next."""
        self.session.use("prefer")
        sql = "select w.a, (select count(*) from names where names.c = w.c) from wide w"
        self.assert_batched(sql)
        self.session.must("begin")
        self.session.must(f"declare c no scroll cursor for {sql}")
        self.session.must("fetch 100 from c")
        before = self.memory_bytes()
        self.session.must("fetch 2000 from c")
        grown = self.memory_bytes() - before
        self.session.must("rollback")
        self.assertLess(grown, 2 * WIDE_BYTES + GROWTH_MAX_BYTES)

    def seconds(self, mode: str, sql: str) -> float:
        self.session.use(mode)
        started = time.monotonic()
        self.session.must(sql)
        return time.monotonic() - started

    def test_many_terms_take_no_longer_than_on_stock(self):
        """An expression of many terms is not compiled term against term; beyond a limit, stock runs."""
        statements = (
            "explain select count(*) from few where " + " or ".join(f"a + 1 = {x}" for x in range(MANY_TERMS)),
            "explain select count(*) from few where " + " and ".join(f"a <> {x}" for x in range(MANY_TERMS)),
            f"select count(*) from rows where a in ({', '.join(str(x * 3) for x in range(MANY_TERMS))})",
            f"select count(*) from rows where c not in ({', '.join(repr(str(x)) for x in range(MANY_TERMS))})")
        for statement in statements:
            with self.subTest(sql=statement[:60]):
                stock = self.seconds("forbid", statement)
                self.assertLess(self.seconds("prefer", statement), SLOWER_MAX * stock + SPARE_S)

    def test_too_many_terms_run_as_stock_and_say_so(self):
        self.session.use("prefer")
        for terms, is_batched in ((300, True), (1000, False)):
            sql = "select count(*) from few where " + " or ".join(f"a + 1 = {x}" for x in range(terms))
            with self.subTest(terms=terms):
                text = b"\n".join(row[0] for row in self.session.must(f"explain (costs off) {sql}"))
                self.assertEqual(b"Seq Scan" not in text, is_batched)
                self.assertEqual(b"expressions have more than 2000 parts" in text, not is_batched)
                self.assertEqual(self.session.must(sql), [(b"20",)])

    def test_serializable_conflict_is_found(self):
        """Write skew: of two transactions that each read what the other writes, one must fail."""
        second = self.connect()
        for session in (self.session, second):
            session.use("prefer")
        self.session.must("create table skew as select x as a, 0 as b from generate_series(1, 100) x")
        try:
            for session in (self.session, second):
                session.must("begin isolation level serializable")
                session.must("select sum(b) from skew")
            outcomes = [self.session.run("insert into skew values (101, 1)"),
                        second.run("insert into skew values (102, 1)"),
                        self.session.run("commit"), second.run("commit")]
            self.assertIn(("error", "40001"), outcomes)
            for session in (self.session, second):
                session.run("rollback")
        finally:
            self.session.must("drop table skew")
            second.connection.finish()

    def test_cursor_survives_a_failed_subtransaction(self):
        sql = "select a, c from fresh where b < 8"
        answers = []
        for mode in ("forbid", "prefer"):
            self.session.use(mode)
            self.session.must("begin")
            self.session.must(f"declare c no scroll cursor for {sql}")
            rows = self.session.must("fetch 10 from c")
            self.session.must("savepoint s")
            self.assertEqual(self.session.run("select 1 / (a - 50) from fresh")[0], "error")
            self.session.must("rollback to s")
            rows += self.session.must("fetch 300 from c")
            self.session.must("delete from fresh where a % 2 = 0")
            rows += self.session.must("fetch all from c")
            self.session.must("rollback")
            answers.append(rows)
        self.assertEqual(*answers)

    def test_cached_plan_follows_the_setting(self):
        self.session.use("prefer")
        self.session.must("set plan_cache_mode = force_generic_plan")
        self.session.must("prepare p as select sum(a) from fresh")
        plans = []
        for setting in ("on", "off", "on"):
            self.session.must(f"set batchexec.enabled = {setting}")
            plan = self.session.must("explain (analyze, costs off, timing off, summary off) execute p")
            plans.append(any(b"Batches" in row[0] for row in plan))
            self.session.must("execute p")
        self.session.must("deallocate p; reset plan_cache_mode")
        self.assertEqual(plans, [True, False, True])

    def test_require_says_why(self):
        self.session.use("require")
        self.assertEqual(self.session.run("select a from fresh for update")[0], "error")
        self.assertRegex(self.session.message, "cannot be batched: .+")
        self.assertEqual(self.session.run("select sum(a) from fresh")[0], "rows")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    stop_on_signals()
    server = Server(settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    with server:
        for statement in TABLE:
            server.psql(statement)
        Accounting.server = server
        result = unittest.TextTestRunner(verbosity=1).run(
            unittest.defaultTestLoader.loadTestsFromTestCase(Accounting))
        crashes = server.crashes()
    for line in crashes:
        print(f"server log: {line}")
    failed = len({case.id().split(" ")[0] for case, _ in (*result.failures, *result.errors)}) + len(crashes)
    print(f"{max(0, result.testsRun - failed)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import comparison
    run_check(main)
