#!/usr/bin/env python3
"""Tables that are not in shared buffers: batched next to stock, wall milliseconds.

    make -C extension bench-cold [WRITE=1]

The table is much larger than shared buffers, so that each run reads all of it: from the operating system's cache,
and, where the user is root, from the disk, as the cache is dropped before each run.
"""

import argparse
import os
import statistics
import sys
import time
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

SETTINGS = {"shared_buffers": "16MB", "work_mem": "64MB", "max_wal_size": "4GB"}
SESSION = f"load '{LIBRARY_NAME}'; set jit = off; set batchexec.explain = off"
SECTION = "Cold tables, PostgreSQL {major}"
REACH = 0.97
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
WAYS = {"serial": "set max_parallel_workers_per_gather = 0",
        "2 workers": "set max_parallel_workers_per_gather = 2; set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0"}


def drop_caches() -> None:
    os.sync()
    DROP_CACHES.write_text("1")


def wall_ms(session, sql: str) -> float:
    start = time.perf_counter()
    session.execute(sql)
    return (time.perf_counter() - start) * 1e3


def measured(session, sql: str, rounds: int, before) -> list:
    """Medians of stock and batched, which take turns after one to warm up."""
    taken = {"off": [], "on": []}
    for turn in range(-1, rounds):
        for enabled, times in taken.items():
            session.execute(f"set batchexec.enabled = {enabled}")
            before()
            time_ms = wall_ms(session, sql)
            if turn >= 0:
                times.append(time_ms)
    return [statistics.median(times) for times in taken.values()]


def table(rows: list) -> str:
    headings = ["query", "read from", "how", "stock ms", "batched ms", "ratio", "reached"]
    lines = [[name, place, way, f"{stock:.1f}", f"{batched:.1f}", f"{stock / batched:.2f}x", "yes" if stock / batched >= REACH else "NO"]
              for name, place, way, stock, batched in rows]
    return report.grid(headings, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    places = {"system cache": lambda: None}
    if os.geteuid() == 0 and os.access(DROP_CACHES, os.W_OK):
        places["disk"] = drop_caches
    wanted = [case for case in cases.SEED_CASES if case.name in ("count(*)", "sum(a), same qual", "avg of j..n (behind the text)")]
    rows = []
    with Server(settings=SETTINGS) as server:
        server.psql(f"create table bar ({cases.SEED_COLUMNS}); insert into bar {cases.SEED_ROWS.format(rows=options.rows)}")
        server.psql("vacuum (analyze, freeze) bar")
        session = measure.Session(server.conninfo())
        session.execute(SESSION)
        for way, setting in WAYS.items():
            session.execute(setting)
            for place, before in places.items():
                for case in wanted:
                    sql = case.sql.format(t="bar", rows=options.rows)
                    rows.append((case.name, place, way, *measured(session, sql, options.rounds, before)))
        version = session.execute("show server_version")[0][0]
    text = (f"Printed by `bench/cold.py {' '.join(sys.argv[1:])}`: a table of {options.rows:,} rows, shared buffers of "
            f"{SETTINGS['shared_buffers']}; PostgreSQL {version}; {report.machine()}; {date.today().isoformat()}. Wall milliseconds, "
            f"medians of {options.rounds} runs.\n\n{table(rows)}")
    report.publish(SECTION.format(major=version.split(".")[0]), text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import cases
    import measure
    import report
    run_check(main)
