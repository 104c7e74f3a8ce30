#!/usr/bin/env python3
"""The speed table: stock against batched, in one session, with the floor beside each.

    make -C extension bench                    the whole table; writes bench/RESULTS.md
    bench/bench.py --rows 100000 --rounds 3    a quick look; prints, writes nothing
    bench/bench.py --only 'sum(a)'             the rows whose name holds this text
    bench/bench.py --only TPC-H --scale-factor 1 --rounds 3 --write-section 'TPC-H with joins'

Serial rows compare CPU milliseconds with jit off, parallel rows wall milliseconds with two workers
and jit on. Every figure is a median of `--rounds` runs in which the sides take turns.
"""

import argparse
import dataclasses
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

import prerequisites  # noqa: E402
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

ROWS_DEFAULT = (1_000_000, 5_000_000)
ROUNDS_DEFAULT = 9
CLICKBENCH_ROWS_DEFAULT = 5_000_000
ROUNDS_MAX = 101
ROWS_MAX = 20_000_000
SCALE_FACTOR_DEFAULT = 0.1
SCALE_FACTOR_MAX = 10
TPCH_DATABASE = "tpch"
# From PostgreSQL 16 on, a table grows by so many pages at a time; the last of them stay empty, and no VACUUM marks them.
EXTENDED_PAGES_MAX = 64

# Everything resident: the tables of both sizes, the one that is not all-visible, TPC-H and pgbench's.
SETTINGS = {"shared_buffers": "4GB", "work_mem": "256MB", "max_wal_size": "16GB",
            "max_parallel_workers": "4", "max_worker_processes": "8", "track_io_timing": "off",
            "autovacuum": "off"}
SERIAL = "set max_parallel_workers_per_gather = 0; set jit = off"
PARALLEL = "set max_parallel_workers_per_gather = 2; set jit = on"


