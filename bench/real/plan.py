"""The rows: which jobs, on how many slots, by whom."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.plan import OURS, Figure, Measurement
from postgres.contenders import PostgresBench

from . import ours, peers, targets
from .work import SECONDS_AT_BOUND, WORKS

SLOTS = (2, 16, 64)
# Where Gristmill runs: the name in the report, and how it is run.
SQLITE, POSTGRES, AGENTS = "SQLite", "PostgreSQL", "agents"
STORES = {SQLITE: "sqlite", POSTGRES: "postgres", AGENTS: "agent"}
# The other ways to many slots, on SQLite: the script, the option, and the name in the report.
WAYS = (("nap_async", "--concurrency", f"{SQLITE}, async"), ("nap", "--threads", f"{SQLITE}, threads"))
PROCESSES_OF_WAYS = 2
QUEUES = {"River": lambda builds: [builds.river], "graphile-worker": lambda builds: [builds.node, builds.graphile]}
QUEUES_WORK = "10ms"
OLD = "old"
OLD_JOBS = {"noop": ("identity", 400_000), "10us": ("busy", 150_000)}
SHARE_OF_READS = 0.3
# One of ours whose runs of one row took so long together is not run again for it.
OURS_SECONDS_MAX = 20
# A run that takes longer hangs.
RUN_SECONDS_MAX = 120


@dataclass
class RealBench(PostgresBench):
    """What every row needs, and how long it takes at its bound, in seconds."""

    seconds: float = SECONDS_AT_BOUND

    def run(self, command, **options):
        return super().run(command, seconds_max=RUN_SECONDS_MAX, **options)


def plan(bench):
    """All measurements, in the report's order."""
    found = [_row(bench, work, slots) for work in WORKS for slots in SLOTS] + targets.plan(bench, STORES)
    if bench.builds.old:
        found += [_old_row(bench, name, where) for name in OLD_JOBS for where in STORES]
    return found


def ways(bench, work, slots):
    """Ours in this row: what it is called in the report, and the arguments of `ours.run`."""
    found = {where: {"where": store} for where, store in STORES.items()}
    if slots > PROCESSES_OF_WAYS and not work.is_no_op:
        for script, option, name in WAYS:
            if has_option(bench.builds.gristmill, option):
                more = ("-j", PROCESSES_OF_WAYS, option, slots // PROCESSES_OF_WAYS)
                found[name] = {"where": "sqlite", "script": script, "more": more}
    return found


def row_id(work, slots):
    return f"{work.id}-{slots}"


def _row(bench, work, slots):
    share = bench.seconds / SECONDS_AT_BOUND
    jobs = work.jobs(slots, share)
    own = ways(bench, work, slots)
    contenders = {name: lambda how=how: ours.run(bench, work=work, slots=slots, jobs=jobs, **how) for name, how in own.items()}
    contenders |= {
        "Pool.imap": peers.Pool(bench, "imap", work, slots, jobs).run,
        "ProcessPoolExecutor": peers.Pool(bench, "executor", work, slots, jobs).run,
        "parallel --pipe": lambda: peers.parallel_lines(bench, work, slots, jobs),
        "parallel, a process an item": lambda: peers.parallel_processes(bench, work, slots, jobs),
    }
    if work.id == QUEUES_WORK:
        for name, program in QUEUES.items():
            contenders[name] = lambda program=program: peers.queue(bench, program(bench.builds), work, slots, jobs)

    def warm_up():
        """Fewer jobs, with a reader that says how long each outcome took to become visible."""
        few = work.jobs(slots, share * SHARE_OF_READS)
        for name, how in own.items():
            sample = ours.run(bench, work=work, slots=slots, jobs=few, reads=not work.is_no_op, **how)
            if not work.is_no_op:
                bench.notes[f"latency {row_id(work, slots)} {name}"] = {
                    key: sample.figures[key] for key in ("p50_ms", "p99_ms", "max_ms")}

    figure = Figure("makespan", row_id(work, slots), "seconds", "s", 0, more_is_better=False)
    return Measurement(
        id=row_id(work, slots), needs=("gristmill", "reader", "parallel", *QUEUES), figures=(figure,), warm_up=warm_up,
        contenders=contenders, ours=tuple(own), ours_seconds_max=OURS_SECONDS_MAX,
    )


def _old_row(bench, name, where):
    """The program beside an older one, so that neither becomes slower for quick jobs."""
    script, jobs = OLD_JOBS[name]
    jobs = bench.scaled(jobs)
    run = lambda program: ours.run(
        bench, STORES[where], WORKS[0], PROCESSES_OF_WAYS, jobs, script=script, program=program)
    return Measurement(
        id=f"old-{name}-{STORES[where]}", needs=("gristmill",),
        figures=(Figure("rate", f"{name}, {where}", "per_second", "jobs/s", 0),),
        warm_up=lambda: run(bench.builds.gristmill),
        contenders={OURS: lambda: run(bench.builds.gristmill), OLD: lambda: run(bench.builds.old)},
        ours=(OURS, OLD),
    )


def has_option(program, option):
    """Whether `gristmill run` knows an option."""
    if not Path(program).exists():
        return False
    words = subprocess.run([str(program), "run", "--help"], capture_output=True, text=True)
    return f"{option} " in words.stdout
