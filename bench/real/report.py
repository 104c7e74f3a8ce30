"""The report on jobs that take real time, as Markdown."""

import statistics
from dataclasses import dataclass

from harness.machine import DISTURBED_CORES
from harness.plan import OURS
from harness.report import Row, bounds, machine_section, number
from harness.tables import grid
from postgres.server import settings

from .plan import OLD, OLD_JOBS, PROCESSES_OF_WAYS, QUEUES, SLOTS, SQLITE, STORES, row_id
from .work import TAIL_SECONDS_MAX, WORKS

# Medians that differ by a smaller share count as even.
EVEN = 0.02
OLD_SHARE_MIN = 0.95
# The beginning of the ids of rows with targets.
TARGET = "target-"
NOT_PROFILED = "not profiled yet."
ROW_IDS = frozenset(row_id(work, slots) for work in WORKS for slots in SLOTS) | {
    f"old-{name}-{store}" for name in OLD_JOBS for store in STORES.values()}

INTRODUCTION = """\
# Measured results of real jobs

Written by `make bench-real` on {date}: medians of {runs} runs each, every contender in turn within each round. Jobs sleep
(`time.sleep` in a Python script); no-ops give back what they get. The heavy tail is log-normal (median 11 ms, mean about
50 ms, at most {tail:.0f} s, the same jobs in every run). The bound is the makespan of greedy list scheduling: each job, in
its order, begins on the slot that is free first, and nothing else takes time.

* **Makespan**: the wall time of the whole command, its start and that of its processes included, from the file of items
  to the file of results. An agent's is from its start to its end, with its server running and the jobs submitted. River's
  and graphile-worker's is what their drivers say: from the start of their workers to the last outcome, with the jobs
  inserted and the program running before.
* **Once busy**: the same without the start: from when 9 of 10 slots were busy at the same time for the first time to the
  last job's end, over the bound of what was left then; by the moments that the jobs return.
* **Gristmill** commits each outcome durably (SQLite with `synchronous=FULL`; PostgreSQL {version} with {settings}); agents'
  server is on PostgreSQL. Slots are processes (`-j`); where it says async or threads, {processes} processes with
  `--concurrency` or `--threads`.
* **Outcomes a commit**: by the program's own count (`stats`). **Transactions a job**: on PostgreSQL those of
  `pg_stat_database`, with the program's start and end; on SQLite the batches submitted, claimed and committed, which is no
  less than there were. **Processor time a job**: of the program, its processes, its server and PostgreSQL.
* **Latency**: from a job's end to its visible outcome. Each job returns when it ended; in a run of its own, which counts
  for nothing else, a reader beside the program looks for reports every millisecond in the file (2 ms in PostgreSQL) and
  notes when it first sees each outcome: at most one look too high. The start of the processes is in it.
* **First** names the contender with the least makespan over its bound (jobs a second for no-ops); `even`: within 2 % of it.
"""

TARGETS_INTRODUCTION = """\
Jobs of 2 ms run in 2 processes with 8 threads each. One job after the other: `-j 1`, jobs of 30 ms. Latencies are read as below, in
runs with a reader, the processes' start included. Transactions count with those of the agents' start and end."""


@dataclass
class Result:
    """The samples of one contender in one row."""

    samples: list

    def values(self, key):
        clean = [sample for sample in self.samples if sample.others_cores < DISTURBED_CORES]
        chosen = clean if 2 * len(clean) >= len(self.samples) else self.samples
        return [sample.figures[key] for sample in chosen if sample.figures.get(key) is not None]

    def median(self, key):
        values = self.values(key)
        return statistics.median(values) if values else None

    def cell(self, key):
        value = self.median(key)
        return "–" if value is None else number(value)

    def spread(self, key):
        """The median with the lowest and the highest."""
        values = sorted(sample.figures[key] for sample in self.samples if sample.figures.get(key) is not None)
        if not values:
            return "–"
        disturbed = sum(sample.others_cores >= DISTURBED_CORES for sample in self.samples)
        mark = " *" if 2 * disturbed > len(self.samples) else ""
        return f"{number(self.median(key))} ({number(values[0])}–{number(values[-1])}){mark}"

    def cost(self):
        """The deciding figure, less is better: the makespan over the bound, or the seconds of a job."""
        times = self.median("times")
        return times if times is not None else 1 / self.median("per_second")