class Bench:
    """One run of the table over one private server."""

    def __init__(self, server: Server, options: argparse.Namespace):
        self.server = server
        self.options = options
        self.rows = []
        self.floor_program = build_floor_program(server.pg_config)
        self.floors = {}

    def run(self) -> None:
        self._prepare_extensions()
        for rows in self.options.rows:
            self._seed_table(rows)
        self._measure_seed_tables()
        if not self.options.skip_nulls:
            self._measure_nulls()
        if not self.options.skip_partitions:
            self._measure_partitions()
        if not self.options.skip_inserts:
            self._measure_inserts()
        if not self.options.skip_tpch:
            self._measure_tpch()
        if not self.options.skip_clickbench:
            self._measure_clickbench()
        if not self.options.skip_unchanged:
            self._measure_unchanged()

    def session(self, database="postgres"):
        """A connection that counts CPU time."""
        opened = measure.Session(self.server.conninfo(database))
        opened.count_usage()
        return opened

    def _measure_unchanged(self) -> None:
        """On a server that does not load the library itself: some sessions must be without it."""
        import unchanged
        rows = self.options.rows[0]
        table = self._bar(rows)
        with Server(settings=SETTINGS) as server:
            server.psql("create extension pg_prewarm")
            self._fill(server, table, rows)
            server.psql(f"vacuum (freeze, analyze) {table}")
            prewarm(server, table)
            for row in unchanged.measure(server, table, self.options):
                self._report(row)

    def _bar(self, rows: int) -> str:
        return f"bar_{rows}"

    def _prepare_extensions(self) -> None:
        self.server.psql(f"create database {TPCH_DATABASE}")
        for database in ("postgres", TPCH_DATABASE):
            self.server.psql("create extension pg_visibility; create extension pg_prewarm", database)

    def _seed_table(self, rows: int) -> None:
        table = self._bar(rows)
        self._fill(self.server, table, rows)
        self.server.psql(f"vacuum (freeze, analyze) {table}")
        assert_all_visible(self.server, table)
        if rows == self.options.rows[0]:
            self._fill(self.server, f"{table}_not_visible", rows)
            self.server.psql(f"analyze {table}_not_visible")
            assert_none_visible(self.server, f"{table}_not_visible")

    def _fill(self, server: Server, table: str, rows: int) -> None:
        print(f"filling {table}", flush=True)
        server.psql(f"create table {table} ({cases.SEED_COLUMNS}); insert into {table} "
                         + cases.SEED_ROWS.format(rows=rows))

    def _measure_seed_tables(self) -> None:
        for parallel in (False, True):
            for rows in self.options.rows:
                prewarm(self.server, self._bar(rows))
                for case in cases.SEED_CASES:
                    self._measure(case, self._bar(rows), rows, parallel)
        first = self.options.rows[0]
        prewarm(self.server, f"{self._bar(first)}_not_visible")
        for case in cases.NOT_VISIBLE_CASES:
            self._measure(case, f"{self._bar(first)}_not_visible", first, parallel=False)

    def _measure_nulls(self) -> None:
        rows = self.options.rows[0]
        table = self._bar(rows)
        for share, reach in cases.NULL_SHARES.items():
            suffix = f"{share:.0%} NULLs"
            wanted = [case for case in cases.NULL_CASES if self._is_wanted(f"{case.name}, {suffix}")]
            if not wanted:
                continue
            with_nulls = f"{table}_null_{share * 100:.0f}"
            print(f"filling {with_nulls}", flush=True)
            self.server.psql(f"create table {with_nulls} ({cases.SEED_COLUMNS}); select setseed(0.5); insert into "
                             f"{with_nulls} " + cases.SEED_ROWS_WITH_NULLS.format(rows=rows, share=share))
            self.server.psql(f"vacuum (freeze, analyze) {with_nulls}")
            assert_all_visible(self.server, with_nulls)
            for warm in (table, with_nulls):
                prewarm(self.server, warm)
            for case in wanted:
                self._measure(dataclasses.replace(case, name=f"{case.name}, {suffix}"), with_nulls, rows, False)
                self._compare(case, f"{case.name}, {suffix}", "batched, without and with NULLs",
                              (table, with_nulls), rows, reach)

    def _measure_partitions(self) -> None:
        rows = self.options.rows[0]
        table = self._bar(rows)
        suffix = f"{cases.PARTITIONS} partitions"
        wanted = [case for case in cases.PARTITION_CASES if self._is_wanted(f"{case.name}, {suffix}")]
        if not wanted:
            return
        whole = f"{table}_partitioned"
        print(f"filling {whole}", flush=True)
        parts = [f"{whole}_{part}" for part in range(cases.PARTITIONS)]
        self.server.psql(f"create table {whole} ({cases.SEED_COLUMNS}) partition by range (a); " + "; ".join(
            f"create table {name} partition of {whole} for values from ({rows * part // cases.PARTITIONS + 1}) "
            f"to ({rows * (part + 1) // cases.PARTITIONS + 1})" for part, name in enumerate(parts)))
        self.server.psql(f"insert into {whole} " + cases.SEED_ROWS.format(rows=rows))
        self.server.psql(f"vacuum (freeze, analyze) {whole}")
        for warm in (table, *parts):
            assert_all_visible(self.server, warm)
            prewarm(self.server, warm)
        for case in wanted:
            name = f"{case.name}, {suffix}"
            for parallel in (False, True):
                self._measure(dataclasses.replace(case, name=name), whole, rows, parallel, floor_table=table)
            self._compare(case, name, "batched, one table and partitions", (table, whole), rows,
                          cases.PARTITIONED_SHARE_REACH)

    def _compare(self, case, name: str, mode: str, tables: tuple, rows: int, reach: float) -> None:
        """The same query batched, over two tables."""
        session = self.session()
        session.execute(SERIAL)
        sides = {table: (lambda sql=case.sql.format(t=table, rows=rows): session.time(sql)) for table in tables}
        timings = measure.take_turns(sides, self.options.rounds)
        self._report(report.ShareRow(name=f"{name}, {rows // 1000}k rows", mode=mode,
                                     first=timings[tables[0]], second=timings[tables[1]], reach=reach))

    def _measure_inserts(self) -> None:
        """Into a table that is empty before each run, and logged as any other."""
        rows = self.options.rows[-1]
        for name, (columns, query) in cases.INSERT_CASES.items():
            name = f"INSERT … SELECT, {name}"
            if not self._is_wanted(name):
                continue
            session = self.session()
            session.execute(f"{SERIAL}; create table inserted ({columns})")
            sql = "insert into inserted " + query.format(t=self._bar(rows))
            timings = measure.on_and_off(session, sql, self.options.rounds, "truncate inserted")
            self._report(report.Row(f"{name}, {rows // 1000}k rows", "serial", timings["stock"], timings["batched"],
                                    True, 0, session.batched_nodes(sql), cases.INSERT_REACH))
            session.execute("drop table inserted")

    def _measure_tpch(self) -> None:
        from tpch import data as tpch_data
        wanted = [case for case in map(self._tpch_case, tpch_data.QUERY_NUMBERS) if self._is_wanted(case.name)]
        if not wanted:
            return
        scale_factor = self.options.scale_factor
        print(f"loading TPC-H SF {scale_factor:g}", flush=True)
        tpch_data.load(self.server, scale_factor, TPCH_DATABASE)
        for table in tpch_data.TABLES:
            assert_all_visible(self.server, table, TPCH_DATABASE)
            prewarm(self.server, table, TPCH_DATABASE)
        for parallel in (False, True):
            first = len(self.rows)
            for case in wanted:
                self._measure(case, None, 0, parallel, TPCH_DATABASE)
            self._report(report.MeanRow(
                f"TPC-H, geometric mean of {len(wanted)} queries, SF {scale_factor:g}",
                "parallel 2, jit on" if parallel else "serial", self.rows[first:],
                cases.TPCH_MEAN_REACH_PARALLEL if parallel else cases.TPCH_MEAN_REACH))

    def _tpch_case(self, number: int):
        from tpch import data as tpch_data
        return cases.Case(f"TPC-H Q{number}, SF {self.options.scale_factor:g}", tpch_data.query(number),
                          cases.TPCH_REACH.get(number, cases.TPCH_REACH_OTHERS),
                          reach_in_parallel=None if number in cases.TPCH_REACH
                          else cases.TPCH_REACH_OTHERS_PARALLEL)

    def _measure_clickbench(self) -> None:
        import clickbench
        rows = self.options.clickbench_rows
        wanted = [case for case in (
            cases.Case(f"ClickBench {number}, {rows // 1000}k rows", sql, cases.CLICKBENCH_REACH)
            for number, sql in enumerate(clickbench.QUERIES)) if self._is_wanted(case.name)]
        if not wanted:
            return
        print(f"filling hits with {rows} rows", flush=True)
        self.server.psql(clickbench.fill(rows))
        self.server.psql("vacuum (freeze, analyze) hits")
        assert_all_visible(self.server, "hits")
        prewarm(self.server, "hits")
        first = len(self.rows)
        for case in wanted:
            self._measure(case, None, 0, parallel=False)
        self._report(report.MeanRow(
            f"ClickBench, geometric mean of {len(wanted)} queries, {rows // 1000}k rows", "serial",
            self.rows[first:], cases.CLICKBENCH_MEAN_REACH))

    def _is_wanted(self, name: str) -> bool:
        return self.options.only is None or self.options.only in name

    def _measure(self, case, table: str, rows: int, parallel: bool, database="postgres",
                 floor_table: str = None) -> None:
        name = f"{case.name}, {rows // 1000}k rows" if rows else case.name
        if not self._is_wanted(name):
            return
        sql = case.sql.format(t=table, rows=rows)
        session = self.session(database)
        session.execute(PARALLEL if parallel else SERIAL)
        nodes = session.batched_nodes(sql)
        timings = measure.on_and_off(session, sql, self.options.rounds)
        self._report(report.Row(
            name=name, mode="parallel 2, jit on" if parallel else "serial",
            stock=timings["stock"], batched=timings["batched"], is_wall=parallel,
            floor_ms=self._floor_ms(floor_table or table, database) if table else 0, batched_nodes=nodes,
            reach=case.parallel_reach if parallel else case.reach))

    def _report(self, row) -> None:
        self.rows.append(row)
        print(row.line(), flush=True)

    def _floor_ms(self, table: str, database: str) -> float:
        size = int(self.server.psql(f"select pg_relation_size('{table}')", database))
        if size not in self.floors:
            self.floors[size] = float(prerequisites.run(
                [self.floor_program, size, self.options.rounds]).stdout)
        return self.floors[size]


