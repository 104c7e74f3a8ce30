#!/usr/bin/env python3
"""Instructions that a backend takes for a point select and for a TPC-B transaction, without the library and with it.

    make -C extension bench-instructions             prints the table
    make -C extension bench-instructions WRITE=1     puts it in bench/RESULTS.md

valgrind's callgrind counts them, in a single-user backend. Two per cent of a rate is less than what a shared machine
adds to it from one second to the next; a count of instructions is the same each time. It says nothing of caches.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, debian_packages, inside_python_environment, run, run_check  # noqa: E402
from server import Server, as_server_account, give_to_server_account, stop_on_signals  # noqa: E402

SECTION = "What must not change, in instructions"
REACH = 0.99
ACCOUNTS = 100_000
# A count is the difference of two runs, so that the start of the backend and its caches fill in both.
REPEATS = (50, 250)
SIDES = {
    "without": [],
    "loaded, off": ["-c", f"shared_preload_libraries={LIBRARY_NAME}", "-c", "batchexec.enabled=off"],
    "loaded, on": ["-c", f"shared_preload_libraries={LIBRARY_NAME}"],
}


def point_select(account: int, _delta: int) -> list:
    return [f"select abalance from pgbench_accounts where aid = {account}"]


def prepared_select(account: int, _delta: int) -> list:
    return [f"execute point_select ({account})"]


def tpcb(account: int, delta: int) -> list:
    """pgbench's transaction."""
    teller, branch = account % 10 + 1, 1
    return ["begin",
            f"update pgbench_accounts set abalance = abalance + {delta} where aid = {account}",
            f"select abalance from pgbench_accounts where aid = {account}",
            f"update pgbench_tellers set tbalance = tbalance + {delta} where tid = {teller}",
            f"update pgbench_branches set bbalance = bbalance + {delta} where bid = {branch}",
            "insert into pgbench_history (tid, bid, aid, delta, mtime) "
            f"values ({teller}, {branch}, {account}, {delta}, current_timestamp)",
            "end"]


WORKLOADS = {"point select": point_select, "point select, prepared": prepared_select, "TPC-B": tpcb}
PREPARE = "prepare point_select (int) as select abalance from pgbench_accounts where aid = $1"


def statements(workload, repeats: int) -> str:
    """A line each, as a single-user backend reads them."""
    numbers = random.Random(20)
    lines = [PREPARE]
    for _ in range(repeats):
        lines += workload(numbers.randint(1, ACCOUNTS), numbers.randint(-5000, 5000))
    return "".join(f"{line}\n" for line in lines)


def instructions(server: Server, saved: Path, side: list, lines: str) -> int:
    """Run these statements on a copy of the database, and count."""
    data = server.directory / "counted"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(saved, data)
    data.chmod(0o700)
    give_to_server_account(data)
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", server.binaries / "postgres", "--single", "-D", data,
         "-c", "autovacuum=off", "-c", "fsync=off", *side, "pgbench"],
        input=lines, text=True, capture_output=True, cwd="/", **as_server_account())
    if done.returncode != 0 or "ERROR" in done.stderr:
        raise RuntimeError(f"postgres --single: {done.stderr.strip()[-2000:]}")
    return int(re.search(r"Collected : (\d+)", done.stderr)[1])


def count(server: Server, saved: Path, workload, side: list) -> float:
    """Instructions of one repeat."""
    few, many = (instructions(server, saved, side, statements(workload, repeats)) for repeats in REPEATS)
    return (many - few) / (REPEATS[1] - REPEATS[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    stop_on_signals()
    debian_packages("valgrind", "postgresql-contrib")
    lines = ["| workload | without | loaded, off | loaded, on | without / off | without / on | reach | reached |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    with Server() as server:
        server.psql("create database pgbench")
        run([server.binaries / "pgbench", "-i", "-q", "pgbench"], env=server.environment)
        server.psql("vacuum analyze", "pgbench")
        version = server.psql("show server_version").strip()
        server.shut_down()
        saved = server.directory / "data"
        for name, workload in WORKLOADS.items():
            counts = {side: count(server, saved, workload, words) for side, words in SIDES.items()}
            ratios = [counts["without"] / counts[side] for side in ("loaded, off", "loaded, on")]
            lines.append(f"| {name} | " + " | ".join(f"{taken:,.0f}" for taken in counts.values()) + " | " +
                         " | ".join(f"{ratio:.3f}x" for ratio in ratios) +
                         f" | {REACH}x | {'yes' if min(ratios) >= REACH else 'NO'} |")
            print(lines[-1], flush=True)
    text = (f"Printed by `bench/instructions.py {' '.join(sys.argv[1:])}`: instructions of a single-user backend for one "
            f"transaction, the mean of {REPEATS[1] - REPEATS[0]}, by callgrind; PostgreSQL {version}; {date.today().isoformat()}.\n\n"
            + "\n".join(lines))
    report.publish(SECTION, text, options.write)
    return 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import report
    run_check(main)
