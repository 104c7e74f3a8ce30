#!/usr/bin/env python3
"""The checks once more on a PostgreSQL built with assertions and memory-context checking.

    make -C extension test-assertions

Builds PostgreSQL from the Debian source with --enable-cassert (once, about five minutes) and the
extension against it, then runs the extension's own suite, a slice of the differential check and
PostgreSQL's regression suite. Fails on a failed assertion, a write past an allocation, a crash, or
anything that the checks themselves fail on.
"""

import argparse
import os
import subprocess

from assertion_build import assertion_build, extension_for
from prerequisites import CHECKS_DIRECTORY, LIBRARY_NAME, run_check
from server import default_pg_config, stop_on_signals

PAIRS_DEFAULT = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS_DEFAULT, help="of the differential check")
    parser.add_argument("--seed", type=int, help="of the differential check")
    options = parser.parse_args()
    stop_on_signals()
    pg_config = str(assertion_build(default_pg_config()))
    tree = extension_for(pg_config, "assertions")
    environment = dict(os.environ, PG_CONFIG=pg_config, BATCHEXEC_LIBRARY=str(tree / f"{LIBRARY_NAME}.so"))
    # -j of an outer make must not reach the inner one, which would run two servers' suites at once.
    environment.pop("MAKEFLAGS", None)
    differential = [CHECKS_DIRECTORY / "differential_check.py", f"--pairs={options.pairs}"]
    if options.seed is not None:
        differential.append(f"--seed={options.seed}")
    steps = {
        "own suite": ["make", "-C", tree, f"PG_CONFIG={pg_config}", "check"],
        "differential": differential,
        "regression suite": [CHECKS_DIRECTORY / "regression_suite.py", "--suite=regress"],
    }
    failed = []
    for name, command in steps.items():
        print(f"== {name}, with assertions", flush=True)
        if subprocess.run([str(word) for word in command], env=environment).returncode != 0:
            failed.append(name)
    for name in failed:
        print(f"FAILED {name}")
    print(f"{len(steps) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    run_check(main)
