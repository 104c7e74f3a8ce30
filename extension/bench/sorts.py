#!/usr/bin/env python3
"""Sorts of 5,000,000 rows, batched next to stock.

    make -C extension bench-sorts [WRITE=1] [WORK_MEM=4MB]

A query returns its last row alone, so that what a client takes to read all of them is no part of the time. CPU milliseconds of one
session, in turns.
"""

import argparse
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

SETTINGS = {"shared_buffers": "2GB", "max_wal_size": "4GB"}
WORK_MEM_DEFAULT = "1GB"
ROWS = 5_000_000
VALUES = ("select x as id, hashint4(x) as r, (hashint4(x + 1) & 1023) as g, md5(x::text) as t, 'Customer#' || hashint4(x) as c, "
          "(hashint4(x) / 100.0)::numeric(12, 2) as n, hashint4(x) / 7.0::float8 as f, "
          "'2000-01-01'::date + (hashint4(x + 2) & 4095) as d from generate_series(1, {rows}) x")

# What is measured, the query, and how many times as fast it is to be.
CASES = (
    ("ORDER BY int", "select id, r, g from v order by r {last}", 3),
    ("ORDER BY int, one column", "select r from v order by r {last}", 1.5),
    ("ORDER BY text", "select id, t from v order by t {last}", 2),
    ("ORDER BY text, the first nine bytes alike", "select id, c from v order by c {last}", 2),
    ("ORDER BY date, int", "select id, d, r from v order by d, r {last}", 2.5),
    ("ORDER BY int, float DESC", "select id, g, f from v order by g, f desc {last}", 2.5),
    ("ORDER BY numeric", "select id, n from v order by n {last}", 2),
    ("ORDER BY int LIMIT 100", "select id, r from v order by r limit 100", 5),
    ("ORDER BY text LIMIT 100", "select id, t from v order by t limit 100", 1.5),
    ("row_number over partitions", "select id, row_number() over (partition by g order by r) from v {last}", 2.5),
    ("rank over partitions", "select id, rank() over (partition by d order by f) from v {last}", 2.5),
    ("a running sum over partitions", "select id, sum(id) over (partition by g order by r) from v {last}", 2),
)


def prepare(server: Server, rows: int) -> None:
    server.psql(f"create table v as {VALUES.format(rows=rows)}")
    server.psql("vacuum (analyze, freeze) v")


def table(rows: list) -> str:
    headings = ["query", "stock ms", "batched ms", "ratio", "reach", "reached"]
    lines = []
    for name, timings, reach in rows:
        ratio = timings["stock"].cpu_ms / timings["batched"].cpu_ms
        lines.append([name, f"{timings['stock'].cpu_ms:.0f}", f"{timings['batched'].cpu_ms:.0f}", f"{ratio:.2f}x", f"{reach:g}x",
                      "yes" if ratio >= reach else "NO"])
    return report.grid(headings, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work-mem", default=WORK_MEM_DEFAULT)
    parser.add_argument("--write", metavar="SECTION", help="put the table in this section of bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    with Server(settings=SETTINGS) as server:
        prepare(server, options.rows)
        session = measure.Session(server.conninfo())
        session.count_usage()
        session.execute(f"load '{LIBRARY_NAME}'; set max_parallel_workers_per_gather = 0; set jit = off; set batchexec.explain = off; "
                        f"set work_mem = '{options.work_mem}'")
        rows = [(name, measure.on_and_off(session, query.format(last=f"offset {options.rows - 1}"), options.rounds), reach)
                for name, query, reach in CASES]
        version = session.execute("show server_version")[0][0]
    text = (f"Printed by `bench/sorts.py {' '.join(sys.argv[1:])}`: {options.rows:,} rows, `work_mem` at {options.work_mem}; "
            f"{report.machine()}; PostgreSQL {version}; {date.today().isoformat()}. CPU milliseconds, medians of {options.rounds} runs.\n\n"
            f"{table(rows)}")
    report.publish(options.write, text, bool(options.write))
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import measure
    import report
    run_check(main)
