"""The measurements, their contenders and their targets."""

import math
from dataclasses import dataclass
from typing import Callable

from .contenders import Sample, drive, floor, main_job

OURS = "Gristmill"


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    id: str
    title: str
    # The figure of a sample that it shows.
    key: str
    unit: str
    target: float
    # Whether a higher figure is better.
    more_is_better: bool = True


@dataclass(frozen=True)
class Measurement:
    """Runs that give at least one figure. `contenders` maps names to functions that run them once; ours comes first."""

    id: str
    needs: tuple
    figures: tuple
    contenders: dict
    runs_max: int = 1_000
    # Runs once before the rounds, if the contenders' runs have no warm-up.
    warm_up: Callable = lambda: None
    # Further notes of the report on each of our runs.
    note: Callable = lambda sample: ""
    # Our contenders.
    ours: tuple = (OURS,)
    # Seconds of all runs after which one of ours is not run again.
    ours_seconds_max: float = math.inf


def plan(bench):
    """All measurements, in the table's order."""
    return [
        _submit_batches(bench),
        _drain(bench),
        _submit_single(bench, 1, 25_000),
        _submit_single(bench, 64, 200_000),
        _main_job(bench, "python", "py", 120_000),
        _main_job(bench, "node", "mjs", 150_000),
        _latency(bench),
        _memory(bench),
    ]


DRIVERS = ("driver", "taskmill", "plainjob")


def _driven(bench, work, synchronous, jobs, **order):
    """Contenders with a driver, each with the jobs of a few seconds."""

    def contender(name, count):
        count = bench.scaled(count)
        warm_up = max(1, min(count // 10, 20_000))
        return lambda: drive(bench, name, work, count, warm_up, synchronous, **order)

    titles = {"gristmill": OURS, "bare": "bare rows"}
    return {titles.get(name, name): contender(name, count) for name, count in jobs.items()}


def _submit_batches(bench):
    jobs = {"gristmill": 1_000_000, "taskmill": 100_000, "plainjob": 400_000, "bare": 1_000_000}
    return Measurement(
        id="submit-batches",
        needs=DRIVERS,
        figures=(Figure("submit-batches", "submit in batches of 1,000, FULL", "per_second", "jobs/s", 800_000),),
        contenders=_driven(bench, "submit_batches", "full", jobs),
    )


def _drain(bench):
    jobs = {"gristmill": 1_000_000, "taskmill": 10_000, "plainjob": 20_000, "bare": 300_000}
    return Measurement(
        id="drain",
        needs=DRIVERS,
        figures=(Figure("drain", "claim + commit, Rust no-op handler, FULL", "per_second", "jobs/s", 500_000),),
        contenders=_driven(bench, "drain", "full", jobs),
    )


def _submit_single(bench, callers, target):
    jobs = {"gristmill": 50_000 if callers == 1 else 400_000, "taskmill": 10_000, "plainjob": 50_000}
    if callers == 1:
        jobs["bare"] = 50_000
    words = "one caller" if callers == 1 else f"{callers} callers"
    name = f"submit-single-{callers}"
    return Measurement(
        id=name,
        needs=DRIVERS,
        figures=(Figure(name, f"single submits, {words}, NORMAL", "per_second", "jobs/s", target),),
        contenders=_driven(bench, "submit_single", "normal", jobs, callers=callers),
    )


def _latency(bench):
    jobs = {"gristmill": 500, "taskmill": 500, "plainjob": 500, "bare": 500}
    title = "submit to handler start, idle worker, 50 a second, FULL"
    return Measurement(
        id="latency",
        needs=DRIVERS,
        figures=(
            Figure("latency-p50", f"{title}: p50", "p50_ms", "ms", 0.3, more_is_better=False),
            Figure("latency-p99", f"{title}: p99", "p99_ms", "ms", 2.0, more_is_better=False),
        ),
        contenders=_driven(bench, "latency", "full", jobs, rate_per_second=50),
    )


def _main_job(bench, language, suffix, target):
    items = bench.scaled(1_000_000)
    name = f"run-{language}"
    title = f"`gristmill run`, {language.capitalize()} identity script, {items:,} items, FULL"

    def warm_up():
        main_job(bench, f"identity.{suffix}", items // 10)
        floor(bench, f"floor.{suffix}", items // 10)

    return Measurement(
        id=name,
        needs=("gristmill", "node"),
        warm_up=warm_up,
        figures=(Figure(name, title, "per_second", "jobs/s", target),),
        contenders={
            OURS: lambda: main_job(bench, f"identity.{suffix}", items),
            "floor: the script's language alone": lambda: floor(bench, f"floor.{suffix}", items),
        },
    )


def _memory(bench):
    items = bench.scaled(10_000_000)
    title = f"peak memory of `gristmill run`, Python, {items:,} items"

    def run():
        # Other programs do not change this figure, so no run counts as disturbed.
        return Sample(main_job(bench, "identity.py", items, memory=True).figures, others_cores=0)

    return Measurement(
        id="memory",
        needs=("gristmill", "node"),
        figures=(Figure("memory", title, "memory_mb", "MB", 300, more_is_better=False),),
        contenders={OURS: run},
        runs_max=1,
        note=lambda figures: f"its runtimes together {figures['children_mb']:.0f} MB, at {figures['per_second']:,.0f} jobs/s",
    )
