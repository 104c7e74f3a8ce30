#!/usr/bin/env python3
"""Expressions by column, next to the same expressions by row in the same batched node, and to stock.

    make -C extension bench-expressions [WRITE=1]

By row, a function is called by another name, of which pg_batchexec knows nothing: the same C function of the
server. What has no function (NULLIF, CASE) goes by row behind a unary plus of that kind. CPU milliseconds of
`select count(expression)`, so that the scan is part of all three.
"""

import argparse
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

SETTINGS = {"shared_buffers": "1GB", "work_mem": "64MB", "max_wal_size": "4GB"}
SESSION = f"load '{LIBRARY_NAME}'; set max_parallel_workers_per_gather = 0; set jit = off; set batchexec.explain = off"
SECTION = "Expressions"
REACH = 3.0
ROWS = 500_000
COLUMNS = ("id int, small int, real8 float8, num numeric(12, 3), word text, day date, moment timestamp, flag bool")
VALUES = ("select x, x % 300, x / 16.0, x / 8.0, 'Word ' || x % 1000 || ' of many', '1995-01-01'::date + x % 3000, "
          "'1995-01-01'::timestamp + x * interval '5 minutes', x % 2 = 0 from generate_series(1, {rows}) x")

# name, arguments, result, C function
COPIES = (
    ("plus", "int", "int", "int4up"), ("round_", "float8", "float8", "dround"), ("floor_", "float8", "float8", "dfloor"),
    ("round_", "numeric, int", "numeric", "numeric_round"), ("ceil_", "numeric", "numeric", "numeric_ceil"),
    ("int4_", "float8", "int", "dtoi4"), ("float8_", "numeric", "float8", "numeric_float8"),
    ("int4_", "numeric", "int", "numeric_int4"), ("int2_", "int", "int2", "i4toi2"), ("date_", "timestamp", "date", "timestamp_date"),
    ("substring_", "text, int, int", "text", "text_substr"), ("left_", "text, int", "text", "text_left"),
    ("upper_", "text", "text", "upper"), ("lower_", "text", "text", "lower"), ("cat_", "text, text", "text", "textcat"),
    ("like_", "text, text", "bool", "textlike"), ("ilike_", "text, text", "bool", "texticlike"),
    ("plus_days", "date, int", "date", "date_pli"), ("minus_date", "date, date", "int", "date_mi"),
    ("plus_interval", "date, interval", "timestamp", "date_pl_interval"),
    ("plus_interval", "timestamp, interval", "timestamp", "timestamp_pl_interval"),
    ("length_", "text", "int", "textlen"), ("abs_", "int", "int", "int4abs"),
    ("extract_", "text, date", "numeric", "extract_date"), ("trunc_", "text, timestamp", "timestamp", "timestamp_trunc"),
)

