#!/usr/bin/env python3
"""How fast batches of few rows are, next to stock.

    make -C extension bench-widths [WRITE=1]

The setting batchexec.batch_rows bounds the rows of a batch. The table is the one of the thread "Batching in executor": eight integers,
a text of 100 bytes, six integers. CPU milliseconds of one session, in turns.
"""

import argparse
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

SETTINGS = {"shared_buffers": "1GB", "work_mem": "256MB", "max_wal_size": "4GB"}
SECTION = "Batches of few rows"
ROWS = 1_000_000
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 291)
QUERIES = (
    "select sum(a) from bar",
    "select count(*) from bar where a > 0 and a < {rows}",
    "select avg(a), avg(b), avg(c), avg(d), avg(e) from bar",
    "select avg(j), avg(k), avg(l), avg(m), avg(n) from bar",
    "select * from bar where o < 0",
    "select b % 100, count(*), sum(c) from bar group by 1",
)


def prepare(server: Server, rows: int) -> None:
    integers = [f"x % {1000 + place} as {name}" for place, name in enumerate("bcdefgh")]
    behind = [f"x % {2000 + place} as {name}" for place, name in enumerate("jklmno")]
    server.psql(f"create table bar as select x as a, {', '.join(integers)}, repeat('x', 100) as i, {', '.join(behind)} "
                f"from generate_series(1, {rows}) x")
    server.psql("vacuum (analyze, freeze) bar")


def side(session, enabled: str, width: int, query: str):
    def run_once():
        session.execute(f"set batchexec.enabled = {enabled}; set batchexec.batch_rows = {width}")
        return session.time(query)
    return run_once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    lines = []
    with Server(settings=SETTINGS) as server:
        prepare(server, options.rows)
        session = measure.Session(server.conninfo())
        session.count_usage()
        session.execute(f"load '{LIBRARY_NAME}'")
        session.execute("set max_parallel_workers_per_gather = 0; set jit = off; set batchexec.explain = off")
        for text in QUERIES:
            query = text.format(rows=options.rows)
            sides = {"stock": side(session, "off", WIDTHS[-1], query)}
            sides.update({str(width): side(session, "on", width, query) for width in WIDTHS})
            timings = measure.take_turns(sides, options.rounds)
            stock = timings["stock"].cpu_ms
            ratios = [f"{stock / timings[str(width)].cpu_ms:.2f}x" for width in WIDTHS]
            lines.append([f"`{query.removeprefix('select ')}`", f"{stock:.0f}", *ratios])
    headings = ["query", "stock ms", *(f"{width} rows" if width > 1 else "1 row" for width in WIDTHS)]
    text = (f"Printed by `bench/widths.py {' '.join(sys.argv[1:])}`: {options.rows:,} rows; how many times as fast as stock, by "
            f"rows a batch at most (a page has fewer than 291); {report.machine()}; {date.today().isoformat()}. CPU milliseconds, "
            f"medians of {options.rounds} runs.\n\n{report.grid(headings, lines)}")
    report.publish(SECTION, text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import measure
    import report
    run_check(main)
