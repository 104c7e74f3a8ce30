#!/usr/bin/env python3
"""Registered sources of batches: of another access method's tables, and of foreign tables.

    make -C extension test-sources

The extension's own suite runs on tables of the access method: the answers, and the nodes that gave them, must
be those of heap tables; only plan displays may differ, as pages are not counted. Foreign tables have a file of
their own, t/column_source/foreign.sql, as they are not written to. Then a slice of the differential check runs
on either. The foreign data wrapper works without pg_batchexec, too.
"""

import argparse
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from column_source import column_am, row_wrapper
from output_comparison import Kind, differences, parse
from prerequisites import (CHECKS_DIRECTORY, EXTENSION_DIRECTORY, LIBRARY_NAME, MissingPrerequisite, build_directory,
                           postgres_major, run, run_check)
from regression_suite import driver
from server import Server, default_pg_config, give_to_server_account, stop_on_signals

DATABASE = "sources"
PAIRS_DEFAULT = 2000
FOREIGN_SQL = CHECKS_DIRECTORY / "column_source" / "foreign.sql"
# Of what is done with heap tables alone.
HEAP_TESTS = ("insert", "update", "bitmap", "index")


def suite() -> list:
    """The names of the own suite's files, in order."""
    names = run(["make", "-s", "-C", EXTENSION_DIRECTORY, f"PG_CONFIG={default_pg_config()}", "suite"]).stdout.split()
    return [name for name in names if name not in HEAP_TESTS]


def inputs(name: str) -> Path:
    """A folder with what pg_regress reads, and room for what it writes."""
    output = build_directory(name)
    shutil.rmtree(output)
    output.mkdir()
    for folder in ("sql", "expected"):
        shutil.copytree(EXTENSION_DIRECTORY / folder, output / "input" / folder)
    shutil.copy2(FOREIGN_SQL, output / "input" / "sql")
    shutil.copy2(FOREIGN_SQL.with_suffix(".out"), output / "input" / "expected")
    give_to_server_account(output)
    return output


def run_suite(pg_config: str, names: list, source: ModuleType, prepare: Callable) -> tuple:
    """Run files of the suite where a source is prepared; the differences by file, batched plans, and the log's crashes."""
    output = inputs(f"sources/{source.NAME}")
    server = Server(preload=[LIBRARY_NAME], more_libraries=[source.build(pg_config)])
    with server, open(output / "driver.log", "w") as log:
        server.psql(f"create database {DATABASE} template template0 locale 'C' encoding 'UTF8'")
        server.psql(f"alter database {DATABASE} set lc_messages to 'C'; "
                    f"alter database {DATABASE} set bytea_output to 'hex'")
        if postgres_major(pg_config) >= 19:
            # It groups rows before it joins them, where the suite expects a batched join.
            server.psql(f"alter database {DATABASE} set enable_eager_aggregate to off")
        prepare(server, DATABASE)
        server.command([driver(pg_config, "regress"), f"--inputdir={output}/input", f"--outputdir={output}",
                        f"--bindir={server.binaries}", "--use-existing", f"--dbname={DATABASE}",
                        f"--host={server.directory}", "--port=5432", f"--user={server.environment['PGUSER']}", *names],
                       cwd=output, stdout=log, stderr=subprocess.STDOUT)
        crashes = server.crashes()
    found, batched_plans = {}, 0
    for name in names:
        result = output / "results" / f"{name}.out"
        if not result.exists():
            raise MissingPrerequisite(f"the suite gave no {result}; see {output}/driver.log")
        text = result.read_text()
        found[name] = [difference for difference in differences((output / f"input/expected/{name}.out").read_text(), text)
                       if difference.kind is not Kind.PLAN]
        batched_plans += parse(text).batched_plans
    return found, batched_plans, crashes


def works_by_rows(pg_config: str) -> bool:
    """Does the foreign data wrapper work on a server that has no pg_batchexec?"""
    server = Server(library=build_directory() / "no library", more_libraries=[row_wrapper.build(pg_config)])
    with server:
        row_wrapper.install(server, "postgres")
        server.psql("create table numbers as select x from generate_series(1, 1000) x; select make_foreign('numbers')")
        return server.psql("select count(*), sum(x) from numbers where x > 100").strip() == "900|495450"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS_DEFAULT, help="of the differential check")
    options = parser.parse_args()
    stop_on_signals()
    pg_config = default_pg_config()
    passed = failed = 0
    crashes = []
    for names, source, prepare in ((suite(), column_am, column_am.make_default),
                                   (["setup", FOREIGN_SQL.stem], row_wrapper, row_wrapper.install)):
        print(f"== {source.NAME}", flush=True)
        found, batched_plans, lines = run_suite(pg_config, names, source, prepare)
        crashes += lines
        for name, wrong in found.items():
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                print(f"FAILED {name}")
                print("\n".join(f"    {line}" for difference in wrong for line in difference.lines))
        print(f"{batched_plans} plan displays show a batched node")
        if batched_plans == 0:
            print("the source was not at work")
            failed += 1
    if works_by_rows(pg_config):
        passed += 1
    else:
        print("FAILED without pg_batchexec")
        failed += 1
    for line in crashes:
        print(f"server log: {line}")
    if options.pairs:
        for kind in ("--column-am", "--foreign"):
            print(f"== differential {kind}", flush=True)
            failing = subprocess.run([CHECKS_DIRECTORY / "differential_check.py", kind,
                                      f"--pairs={options.pairs}"]).returncode != 0
            passed, failed = passed + (not failing), failed + failing
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or crashes else 0


if __name__ == "__main__":
    run_check(main)