@dataclass
class Standing:
    """One of our ways in a row beside the others."""

    work: object
    slots: int
    where: str
    result: Result
    others: dict

    @property
    def rivals(self):
        """The others to compare with, the best first: queues on PostgreSQL are none for a file."""
        names = (name for name in self.others if not (self.where.startswith(SQLITE) and name in QUEUES))
        return sorted(names, key=lambda name: self.others[name].cost())

    @property
    def ratio(self):
        """The ratio to the best other; above 1, Gristmill is better."""
        return self.others[self.rivals[0]].cost() / self.result.cost() if self.rivals else None

    @property
    def is_first(self):
        return self.ratio is None or self.ratio >= 1 - EVEN

    def first(self):
        if self.ratio is None:
            return "–"
        if abs(self.ratio - 1) <= EVEN:
            return f"even with {self.rivals[0]}"
        return f"**{OURS}**" if self.ratio > 1 else self.rivals[0]

    def bound_note(self):
        """The most special note of bounds.md for this row."""
        notes = bounds()
        store, _, way = self.where.lower().partition(", ")
        ways = [f"{self.work.id}-{way}"] if way else []
        for name in (*ways, f"{self.work.id}-{self.slots}-{store}", f"{self.work.id}-{self.slots}", f"{self.work.id}-{store}",
                     self.work.id, f"{self.slots}-{store}", f"{self.slots}"):
            if f"real-{name}" in notes:
                return notes[f"real-{name}"]
        return NOT_PROFILED


def standings(samples, own_names):
    """All rows that were measured. `own_names` are the names of ours."""
    found = []
    for work in WORKS:
        for slots in SLOTS:
            results = {name: Result(those) for name, those in samples.get(row_id(work, slots), {}).items()}
            others = {name: result for name, result in results.items() if name not in own_names}
            found += [Standing(work, slots, name, results[name], others) for name in results if name in own_names]
    return found


def _speed(result):
    """The makespan over the bound, or jobs a second where there is no bound."""
    return f"{result.cell('per_second')} jobs/s" if result.median("times") is None else f"{result.cell('times')} x"


def makespans(rows):
    lines = [
        (
            row.work.title, str(row.slots), row.where, f"{row.result.median('jobs'):,.0f}",
            "–" if row.work.is_no_op else row.result.cell("bound"), row.result.spread("seconds"), _speed(row.result),
            row.result.cell("busy_times"),
            ", ".join(f"{name} {_speed(row.others[name])}" for name in row.rivals[:2]) or "–",
            "–" if row.ratio is None else f"{row.ratio:.2f}", row.first(),
        )
        for row in rows
    ]
    headers = ("jobs", "slots", "Gristmill on", "number", "bound s", "makespan s", "over bound", "once busy", "best others",
               "ratio", "first")
    return grid(headers, lines, "lrlrrrrrlrl")


def costs(rows, notes):
    def latency(row):
        found = notes.get(f"latency {row_id(row.work, row.slots)} {row.where}")
        return f"{number(found['p50_ms'])} / {number(found['p99_ms'])}" if found else "–"

    lines = [
        (
            row.work.title, str(row.slots), row.where, row.result.cell("outcomes_per_commit"), row.result.cell("reports"),
            _small(row.result.median("transactions_per_job")), row.result.cell("cpu_us"), latency(row),
            row.result.cell("start_seconds"),
        )
        for row in rows
    ]
    headers = ("jobs", "slots", "Gristmill on", "outcomes a commit", "report rows", "transactions a job",
               "processor us a job", "latency p50 / p99 ms", "first job begins after s")
    return grid(headers, lines, "lrlrrrrrr")


def _small(value):
    return "–" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def others(rows):
    lines, seen = [], set()
    for row in rows:
        for name, result in row.others.items():
            if (key := (row.work.id, row.slots, name)) in seen:
                continue
            seen.add(key)
            chunk = result.median("chunk")
            lines.append((
                row.work.title, str(row.slots), name, "yes" if name in QUEUES else "no", f"{result.median('jobs'):,.0f}",
                "–" if chunk is None else f"{chunk:.0f}", result.spread("seconds"), _speed(result), result.cell("busy_times"),
                result.cell("cpu_us"),
                str(len(result.samples)),
            ))
    headers = ("jobs", "slots", "contender", "durable", "number", "chunk", "makespan s", "over bound", "once busy",
               "processor us a job", "runs")
    return grid(headers, lines, "lrllrrrrrrr")


def old_rows(samples):
    """The ratio of the new program's throughput to the old one's. Lines of Markdown."""
    lines = []
    for name in OLD_JOBS:
        for where, store in STORES.items():
            found = samples.get(f"old-{name}-{store}")
            if found and {OURS, OLD} <= set(found):
                new, old = Result(found[OURS]), Result(found[OLD])
                share = new.median("per_second") / old.median("per_second")
                lines.append((
                    name, where, new.spread("per_second"), old.spread("per_second"), f"{share:.3f}",
                    "yes" if share >= OLD_SHARE_MIN else "no",
                ))
    headers = ("jobs", "where", "jobs/s", "older program, jobs/s", "new / old", f"{OLD_SHARE_MIN} or more")
    return grid(headers, lines, "llrrrl") if lines else []


