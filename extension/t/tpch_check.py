#!/usr/bin/env python3
"""All 22 TPC-H queries, batched against stock: equal results, serial and parallel.

    make -C extension test-tpch                scale factor 0.1
    t/tpch_check.py --scale-factor 0.01        smaller

Prints the time of each query on both sides (one run each, after one to warm up: a hint, no benchmark)
and how many plans held batched nodes.
"""

import argparse
import time

from tpch import data as tpch_data
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, inside_python_environment, run_check
from server import Server, stop_on_signals

SETTINGS = {"shared_buffers": "1GB", "work_mem": "64MB", "max_parallel_workers": "4", "max_wal_size": "4GB"}
MODES = {
    "serial": ["set max_parallel_workers_per_gather = 0", "set jit = off"],
    "parallel": ["set max_parallel_workers_per_gather = 2", "set jit = off", "set parallel_setup_cost = 0",
                 "set parallel_tuple_cost = 0", "set min_parallel_table_scan_size = 0"],
}


def measured(session, sql: str) -> tuple:
    """The outcome of the query's second run, and its milliseconds."""
    session.run(sql)
    start = time.perf_counter()
    outcome = session.run(sql)
    return outcome, (time.perf_counter() - start) * 1e3


def check_mode(session, mode: str) -> tuple:
    """Run all queries in one mode; returns how many passed, failed and were batched."""
    for setting in MODES[mode]:
        session.must(setting)
    passed = failed = batched = 0
    print(f"{mode:>8}  query   stock ms  batched ms  ratio  batched nodes")
    for number in tpch_data.QUERY_NUMBERS:
        sql = tpch_data.query(number)
        session.use("forbid")
        stock, stock_ms = measured(session, sql)
        session.use("allow")
        answer, batched_ms = measured(session, sql)
        nodes = sum(comparison.BATCHED_MARK in row[0] for row in session.must(f"explain (costs off) {sql}"))
        batched += nodes > 0
        verdict = "" if answer == stock and stock[0] == "rows" else "  DIFFERENT"
        print(f"{mode:>8}  Q{number:<5} {stock_ms:9.1f} {batched_ms:11.1f} {stock_ms / batched_ms:6.2f}  {nodes}{verdict}",
              flush=True)
        if verdict:
            failed += 1
            print(f"          {comparison.difference(_query(sql), _answers(answer, stock))}")
        else:
            passed += 1
    return passed, failed, batched


def _query(sql: str):
    return queries.Query(source="", targets=[], frame=[sql])


def _answers(batched: tuple, stock: tuple) -> dict:
    return {"batched": comparison.Answer([batched]), "stock": comparison.Answer([stock])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale-factor", type=float, default=tpch_data.SCALE_FACTOR)
    options = parser.parse_args()
    if not 0 < options.scale_factor <= 10:
        parser.error("--scale-factor is above 0 and at most 10")
    stop_on_signals()
    server = Server(settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    passed = failed = 0
    with server:
        print(f"loading TPC-H at scale factor {options.scale_factor}", flush=True)
        tpch_data.load(server, options.scale_factor)
        session = comparison.Session(server.conninfo(), [f"load '{LIBRARY_NAME}'"])
        for mode in MODES:
            counts = check_mode(session, mode)
            passed += counts[0]
            failed += counts[1]
            print(f"{mode}: {counts[2]} of 22 queries batched")
            failed += counts[2] == 0
        crashes = server.crashes()
    for line in crashes:
        print(f"server log: {line}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or crashes else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import comparison, queries
    run_check(main)
