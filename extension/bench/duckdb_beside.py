#!/usr/bin/env python3
"""TPC-H by DuckDB beside stock and batched PostgreSQL, wall milliseconds of one core.

    make -C extension bench-duckdb SCALE_FACTOR=1 WRITE=1

DuckDB reads the same rows of the same server through its postgres extension, and then its own tables:
columns, compressed, in memory.
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

from tpch import data as tpch_data  # noqa: E402
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, inside_python_environment, run_check  # noqa: E402
from server import Server, stop_on_signals  # noqa: E402

# The extension is built for this version alone.
REQUIREMENTS = (PSYCOPG_REQUIREMENT, "duckdb==1.5.5", "duckdb-extension-postgres-scanner==1.5.5")
SETTINGS = {"shared_buffers": "4GB", "work_mem": "256MB", "max_wal_size": "16GB"}
SESSION = f"load '{LIBRARY_NAME}'; set max_parallel_workers_per_gather = 0; set jit = off"
SECTION = "Beside DuckDB"


def open_duckdb(scale_factor: float, server: Server):
    """The eight tables in DuckDB's memory, of the types that PostgreSQL's have, and the server's; one thread."""
    import duckdb
    import duckdb_extension_postgres_scanner
    connection = duckdb.connect(config={"threads": 1})
    connection.execute((tpch_data.TEMPLATES / "schema.sql").read_text())
    folder = tpch_data.generated_files(scale_factor)
    for table in tpch_data.TABLES:
        connection.execute(f"insert into {table} select * from read_csv('{folder / table}.csv', header = true)")
    package = Path(duckdb_extension_postgres_scanner.__file__).parent
    connection.execute(f"install '{next(package.rglob('*.duckdb_extension'))}'; load postgres_scanner")
    connection.execute(f"attach 'host={server.directory} user={server.environment['PGUSER']} dbname=postgres' as server "
                       "(type postgres, read_only)")
    return connection


def wall_ms(run) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def measured(session, duck, number: int, rounds: int) -> list:
    """Medians of stock, batched and both of DuckDB's ways, which take turns after one to warm up."""
    sql = tpch_data.query(number)
    sides = {"off": [], "on": [], "server.public": [], "memory.main": []}
    for turn in range(-1, rounds):
        for side, taken in sides.items():
            if "." in side:
                duck.execute(f"use {side}")
                time_ms = wall_ms(lambda: duck.execute(sql).fetchall())
            else:
                session.execute(f"set batchexec.enabled = {side}")
                time_ms = wall_ms(lambda: session.execute(sql))
            if turn >= 0:
                taken.append(time_ms)
    return [statistics.median(taken) for taken in sides.values()]


def table(rows: list) -> str:
    headings = ["query", "stock ms", "batched ms", "DuckDB through postgres ms", "DuckDB's own tables ms",
                "through postgres / batched", "own tables / batched"]
    lines = [[f"Q{number}", *(f"{taken:.1f}" for taken in times), f"{times[2] / times[1]:.2f}x", f"{times[3] / times[1]:.2f}x"]
              for number, times in rows]
    means = [math.exp(statistics.mean(math.log(times[side] / times[1]) for _, times in rows)) for side in (2, 3)]
    lines.append(["geometric mean", "", "", "", "", *(f"{mean:.2f}x" for mean in means)])
    return report.grid(headings, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale-factor", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    with Server(settings=SETTINGS) as server:
        tpch_data.load(server, options.scale_factor)
        duck = open_duckdb(options.scale_factor, server)
        session = measure.Session(server.conninfo())
        session.execute(SESSION)
        rows = [(number, measured(session, duck, number, options.rounds)) for number in tpch_data.QUERY_NUMBERS]
    import duckdb
    text = (f"Printed by `bench/duckdb_beside.py {' '.join(sys.argv[1:])}`: TPC-H, one core each; a ratio above 1 is batched's "
            f"lead. {report.machine()}; DuckDB "
            f"{duckdb.__version__}; {date.today().isoformat()}. Wall milliseconds, medians of {options.rounds} runs.\n\n{table(rows)}")
    report.publish(SECTION, text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(*REQUIREMENTS)
    import measure
    import report
    run_check(main)
