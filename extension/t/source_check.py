#!/usr/bin/env python3
"""The extension's own suite on tables of another access method, whose source of batches is registered.

    make -C extension test-sources

The answers, and the nodes that gave them, must be those of heap tables; only plan displays may differ,
as pages are not counted. Then a slice of the differential check runs on such tables.
"""

import argparse
import re
import shutil
import subprocess

from column_source import column_am
from output_comparison import Kind, differences, parse
from prerequisites import (CHECKS_DIRECTORY, EXTENSION_DIRECTORY, LIBRARY_NAME, MissingPrerequisite, build_directory,
                           run_check)
from regression_suite import driver
from server import Server, default_pg_config, give_to_server_account, stop_on_signals

DATABASE = "sources"
PAIRS_DEFAULT = 2000
# Of what is done with heap tables alone.
HEAP_TESTS = ("insert", "update", "bitmap", "index")


def suite() -> list:
    """The names of the own suite's files, in order."""
    names = re.search(r"^SUITE = (.*)$", (EXTENSION_DIRECTORY / "Makefile").read_text(), re.M).group(1).split()
    return [name for name in names if name not in HEAP_TESTS]


def run_suite(pg_config: str) -> tuple:
    """Run the own suite; returns the folder with its results, and what the server's log says of crashes."""
    output = build_directory("sources")
    shutil.rmtree(output)
    output.mkdir()
    inputs = output / "input"
    shutil.copytree(EXTENSION_DIRECTORY / "sql", inputs / "sql")
    shutil.copytree(EXTENSION_DIRECTORY / "expected", inputs / "expected")
    give_to_server_account(output)
    server = Server(preload=[LIBRARY_NAME], more_libraries=[column_am.build(pg_config)])
    with server, open(output / "driver.log", "w") as log:
        server.psql(f"create database {DATABASE} template template0 locale 'C' encoding 'UTF8'")
        server.psql(f"alter database {DATABASE} set lc_messages to 'C'; "
                    f"alter database {DATABASE} set bytea_output to 'hex'")
        column_am.make_default(server, DATABASE)
        server.command([driver(pg_config, "regress"), f"--inputdir={inputs}", f"--outputdir={output}",
                        f"--bindir={server.binaries}", "--use-existing", f"--dbname={DATABASE}",
                        f"--host={server.directory}", "--port=5432", f"--user={server.environment['PGUSER']}", *suite()],
                       cwd=output, stdout=log, stderr=subprocess.STDOUT)
        return output, server.crashes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS_DEFAULT, help="of the differential check")
    options = parser.parse_args()
    stop_on_signals()
    output, crashes = run_suite(default_pg_config())
    passed = failed = batched_plans = 0
    for name in suite():
        result = output / "results" / f"{name}.out"
        if not result.exists():
            raise MissingPrerequisite(f"the suite gave no {result}; see {output}/driver.log")
        text = result.read_text()
        wrong = [difference for difference in differences((EXTENSION_DIRECTORY / f"expected/{name}.out").read_text(), text)
                 if difference.kind is not Kind.PLAN]
        batched_plans += parse(text).batched_plans
        passed += not wrong
        failed += bool(wrong)
        if wrong:
            print(f"FAILED {name}")
            print("\n".join(f"    {line}" for difference in wrong for line in difference.lines))
    for line in crashes:
        print(f"server log: {line}")
    if batched_plans == 0:
        print("no plan display shows a batched node: the source was not at work")
        failed += 1
    if options.pairs:
        print("== differential", flush=True)
        failing = subprocess.run([CHECKS_DIRECTORY / "differential_check.py", "--column-am",
                                  f"--pairs={options.pairs}"]).returncode != 0
        passed, failed = passed + (not failing), failed + failing
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or crashes else 0


if __name__ == "__main__":
    run_check(main)
