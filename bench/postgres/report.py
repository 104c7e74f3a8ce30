"""The report on PostgreSQL, as Markdown."""

from harness.report import bounds_section, machine_section, spread_section, table_section

from .server import settings

INTRODUCTION = """\
# Measured results on PostgreSQL

Written by `make bench-postgres` on {date}: medians of {runs} runs each, or of more where some were disturbed (the numbers
are below), every contender in turn within each round, each run in a new database of one private PostgreSQL {version} on
disk ({settings}), over TCP on
loopback, after a warm-up in the same process. Jobs do nothing and have payloads of 100 bytes: 1,000,000 for Gristmill,
100,000 for the peers. The ratio says how many times as good as the best other; above 1, Gristmill is better.
"""


def markdown(rows, notes, version, facts, versions, date, runs):
    """The whole report."""
    introduction = INTRODUCTION.format(date=date, runs=runs, version=version, settings=settings())
    lines = [introduction, *table_section(rows)]
    if "deep" in notes:
        lines += ["## Many jobs waiting", "", *notes["deep"]]
    failed = [line for name in sorted(notes) if name.startswith("failed ") for line in notes[name]]
    if failed:
        lines += ["## What failed", "", *(f"* {line}" for line in failed), ""]
    lines += [*bounds_section(rows), *spread_section(rows), *machine_section(facts, versions)]
    return "\n".join(lines)