def build_floor_program(pg_config: str) -> Path:
    """Compile floor/stream_floor.c with the flags that PostgreSQL itself was compiled with."""
    program = prerequisites.build_directory("bench") / "stream_floor"
    prerequisites.debian_packages("gcc", "libc6-dev")
    prerequisites.run(["gcc", "-O2", "-Wall", "-o", program, BENCH_DIRECTORY / "floor" / "stream_floor.c"])
    return program


def assert_all_visible(server: Server, table: str, database="postgres") -> None:
    """Stop unless the visibility map says that every page with rows of the table is all-visible."""
    visible, pages = server.psql(
        "select v.all_visible, pg_relation_size(c.oid) / current_setting('block_size')::int "
        f"from pg_class c, pg_visibility_map_summary(c.oid) v where c.oid = '{table}'::regclass",
        database).strip().split("|")
    if int(pages) - int(visible) >= EXTENDED_PAGES_MAX:
        raise MissingPrerequisite(f"{table}: {visible} of {pages} pages are all-visible; a figure "
                                  "measured on it would not be what it says")


def assert_none_visible(server: Server, table: str, database="postgres") -> None:
    """Stop if any page is marked all-visible."""
    visible = server.psql(f"select all_visible from pg_visibility_map_summary('{table}'::regclass)",
                          database).strip()
    if visible != "0":
        raise MissingPrerequisite(f"{table}: {visible} pages are all-visible and none should be")