def target_rows(measurements, samples):
    """The figures of the rows that have targets, and what bounds those that are missed. Lines of Markdown."""
    lines, missed, notes = [], [], bounds()
    for measurement in measurements:
        found = samples.get(measurement.id) if measurement.id.startswith(TARGET) else None
        for figure in measurement.figures if found else ():
            row = Row(figure, found, "")
            result = Result(found[OURS])
            unit = f" {figure.unit}".rstrip()
            if figure.target and not row.is_met():
                missed += [f"* **{measurement.id}, {figure.title}**: {notes.get(f'real-{measurement.id}', NOT_PROFILED)}", ""]
            lines.append((figure.title, result.spread(figure.key) + unit,
                          f"{'under ' if not figure.more_is_better else ''}{number(figure.target)}{unit}" if figure.target else "–",
                          "–" if not figure.target else "yes" if row.is_met() else "no"))
    return [*grid(("work", "Gristmill", "target", "met"), lines, "lrrl"), *missed] if lines else []


def bounds_lines(rows):
    """The bounds of the rows in which another is first; rows with the same note share a line."""
    together = {}
    for row in rows:
        if not row.is_first:
            name = f"{row.work.title}, {row.slots} slots, {row.where} ({row.ratio:.2f})"
            together.setdefault(row.bound_note(), []).append(name)
    if not together and all(row.ratio is None for row in rows):
        return ["No other contender was measured."]
    return [f"* **{'; '.join(names)}**: {words}" for words, names in together.items()] or [
        "Gristmill is first in each row, or even with the best other."]


def summary(rows, failures=()):
    """The number of rows in which Gristmill is first, by its ways, and the missing rows."""
    judged = [row for row in rows if row.ratio is not None]
    words = [f"Of {len(judged)} rows with another contender, {_counts(judged)}."]
    ways = dict.fromkeys(row.where for row in judged)
    for where in ways if len(ways) > 1 else ():
        own = [row for row in judged if row.where == where]
        words.append(f"{where}: of {len(own)}, {_counts(own)}.")
    if alone := len(rows) - len(judged):
        words.append(f"{alone} rows have no other contender.")
    # The failure of one contender has its name after the row's.
    if failed := sorted(name for name in failures if name in ROW_IDS):
        words.append(f"Missing, since they failed: {', '.join(failed)}.")
    return " ".join(words)


def _counts(rows):
    first = sum(row.ratio > 1 + EVEN for row in rows)
    even = sum(abs(row.ratio - 1) <= EVEN for row in rows)
    return f"Gristmill is first in {first}, even with the best other in {even}, behind in {len(rows) - first - even}"


def markdown(rows, measurements, samples, notes, failures, facts, versions, date, runs, version):
    """The whole report."""
    introduction = INTRODUCTION.format(
        date=date, runs=runs, version=version, settings=settings(("fsync", "synchronous_commit")), tail=TAIL_SECONDS_MAX,
        processes=PROCESSES_OF_WAYS)
    lines = [introduction, summary(rows, failures), "", "## Makespan", "", *makespans(rows)]
    if any(sample.others_cores >= DISTURBED_CORES for found in samples.values() for those in found.values() for sample in those):
        lines += [f"\\* other programs used more than {DISTURBED_CORES} cores during most of these runs.", ""]
    if old := old_rows(samples):
        lines += ["## Quick jobs beside the older program", "", f"`-j {PROCESSES_OF_WAYS}`, in turn.", "", *old]
    if targets := target_rows(measurements, samples):
        lines += ["## Targets", "", TARGETS_INTRODUCTION, "", *targets]
    lines += ["## Commits, processor time and latency", "", *costs(rows, notes)]
    lines += ["## The others", "", "Chunks are items a task of a pool (the best of a few), or lines a process.", "", *others(rows)]
    lines += ["## What bounds the rows in which another is first", "", *bounds_lines(rows), ""]
    if failures:
        lines += ["## What failed or was left out", "", *(f"* {name}: {said}" for name, said in sorted(failures.items())), ""]
    lines += machine_section(facts, versions)
    return "\n".join(lines)


def table(rows, measurements, samples, notes, failures=()):
    """The same tables for a terminal."""
    return "\n".join([*makespans(rows), *costs(rows, notes), *others(rows), *old_rows(samples),
                      *target_rows(measurements, samples), summary(rows, failures)])
