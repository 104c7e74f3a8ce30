"""The scheduler's table, on the terminal and as Markdown."""

from harness.machine import DISTURBED_CORES
from harness.plan import OURS
from harness.report import Row, bounds_section, machine_section, number, spread_section
from harness.tables import aligned, grid
from postgres.server import settings

from .plan import PEER, POSTGRES

HEADERS = ("work", "SQLite", "PostgreSQL", "taskmill", "ratio", "target", "met")

INTRODUCTION = """\
# Measured results of the scheduler

Written by `make bench-scheduler` on {date}: medians of {runs} runs each, or of more where some were disturbed (the numbers
are below), every contender in turn within each round, each run in a new store on disk (SQLite with `synchronous=FULL`,
taskmill too; one private PostgreSQL {version} with {settings}), after a warm-up in the same process. Jobs do nothing, or
fail, and have payloads of 100 bytes. The ratio says how many times as good as taskmill Gristmill is on SQLite.
"""


class SchedulerRow(Row):
    """One figure of ours on both stores, and of the peer."""

    def others(self):
        return [(self.value(PEER), PEER)] if PEER in self.samples else []

    def ratio(self):
        # The measured value may be 0.
        return super().ratio() if self.value(OURS) and all(value for value, _ in self.others()) else None

    def is_met(self):
        goal = self.figure
        if goal.ratio:
            return self.ratio() is not None and self.ratio() >= goal.ratio
        stores = [OURS, *([POSTGRES] if goal.postgres_too and POSTGRES in self.samples else [])]
        values = [self.value(store) for store in stores]
        return all(value >= goal.target if goal.more_is_better else value <= goal.target for value in values)

    def target(self):
        goal = self.figure
        if goal.ratio:
            return f"{goal.ratio:.0f} x taskmill" if PEER in self.samples else "–"
        return f"{'' if goal.more_is_better else 'under '}{number(goal.target)} {goal.unit}".rstrip()

    def cell(self, contender):
        if contender not in self.samples:
            return "–"
        return f"{number(self.value(contender))} {self.figure.unit}".rstrip() + self.mark(contender)

    def cells(self):
        ratio = self.ratio()
        judged = PEER in self.samples or not self.figure.ratio
        return (
            self.figure.title, self.cell(OURS), self.cell(POSTGRES), self.cell(PEER),
            "–" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}",
            self.target(), "–" if not judged else "yes" if self.is_met() else "no",
        )


def table(rows):
    """Aligned columns for a terminal."""
    return aligned(HEADERS, [row.cells() for row in rows])


def markdown(rows, notes, version, facts, versions, date, runs):
    """The whole report."""
    lines = [
        INTRODUCTION.format(date=date, runs=runs, version=version, settings=settings()),
        *grid(HEADERS, [row.cells() for row in rows], "lrrrrrl"),
    ]
    if any(row.mark(name) for row in rows for name in row.samples):
        lines += [f"\\* other programs used more than {DISTURBED_CORES} cores during most of these runs.", ""]
    lines += [*(f"* {said}" for name in sorted(notes) for said in notes[name]), ""]
    lines += [*bounds_section(rows), *spread_section(rows), *machine_section(facts, versions)]
    return "\n".join(lines)
