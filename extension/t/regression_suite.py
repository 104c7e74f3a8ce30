#!/usr/bin/env python3
"""PostgreSQL's own suites, on a stock server and on one with the extension: only plans may differ.

    make -C extension test-regress             the regression suite and the isolation specs
    t/regression_suite.py --suite regress      one of the two

The tests come from the Debian source of the installed PostgreSQL, the drivers from its development
package. Both servers are of the same binaries; the outputs are compared file by file. A file fails if
anything but a plan display differs; the differences are kept below the build directory.
"""

import argparse
import concurrent.futures
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from output_comparison import Kind, differences, parse
from prerequisites import (LIBRARY_NAME, MissingPrerequisite, build_directory, debian_packages, pg_config_value,
                           postgres_source, run, run_check)
from server import Server, default_pg_config, give_to_server_account, stop_on_signals

SUITES = ("regress", "isolation")
SERVER_SETTINGS = {"shared_buffers": "128MB"}
# The suite's tables are small: without this, few of them were batched.
BATCHED_SETTINGS = {"batchexec.mode": "prefer"}
# Tests whose queries without ORDER BY get another plan, as batches make a scan or a join cheaper, or another order
# of the rows of a hash table.
ANY_ROW_ORDER = {Path("select_views.out"), Path("join.out"), Path("select_distinct.out"), Path("partition_info.out"),
                 Path("groupingsets.out"), Path("with.out"), Path("tuplesort.out")}
# A test that reads figures of the stock server's Hash node from its plans: NULL where the join is batched.
HASH_FIGURES = {Path("join_hash.out")}
HASH_FIGURE = re.compile(r"-\s+([tf]|\d+)(\s+\|\s+([tf]|\d+))?\s*|\+[\s|]*")
# Tests that ask whether a failed INSERT has left dead rows: a BatchInsert has not written them yet.
DEAD_ROWS = {Path("reloptions.out"), Path("vacuum.out")}
DEAD_ROWS_STATEMENT = re.compile(r" SELECT pg_relation_size\('\w+'\) > 0;")
# Tests that show how many rows a table is estimated to have by its pages: a BatchInsert adds several at once.
PAGES_ADDED = {Path("stats.out")}
PAGES_ADDED_STATEMENT = " SELECT * FROM check_estimated_rows("
# Tests that show a plan by way of a function, which our lines make wider.
PLANS_OF_FUNCTIONS = {Path("merge-update.out")}
# Tests whose queries sort rows by keys that leave ties, and show the order of these or what a window makes of it.
TIES = {Path("window.out"), Path("tsrf.out"), Path("geometry.out"), Path("create_index.out"), Path("sqljson.out")}
SHOWN_LINES_MAX = 40


def driver(pg_config: str, suite: str) -> Path:
    """The test driver that the development package ships."""
    name = {"regress": "pg_regress", "isolation": "pg_isolation_regress"}[suite]
    path = Path(pg_config_value(pg_config, "--pgxs")).parents[1] / "test" / suite / name
    if not path.exists():
        raise MissingPrerequisite(f"{path} is missing; it ships with postgresql-server-dev-15")
    return path


def test_libraries(pg_config: str, source: Path) -> Path:
    """A folder with the C functions that the regression suite calls."""
    folder = build_directory("regress/lib")
    debian_packages("gcc", "libc6-dev")
    include = pg_config_value(pg_config, "--includedir-server")
    run(["gcc", "-shared", "-fPIC", "-O1", f"-I{include}", "-o", folder / "regress.so",
         source / "src/test/regress/regress.c"])
    for name in ("refint.so", "autoinc.so"):
        shutil.copy2(Path(pg_config_value(pg_config, "--pkglibdir")) / name, folder / name)
    return folder


def run_suite(suite: str, side: str, pg_config: str, source: Path, libraries: Path) -> Path:
    """Run a suite on a new server; returns the folder with its results."""
    output = build_directory("regress") / f"{suite}-{side}"
    shutil.rmtree(output, ignore_errors=True)
    # The driver of PostgreSQL 14 expects the folder of a tablespace there.
    (output / "testtablespace").mkdir(parents=True)
    give_to_server_account(output)
    inputs = source / "src/test" / suite
    schedule = inputs / ("parallel_schedule" if suite == "regress" else "isolation_schedule")
    is_batched = side == "batched"
    server = Server(preload=[LIBRARY_NAME] if is_batched else [],
                    settings={**SERVER_SETTINGS, **(BATCHED_SETTINGS if is_batched else {})})
    with server, open(output / "driver.log", "w") as log:
        server.command([driver(pg_config, suite), f"--inputdir={inputs}", f"--outputdir={output}",
                        f"--bindir={server.binaries}", f"--dlpath={libraries}", f"--schedule={schedule}",
                        f"--host={server.directory}", "--port=5432", f"--user={server.environment['PGUSER']}"],
                       cwd=output, stdout=log, stderr=subprocess.STDOUT)
        crashes = server.crashes()
    (output / "crashes").write_text("\n".join(crashes))
    if not (output / "results").exists() or not any((output / "results").iterdir()):
        raise MissingPrerequisite(f"the {suite} suite gave no results; see {output}/driver.log")
    return output