# by column, by row
EXPRESSIONS = (
    ("case when small > 9 then id else 0 end", "case when by_row.plus(small) > 9 then id else 0 end"),
    ("case small when 1 then 2 when 3 then 4 end", "case by_row.plus(small) when 1 then 2 when 3 then 4 end"),
    ("coalesce(small, id)", "coalesce(by_row.plus(small), id)"),
    ("nullif(small, 3)", "nullif(by_row.plus(small), 3)"),
    ("nullif((small > 5) is true, flag)", "nullif((by_row.plus(small) > 5) is true, flag)"),
    ("nullif(small is distinct from 7, flag)", "nullif(by_row.plus(small) is distinct from 7, flag)"),
    ("abs(small)", "by_row.abs_(small)"),
    ("round(real8)", "by_row.round_(real8)"), ("floor(real8)", "by_row.floor_(real8)"),
    ("round(num, 1)", "by_row.round_(num, 1)"), ("ceil(num)", "by_row.ceil_(num)"),
    ("real8::int", "by_row.int4_(real8)"), ("num::int", "by_row.int4_(num)"), ("num::float8", "by_row.float8_(num)"),
    ("small::int2", "by_row.int2_(small)"), ("moment::date", "by_row.date_(moment)"),
    ("length(word)", "by_row.length_(word)"),
    ("substring(word, 3, 5)", "by_row.substring_(word, 3, 5)"), ("left(word, 4)", "by_row.left_(word, 4)"),
    ("upper(word)", "by_row.upper_(word)"), ("lower(word)", "by_row.lower_(word)"), ("word || 'x'", "by_row.cat_(word, 'x')"),
    ("nullif(word like 'Word _7%', flag)", "nullif(by_row.like_(word, 'Word _7%'), flag)"),
    ("nullif(word like '%7_of%', flag)", "nullif(by_row.like_(word, '%7_of%'), flag)"),
    ("nullif(word like '%many', flag)", "nullif(by_row.like_(word, '%many'), flag)"),
    ("nullif(word ilike 'word 7%', flag)", "nullif(by_row.ilike_(word, 'word 7%'), flag)"),
    ("extract(year from day)", "by_row.extract_('year', day)"),
    ("date_trunc('month', moment)", "by_row.trunc_('month', moment)"),
    ("day + small", "by_row.plus_days(day, small)"), ("day - date '2000-01-01'", "by_row.minus_date(day, '2000-01-01')"),
    ("day + interval '1 month'", "by_row.plus_interval(day, '1 month'::interval)"),
    ("moment + interval '36 hours'", "by_row.plus_interval(moment, '36 hours'::interval)"),
)


def prepare(server: Server, rows: int) -> None:
    server.psql(f"create table v ({COLUMNS}); insert into v {VALUES.format(rows=rows)}; create schema by_row;"
                + "".join(f"create function by_row.{name}({arguments}) returns {result} language internal immutable strict "
                          f"parallel safe as '{source}';" for name, arguments, result, source in COPIES))
    server.psql("vacuum (analyze, freeze) v")


def measured(session, by_column: str, by_row: str, rounds: int) -> list:
    """Medians of stock, by row and by column, which take turns after one to warm up."""
    sides = {"stock": ("off", by_column), "row": ("on", by_row), "column": ("on", by_column)}
    taken = {side: [] for side in sides}
    for turn in range(-1, rounds):
        for side, (enabled, expression) in sides.items():
            session.execute(f"set batchexec.enabled = {enabled}")
            timing = session.time(f"select count({expression}) from v")
            if turn >= 0:
                taken[side].append(timing)
    return [measure.median(timings).cpu_ms for timings in taken.values()]


def table(rows: list) -> str:
    headings = ["expression", "stock ms", "by row ms", "by column ms", "stock / by column", "by row / by column", "reached"]
    lines = [[f"`{name.replace('|', chr(92) + '|')}`", *(f"{time:.1f}" for time in times), f"{times[0] / times[2]:.1f}x",
               f"{times[1] / times[2]:.1f}x", "yes" if times[1] / times[2] >= REACH else "NO"] for name, times in rows]
    return report.grid(headings, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    with Server(settings=SETTINGS) as server:
        prepare(server, options.rows)
        session = measure.Session(server.conninfo())
        session.count_usage()
        session.execute(SESSION)
        rows = [(by_column, measured(session, by_column, by_row, options.rounds)) for by_column, by_row in EXPRESSIONS]
    reached = sum(times[1] / times[2] >= REACH for _, times in rows)
    text = (f"Printed by `bench/expressions.py {' '.join(sys.argv[1:])}`: `select count(expression)` of {options.rows:,} rows, the scan "
            f"included; {report.machine()}; {date.today().isoformat()}. CPU milliseconds, medians of {options.rounds} runs. {reached} of "
            f"{len(rows)} are at least {REACH:.0f} times as fast by column as by row.\n\n{table(rows)}")
    report.publish(SECTION, text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import measure
    import report
    run_check(main)
