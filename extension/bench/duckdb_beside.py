#!/usr/bin/env python3
"""TPC-H by DuckDB from its own tables, beside stock and batched PostgreSQL: wall milliseconds of one core.

    make -C extension bench-duckdb SCALE_FACTOR=1 WRITE=1

DuckDB's tables are columns, compressed, in memory; PostgreSQL's are rows. DuckDB's extension that reads
PostgreSQL's tables is not in its package on PyPI, and is downloaded from DuckDB's own server, so there is no
column for it.
"""

import argparse
import math
import statistics
import sys
import time
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

import tpch_data  # noqa: E402
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

DUCKDB_REQUIREMENT = "duckdb>=1.1,<2"
SETTINGS = {"shared_buffers": "4GB", "work_mem": "256MB", "max_wal_size": "16GB"}
SESSION = f"load '{LIBRARY_NAME}'; set max_parallel_workers_per_gather = 0; set jit = off"
SECTION = "Beside DuckDB"


def open_duckdb(scale_factor: float):
    """The eight tables in DuckDB's memory, of the types that PostgreSQL's have; one thread."""
    import duckdb
    connection = duckdb.connect(config={"threads": 1})
    connection.execute((tpch_data.TEMPLATES / "schema.sql").read_text())
    folder = tpch_data.generated_files(scale_factor)
    for table in tpch_data.TABLES:
        connection.execute(f"insert into {table} select * from read_csv('{folder / table}.csv', header = true)")
    return connection


def wall_ms(run) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def measured(session, duck, number: int, rounds: int) -> list:
    """Medians of stock, batched and DuckDB, which take turns after one to warm up."""
    sql = tpch_data.query(number)
    sides = {"off": [], "on": [], "duckdb": []}
    for turn in range(-1, rounds):
        for side, taken in sides.items():
            if side == "duckdb":
                time_ms = wall_ms(lambda: duck.execute(sql).fetchall())
            else:
                session.execute(f"set batchexec.enabled = {side}")
                time_ms = wall_ms(lambda: session.execute(sql))
            if turn >= 0:
                taken.append(time_ms)
    return [statistics.median(taken) for taken in sides.values()]


def table(rows: list) -> str:
    lines = ["| query | stock ms | batched ms | DuckDB's own tables ms | batched / DuckDB |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| Q{number} | {stock:.1f} | {batched:.1f} | {duck:.1f} | {batched / duck:.1f} |"
              for number, stock, batched, duck in rows]
    mean = math.exp(statistics.mean(math.log(batched / duck) for _, _, batched, duck in rows))
    return "\n".join([*lines, f"| geometric mean | | | | {mean:.1f} |"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale-factor", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    duck = open_duckdb(options.scale_factor)
    with Server(settings=SETTINGS) as server:
        tpch_data.load(server, options.scale_factor)
        session = measure.Session(server.conninfo())
        session.execute(SESSION)
        rows = [(number, *measured(session, duck, number, options.rounds)) for number in tpch_data.QUERY_NUMBERS]
    import duckdb
    text = (f"Printed by `bench/duckdb_beside.py {' '.join(sys.argv[1:])}`: TPC-H, one core each. {report.machine()}; DuckDB "
            f"{duckdb.__version__}; {date.today().isoformat()}. Wall milliseconds, medians of {options.rounds} runs.\n\n{table(rows)}")
    print(text)
    if options.write:
        report.write_section(BENCH_DIRECTORY / "RESULTS.md", SECTION, text)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT, DUCKDB_REQUIREMENT)
    import measure
    import report
    run_check(main)