class SuiteComparison:
    """The results of one suite on both servers."""

    def __init__(self, suite: str, stock: Path, batched: Path):
        self.suite = suite
        self.stock = stock
        self.batched = batched
        self.kinds = Counter()
        self.batched_plans = 0
        self.failed = {}
        self.compared = 0

    def compare(self) -> None:
        names = {path.relative_to(side / "results") for side in (self.stock, self.batched)
                 for path in (side / "results").rglob("*.out")}
        for name in sorted(names):
            self._compare_file(name)

    def _compare_file(self, name: Path) -> None:
        self.compared += 1
        texts = [_text(side, name) for side in (self.stock, self.batched)]
        if None in texts:
            self.failed[str(name)] = ["only one of the runs has this file"]
            return
        self.batched_plans += parse(texts[1]).batched_plans
        found = differences(*texts)
        self.kinds.update(difference.kind for difference in found)
        allowed = {Kind.PLAN, Kind.ROW_ORDER} if name in ANY_ROW_ORDER else {Kind.PLAN}
        for names, is_expected in EXPECTED:
            if name in names:
                found = [difference for difference in found if not is_expected(difference)]
        wrong = [line for difference in found if difference.kind not in allowed for line in
                 (f"[{difference.kind.value}]", *difference.lines)]
        if wrong:
            self.failed[str(name)] = wrong

    def report(self) -> None:
        kinds = ", ".join(f"{self.kinds[kind]} of kind {kind.value}" for kind in Kind)
        print(f"{self.suite}: {self.compared} files compared; differences: {kinds}; "
              f"{self.batched_plans} plan displays show batched nodes")
        kept = build_directory("regress") / f"{self.suite}.differences"
        kept.write_text("".join(f"==== {name}\n" + "\n".join(lines) + "\n" for name, lines in self.failed.items()))
        for name, lines in self.failed.items():
            print(f"FAILED {self.suite}/{name}")
            print("\n".join(f"    {line}" for line in lines[:SHOWN_LINES_MAX]))
        if self.failed:
            print(f"all of it: {kept}")


def _changed_lines(difference) -> list:
    return [line for line in difference.lines if re.match(r"[-+](?![-+]{2} )", line)]


def _is_hash_figure(difference) -> bool:
    changed = _changed_lines(difference)
    return bool(changed) and all(HASH_FIGURE.fullmatch(line) for line in changed)


def _is_of_dead_rows(difference) -> bool:
    return _changed_lines(difference) == ["- t", "+ f"] and any(DEAD_ROWS_STATEMENT.fullmatch(line) for line in difference.lines)


def _is_of_pages_added(difference) -> bool:
    """Estimates that differ, of as many rows."""
    actual = {line.rsplit("|")[-1] for line in _changed_lines(difference)}
    return len(actual) == 1 and any(line.startswith(PAGES_ADDED_STATEMENT) for line in difference.lines)


def _is_wider_plan(difference) -> bool:
    """The same lines of a plan, but for their width, and ours."""
    sides = {"-": [], "+": []}
    for line in difference.lines:
        text = line[1:].strip()
        if line[0] in sides and not line.startswith(("--- ", "+++ ")) and not re.fullmatch(r"-+|\(\d+ rows\)|Not Batched: .*", text):
            sides[line[0]].append(text)
    return sides["-"] == sides["+"] and any("Not Batched: " in line for line in difference.lines)


def _is_of_ties(difference) -> bool:
    """Rows of a table alone: their number stands below it."""
    changed = _changed_lines(difference)
    return all(line.startswith(("- ", "+ ")) for line in changed) and len({line.count("|") for line in changed}) == 1


EXPECTED = ((HASH_FIGURES, _is_hash_figure), (DEAD_ROWS, _is_of_dead_rows), (PAGES_ADDED, _is_of_pages_added),
            (PLANS_OF_FUNCTIONS, _is_wider_plan), (TIES, _is_of_ties))


def _text(side: Path, name: Path):
    """A result, without the name of its run's folder, which the tests of PostgreSQL 14 print."""
    path = side / "results" / name
    return path.read_text(errors="replace").replace(str(side), "/output") if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: both")
    options = parser.parse_args()
    stop_on_signals()
    pg_config = default_pg_config()
    if not Server().library.exists():
        raise MissingPrerequisite(f"{Server().library} is not built; run `make -C extension` first")
    source = postgres_source(pg_config)
    libraries = test_libraries(pg_config, source)
    passed = failed = crashed = 0
    for suite in options.suite or SUITES:
        print(f"running the {suite} suite on both servers", flush=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            stock, batched = pool.map(lambda side: run_suite(suite, side, pg_config, source, libraries),
                                      ("stock", "batched"))
        comparison = SuiteComparison(suite, stock, batched)
        comparison.compare()
        comparison.report()
        failed += len(comparison.failed)
        passed += comparison.compared - len(comparison.failed)
        for line in (batched / "crashes").read_text().splitlines():
            print(f"server log: {line}")
            crashed += 1
        if suite == "regress" and comparison.batched_plans == 0:
            print("no plan display shows a batched node: the extension was not at work")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or crashed else 0


if __name__ == "__main__":
    run_check(main)