def prewarm(server: Server, table: str, database="postgres") -> None:
    """Bring the table and its visibility map into shared buffers, and set its hint bits."""
    server.psql(f"select pg_prewarm('{table}'); select count(*) from {table}; "
                f"select pg_prewarm('{table}', 'buffer', 'vm') "
                f"where pg_relation_size('{table}', 'vm') > 0", database)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", metavar="N", help="table size; repeat for more")
    parser.add_argument("--rounds", type=int, default=ROUNDS_DEFAULT)
    parser.add_argument("--only", metavar="TEXT", help="only the rows whose name holds TEXT")
    parser.add_argument("--skip-tpch", action="store_true")
    parser.add_argument("--scale-factor", type=float, default=SCALE_FACTOR_DEFAULT, metavar="F",
                        help=f"of TPC-H (default: {SCALE_FACTOR_DEFAULT}, at most {SCALE_FACTOR_MAX})")
    parser.add_argument("--skip-clickbench", action="store_true")
    parser.add_argument("--clickbench-rows", type=int, default=CLICKBENCH_ROWS_DEFAULT, metavar="N",
                        help=f"of its table (default: {CLICKBENCH_ROWS_DEFAULT}, at most {ROWS_MAX})")
    parser.add_argument("--skip-nulls", action="store_true", help="leave out the tables with NULLs")
    parser.add_argument("--skip-partitions", action="store_true", help="leave out the partitioned table")
    parser.add_argument("--skip-inserts", action="store_true", help="leave out INSERT … SELECT")
    parser.add_argument("--skip-unchanged", action="store_true", help="leave out the within-2%% rows")
    parser.add_argument("--work-mem", default=SETTINGS["work_mem"], metavar="SIZE",
                        help=f"of each node (default: {SETTINGS['work_mem']}; that of a new server is 4MB)")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    parser.add_argument("--write-section", metavar="TITLE", help="put the table in this section of bench/RESULTS.md")
    options = parser.parse_args()
    options.rows = options.rows or list(ROWS_DEFAULT)
    if not 1 <= options.rounds <= ROUNDS_MAX:
        parser.error(f"--rounds is from 1 to {ROUNDS_MAX}")
    if not 0 < options.scale_factor <= SCALE_FACTOR_MAX:
        parser.error(f"--scale-factor is above 0, and at most {SCALE_FACTOR_MAX}")
    if any(not 1000 <= rows <= ROWS_MAX for rows in [*options.rows, options.clickbench_rows]):
        parser.error(f"--rows and --clickbench-rows are from 1000 to {ROWS_MAX}")
    return options


def main() -> int:
    options = parse_options()
    stop_on_signals()
    prerequisites.debian_packages("postgresql-contrib")
    server = Server(preload=[LIBRARY_NAME], settings=dict(SETTINGS, work_mem=options.work_mem))
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    with server:
        bench = Bench(server, options)
        bench.run()
        table = report.table(bench.rows)
        print(table)
        if options.write:
            (BENCH_DIRECTORY / "RESULTS.md").write_text(
                report.document(table, server, options, date.today()))
            picture.follow(BENCH_DIRECTORY / "RESULTS.md")
        if options.write_section:
            report.write_section(BENCH_DIRECTORY / "RESULTS.md", options.write_section,
                                 report.section(table, server, options, sys.argv[1:], date.today()))
        for line in server.crashes():
            print(f"server log: {line}")
    reached = sum(row.is_reached for row in bench.rows)
    print(f"{reached} of {len(bench.rows)} rows reach their ratio")
    return 0


if __name__ == "__main__":
    prerequisites.inside_python_environment(PSYCOPG_REQUIREMENT)
    import cases
    import measure
    import picture
    import report
    run_check(main)
