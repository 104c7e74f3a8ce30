#!/usr/bin/env python3
"""The checks once more on a PostgreSQL built with assertions and memory-context checking.

    make -C extension test-assertions

Builds PostgreSQL from the Debian source with --enable-cassert (once, about five minutes) and the
extension against it, then runs the extension's own suite, a slice of the differential check and
PostgreSQL's regression suite. Fails on a failed assertion, a write past an allocation, a crash, or
anything that the checks themselves fail on.
"""

from prerequisites import CHECKS_DIRECTORY, run_check
from server import default_pg_config, stop_on_signals
from server_build import ASSERTIONS, BuildCheck, differential, parse_options


def main() -> int:
    options = parse_options(__doc__)
    stop_on_signals()
    check = BuildCheck(ASSERTIONS, default_pg_config())
    return check.run({
        "own suite": check.own_suite(),
        "differential": differential(options),
        "regression suite": [CHECKS_DIRECTORY / "regression_suite.py", "--suite=regress"],
    })


if __name__ == "__main__":
    run_check(main)
