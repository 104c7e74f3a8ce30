#!/usr/bin/env python3
"""The checks once more with the sanitizers of addresses and of undefined behaviour.

    make -C extension test-sanitizers

Builds PostgreSQL from the Debian source with them (once, about fifteen minutes) and the extension
against it. The server tells the sanitizer of addresses what is allocated in its memory contexts and
which buffers are pinned. First, functions that make a mistake each have to be reported. Then the
extension's own suite, a slice of the differential check, and the checks of accounting, of INSERTs, of
concurrency, of statistics and of other access methods run. Fails on a report, a failed assertion, a crash, or anything
that the checks themselves fail on.
"""

import os
import shutil
import time

from prerequisites import CHECKS_DIRECTORY, build_directory, run_check
from server import Server, default_pg_config, stop_on_signals
from server_build import SANITIZERS, BuildCheck, differential, module_library, parse_options

REPORTS = "sanitizer/reports"
REPORTS_SHOWN_MAX = 5
REPORT_LINES_MAX = 25
RECOVERY_MAX_S = 60
# PostgreSQL leaves memory to the end of a process, and switches no stacks, but measures the depth of the one it has.
ADDRESS_OPTIONS = "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1"
UNDEFINED_OPTIONS = "print_stacktrace=1:abort_on_error=1"
# The functions of sanitizer/mistakes.c, and what the report of each says.
MISTAKES = {
    "read_behind_chunk": "use-after-poison",
    "read_freed_chunk": "use-after-poison",
    "read_unpinned_buffer": "use-after-poison",
    "load_misaligned": "misaligned address",
    "overflow_sum": "signed integer overflow",
    "shift_too_far": "shift exponent 32",
    "cast_large_float": "outside the range of representable values",
}


class Reports:
    """What the sanitizer of addresses writes: a file for each process that made a mistake.

    That of undefined behaviour writes to the server's log, which the checks look at.
    """

    def __init__(self):
        self.folder = build_directory(REPORTS)
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        # The server runs as another user, where this is root.
        self.folder.chmod(0o777)

    def environment(self) -> dict:
        """What makes the sanitizers of a process write so."""
        return {"ASAN_OPTIONS": f"{ADDRESS_OPTIONS}:log_path={self.folder / 'report'}",
                "UBSAN_OPTIONS": UNDEFINED_OPTIONS}

    def take(self) -> list:
        """The texts of the reports since the last call, which are deleted."""
        texts = []
        for path in sorted(self.folder.iterdir()):
            texts.append(path.read_text(errors="replace"))
            path.unlink()
        return texts

    def complaints(self) -> list:
        texts = self.take()
        shown = ["\n".join(f"    {line}" for line in text.splitlines()[:REPORT_LINES_MAX])
                 for text in texts[:REPORTS_SHOWN_MAX]]
        return [f"sanitizer report {number} of {len(texts)}:\n{text}" for number, text in enumerate(shown, 1)]


def check_mistakes(reports: Reports, pg_config: str) -> int:
    """Call each function that makes a mistake; returns the status of this step."""
    library = module_library(CHECKS_DIRECTORY / "sanitizer", "mistakes", pg_config, SANITIZERS.extension_variables)
    missed = []
    with Server(pg_config=pg_config, more_libraries=[library]) as server:
        server.psql("; ".join(f"create function {name}(int) returns int language c as 'mistakes'" for name in MISTAKES))
        for name, expected in MISTAKES.items():
            before = len(server.crashes())
            try:
                server.psql(f"select {name}(0)")
            except RuntimeError:
                wait_for_recovery(server)
            if not any(expected in text for text in (*reports.take(), *server.crashes()[before:])):
                missed.append(name)
    for name in missed:
        print(f"the sanitizers have not reported {name}()")
    print(f"{len(MISTAKES) - len(missed)} mistakes reported, {len(missed)} not")
    return 1 if missed else 0


def wait_for_recovery(server: Server) -> None:
    """Poll, with a deadline, until the server is up again after a crash."""
    deadline = time.monotonic() + RECOVERY_MAX_S
    while True:
        try:
            server.psql("select 1")
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise


def main() -> int:
    options = parse_options(__doc__)
    stop_on_signals()
    reports = Reports()
    # For the programs that run while the server is built, too.
    os.environ.update(reports.environment())
    check = BuildCheck(SANITIZERS, default_pg_config(), reports.complaints)
    return check.run({
        "mistakes made on purpose": lambda: check_mistakes(reports, check.pg_config),
        "own suite": check.own_suite(),
        "differential": differential(options),
        "accounting": [CHECKS_DIRECTORY / "accounting_check.py"],
        "inserts": [CHECKS_DIRECTORY / "insert_check.py"],
        "concurrency": [CHECKS_DIRECTORY / "concurrency_check.py"],
        "statistics": [CHECKS_DIRECTORY / "statistics_check.py"],
        "other access methods": [CHECKS_DIRECTORY / "source_check.py", f"--pairs={options.pairs // 4}"],
    })


if __name__ == "__main__":
    run_check(main)
