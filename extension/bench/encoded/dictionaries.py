#!/usr/bin/env python3
"""Expressions of a column that its source has encoded by a dictionary: for each entry, next to each row, and to stock.

    make -C extension bench-dictionaries [WRITE=1]

The source is the test access method of t/column_source. It reads rows one by one, and encodes them as it goes, so that its scan
is slow; it is the same with dictionaries shown and hidden. What an expression costs is therefore what its query takes
beyond the first one, which only counts the column's values.
"""

import argparse
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH_DIRECTORY.parent / "t"), str(BENCH_DIRECTORY)]

from column_source import column_am  # noqa: E402
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, default_pg_config, stop_on_signals  # noqa: E402

SETTINGS = {"shared_buffers": "1GB", "work_mem": "64MB", "max_wal_size": "4GB"}
SESSION = "set max_parallel_workers_per_gather = 0; set jit = off; set batchexec.explain = off"
SECTION = "Dictionaries"
DATABASE = "encoded"
ROWS = 1_000_000
# Of the dictionary: one serves all batches, where it has fewer entries than a batch may have rows.
ENTRIES = (10, 200)
# Stock, by row, by entry: the table, and the settings of each.
SIDES = {
    "stock": ("in_heap", "set batchexec.enabled = off"),
    "heap": ("in_heap", "set batchexec.enabled = on"),
    "row": ("encoded", "set batchexec.enabled = on; set column_am.dictionaries = off"),
    "entry": ("encoded", "set batchexec.enabled = on; set column_am.dictionaries = on"),
}
BASE = "count(word) from {table}"
QUERIES = (
    "count(*) from {table} where word = 'Word 7 of many'",
    "count(*) from {table} where word in ('Word 1 of many', 'Word 3 of many', 'Word 5 of many', 'none')",
    "count(*) from {table} where word like '%7_of%'",
    "count(*) from {table} where word ilike 'word 7%'",
    "count(*) from {table} where upper(word) like 'WORD 1%'",
    "count(*) from {table} where word > 'Word 4' or word like '%7%'",
    "sum(length(word)) from {table}",
    "word, count(*) from {table} group by word",
)


def prepare(server: Server, rows: int, entries: int) -> None:
    values = f"select x as id, 'Word ' || x % {entries} || ' of many' collate \"C\" as word from generate_series(1, {rows}) x"
    server.psql(f"drop table if exists in_heap, encoded; create table in_heap using heap as {values}; "
                f"create table encoded using column_am as {values}", DATABASE)
    server.psql("vacuum (analyze, freeze) in_heap", DATABASE)
    server.psql("vacuum (analyze, freeze) encoded", DATABASE)


def measured(session, query: str, rounds: int) -> dict:
    """Medians of the sides, which take turns after one to warm up."""
    taken = {side: [] for side in SIDES}
    for turn in range(-1, rounds):
        for side, (table, settings) in SIDES.items():
            session.execute(settings)
            timing = session.time(f"select {query.format(table=table)}")
            if turn >= 0:
                taken[side].append(timing)
    return {side: measure.median(timings).cpu_ms for side, timings in taken.items()}


def shown(query: str) -> str:
    return query.format(table="t")


def line(entries: int, query: str, times: dict, base: dict) -> list:
    by_row, by_entry = (times[side] - base[side] for side in ("row", "entry"))
    return [str(entries), f"`{shown(query)}`", *(f"{times[side]:.1f}" for side in SIDES), f"{by_row:.1f}", f"{by_entry:.1f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    lines = []
    with Server(settings=SETTINGS, preload=[LIBRARY_NAME], more_libraries=[column_am.build(default_pg_config())]) as server:
        server.psql(f"create database {DATABASE}")
        column_am.make_default(server, DATABASE)
        session = measure.Session(server.conninfo(DATABASE))
        session.count_usage()
        session.execute(SESSION)
        for entries in ENTRIES:
            prepare(server, options.rows, entries)
            base = measured(session, BASE, options.rounds)
            lines.append([str(entries), f"`{shown(BASE)}`", *(f"{base[side]:.1f}" for side in SIDES), "", ""])
            lines += [line(entries, query, measured(session, query, options.rounds), base) for query in QUERIES]
        version = session.execute("show server_version")[0][0]
    headings = ["entries", "query", "stock, heap ms", "batched, heap ms", "encoded, by row ms", "encoded, by entry ms",
                "beyond the first, by row ms", "by entry ms"]
    text = (f"Printed by `bench/encoded/dictionaries.py {' '.join(sys.argv[1:])}`: {options.rows:,} rows; "
            f"{report.machine()}; PostgreSQL {version}; {date.today().isoformat()}. CPU milliseconds, medians of {options.rounds} runs.\n\n"
            f"{report.grid(headings, lines)}")
    report.publish(SECTION, text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import measure
    import report
    run_check(main)
