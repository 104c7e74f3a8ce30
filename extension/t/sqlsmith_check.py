#!/usr/bin/env python3
"""sqlsmith's random queries against a server with the extension: no crash.

    make -C extension test-sqlsmith            2,000 queries
    t/sqlsmith_check.py --queries 500 --seed 3

sqlsmith writes deep, odd queries over whatever tables it finds: here TPC-H's and the differential
check's. Most of them fail or find nothing; what counts is that the server survives them all. Plans
are logged by auto_explain, which shows how many held batched nodes.
"""

import argparse
import random
import re
import subprocess

from tpch import data as tpch_data
from differential import column_types, tables
from prerequisites import LIBRARY_NAME, MissingPrerequisite, build_directory, debian_packages, run_check
from server import Server, stop_on_signals

QUERIES_DEFAULT = 2000
SCALE_FACTOR = 0.01
ROLE = "smith"  # No superuser: sqlsmith calls every function it may, the ones that stop servers included.
RUN_TIMEOUT_S = 1800
SETTINGS = {
    "session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on", "log_min_messages": "log", "jit": "off",
    "parallel_setup_cost": "10", "parallel_tuple_cost": "0", "min_parallel_table_scan_size": "0",
    "statement_timeout": "5s",
}


def load(server: Server, seed: int) -> None:
    """TPC-H and one table of every kind, readable and writable by sqlsmith's role."""
    tpch_data.load(server, SCALE_FACTOR)
    server.psql(";\n".join(column_types.COLLATIONS_SETUP))
    rng = random.Random(seed)
    for index, kind in enumerate(tables.KINDS):
        table = tables.make_table(rng, f"t{index}", kind)
        if not table.is_temporary:
            server.psql(";\n".join(table.setup) + ";")
    server.psql(f"analyze; create role {ROLE} login; grant all on all tables in schema public to {ROLE}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=QUERIES_DEFAULT)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    stop_on_signals()
    debian_packages("sqlsmith", "postgresql-contrib")
    server = Server(preload=[LIBRARY_NAME], settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    output = build_directory() / "sqlsmith.log"
    with server:
        load(server, options.seed)
        print(f"seed {options.seed}: running {options.queries} queries", flush=True)
        target = f"host={server.directory} port=5432 user={ROLE} dbname=postgres"
        with open(output, "w") as log:
            try:
                status = server.command(
                    ["sqlsmith", "--exclude-catalog", "--verbose", f"--max-queries={options.queries}",
                     f"--seed={options.seed}", f"--target={target}"],
                    stdout=log, stderr=subprocess.STDOUT, cwd="/", timeout=RUN_TIMEOUT_S).returncode
            except subprocess.TimeoutExpired:
                status = "none (it did not end in time)"
        alive = server.psql("select 'alive'").strip() == "alive"
        crashes = server.crashes()
        # One log entry is one plan; it starts with a timestamp and goes on in indented lines.
        plans = re.split(r"(?m)^(?=\d{4}-\d\d-\d\d )", server.log.read_text(errors="replace"))
        batched = sum("Custom Scan (Batch" in entry for entry in plans)
    for line in crashes:
        print(f"server log: {line}")
    print(f"seed {options.seed}: {options.queries} queries, {len(crashes)} crashes, {batched} plans held batched "
          f"nodes, sqlsmith ended with status {status}; its output is {output}")
    failed = len(crashes) + (not alive) + (status != 0) + (batched == 0)
    print(f"{0 if failed else options.queries} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    run_check(main)
