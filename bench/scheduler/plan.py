"""The measurements of the scheduler, their contenders and their targets."""

from dataclasses import dataclass

from harness.contenders import drive as drive_sqlite
from harness.plan import OURS, Figure, Measurement
from postgres.contenders import drive as drive_postgres

POSTGRES = "Gristmill on PostgreSQL"
PEER = "taskmill"


@dataclass(frozen=True)
class Goal(Figure):
    """One row of the table. `ratio` is a target relative to the peer; `target` is then 0."""

    ratio: float = 0
    # Whether PostgreSQL has to reach an absolute target, too.
    postgres_too: bool = True


def plan(bench):
    """All measurements, in the table's order."""
    return [
        _duplicates(bench),
        *(_tags(bench, *numbers) for numbers in ((0, 400_000, 40_000), (5, 100_000, 10_000), (20, 20_000, 3_000))),
        _graphs(bench, "chain", "chains", 50, 1, 1_000, 500, "chain of 50, one after the other"),
        _graphs(bench, "chains", "chains", 50, 100, 10_000, 5_000, "chain of 50, 100 chains at once"),
        _graphs(bench, "fan-in", "fan_ins", 100, 100, 101_000, 10_100, "fan-in of 100, 100 at once"),
        _failures(bench, "failures-permanent", 1, 100_000, 4_000, "permanent failures"),
        _failures(bench, "failures-retried", 3, 50_000, 2_000, "3 attempts into death"),
        _history(bench, 5_000, 1),
        _history(bench, 5_000_000, 5),
        _tag_ids(bench),
        _groups(bench, "groups", "batches of 1,000", 1_000, 400_000),
        _groups(bench, "groups-small", "batches of 10", 10, 100_000),
        _rate_limit(bench),
        _aging(bench),
        _schedules(bench),
    ]


def _contenders(bench, work, jobs, peer_jobs, peer_order=None, warm_up=None, **order):
    """Ours on both stores, and the peer, each with the jobs of a few seconds."""

    def warm_up_jobs(count):
        return max(1, min(count // 10, 10_000)) if warm_up is None else warm_up

    own = lambda drive, name, count, more: lambda: drive(
        bench, name, work, count, warm_up_jobs(count), **{**order, **more})
    contenders = {
        OURS: own(drive_sqlite, "gristmill", jobs, {"synchronous": "full"}),
        POSTGRES: own(drive_postgres, "gristmill", jobs, {}),
    }
    if peer_jobs:
        contenders[PEER] = own(drive_sqlite, "taskmill", peer_jobs, {"synchronous": "full", **(peer_order or {})})
    return contenders


def _whole(count, unit):
    """`count`, rounded to whole `unit`s, at least one."""
    return max(1, round(count / unit)) * unit


def _duplicates(bench):
    jobs, peer_jobs = (_whole(bench.scaled(count), 1_000) for count in (500_000, 20_000))
    return Measurement(
        id="duplicates",
        needs=("driver", PEER),
        figures=(Goal("duplicates", "submit, all duplicates, batches of 1,000", "per_second", "jobs/s", 0, ratio=50),),
        contenders=_contenders(bench, "duplicates", jobs, peer_jobs, warm_up=5_000),
    )


def _tags(bench, tags, jobs, peer_jobs):
    title = f"submit with {tags} tags a job, batches of 1,000"
    return Measurement(
        id=f"tags-{tags}",
        needs=("driver", PEER),
        figures=(Goal(f"tags-{tags}", title, "per_second", "jobs/s", 0, ratio=20),),
        contenders=_contenders(bench, "tags", bench.scaled(jobs), bench.scaled(peer_jobs), tags=tags),
    )


def _graphs(bench, name, work, length, together, jobs, peer_jobs, title):
    unit = (length + (work == "fan_ins")) * together
    peer_together = max(1, together * peer_jobs // jobs)
    peer_unit = unit // together * peer_together
    return Measurement(
        id=name,
        needs=("driver", PEER),
        figures=(Goal(name, title, "per_second", "jobs/s", 0, ratio=20),),
        contenders=_contenders(
            bench, work, _whole(bench.scaled(jobs), unit), _whole(bench.scaled(peer_jobs), peer_unit),
            {"together": peer_together}, warm_up=1_000, length=length, together=together,
        ),
    )


def _failures(bench, name, attempts, jobs, peer_jobs, title):
    return Measurement(
        id=name,
        needs=("driver", PEER),
        figures=(Goal(name, title, "per_second", "jobs/s", 0, ratio=50),),
        contenders=_contenders(bench, "failures", bench.scaled(jobs), bench.scaled(peer_jobs), attempts=attempts),
    )


def _history(bench, jobs, target_ms):
    # The larger one is filled in seconds by us alone.
    few = jobs == 5_000
    count = jobs if few else bench.scaled(jobs)
    words = f"over {count:,} finished jobs of 5 kinds, one of them"
    return Measurement(
        id=f"history-{jobs}",
        needs=("driver", PEER) if few else ("driver",),
        figures=tuple(
            Goal(f"history-{key}-{jobs}", f"{title} {words}", f"{key}_ms", "ms", target_ms, more_is_better=False)
            for key, title in (("stats", "stats"), ("rows", "history, 100 rows,"))
        ),
        contenders=_contenders(bench, "history", count, jobs if few else 0, warm_up=0),
        runs_max=1_000 if few else 1,
    )


def _tag_ids(bench):
    return Measurement(
        id="tag-ids",
        needs=("driver", PEER),
        figures=(Goal("tag-ids", "ids by tag among 5,000", "per_second", "queries/s", 0, ratio=10),),
        contenders=_contenders(bench, "tag_ids", 5_000, 5_000, warm_up=0),
    )


def _groups(bench, name, batches, batch_jobs, jobs):
    jobs, peer_jobs = (_whole(bench.scaled(count), 100) for count in (jobs, 3_000))
    title = "100 groups with limits, {} saturated, {}: share of the unlimited rate"
    return Measurement(
        id=name,
        needs=("driver", PEER),
        figures=tuple(
            Goal(f"{name}-{key}", title.format(words, batches), f"{key}_share", "", 0.5)
            for key, words in (("open", "none"), ("saturated", "all"))
        ),
        # The peer runs 100 jobs at once, ours hold 10,000: the limits saturate as many groups.
        contenders=_contenders(
            bench, "groups", jobs, peer_jobs, {"limits": [100, 1], "batch_jobs": 1_000}, warm_up=1_000, groups=100,
            limits=[10_000, 10], batch_jobs=batch_jobs,
        ),
        note=lambda figures: f"{figures['unlimited']:,.0f} jobs/s without limits, {figures['open']:,.0f} with limits of "
        f"10,000 a group, {figures['saturated']:,.0f} with limits of 10",
    )


def _rate_limit(bench):
    jobs = 500 if bench.quick else 2_000
    title = f"rate limit of 200/s, {jobs:,} jobs waiting"
    return Measurement(
        id="rate-limit",
        needs=("driver", PEER),
        figures=(
            Goal("rate-limit-exact", f"{title}: off by", "off_percent", "%", 1, more_is_better=False),
            Goal("rate-limit-cpu", f"{title}: CPU of one core", "cpu_percent", "%", 2, more_is_better=False),
        ),
        contenders=_contenders(bench, "rate_limit", jobs, jobs, warm_up=0, rate_per_second=200),
        runs_max=2,
    )


def _aging(bench):
    jobs = bench.scaled(1_000_000)
    return Measurement(
        id="aging",
        needs=("driver",),
        figures=(
            # Not slower, within the spread of runs.
            Goal("aging", f"claims of 100 with aging, {jobs:,} jobs waiting: times the time without", "times", "times", 1.05,
                 more_is_better=False),
        ),
        contenders=_contenders(bench, "aging", jobs, 0, warm_up=0),
        note=lambda figures: f"{figures['with_ms']:.3f} ms a claim with aging, {figures['without_ms']:.3f} ms without",
    )


def _schedules(bench):
    jobs = bench.scaled(1_000_000)
    title = f"{jobs:,} schedules, {jobs // 100:,} due a second, two schedulers, none fired twice"
    return Measurement(
        id="schedules",
        needs=("driver",),
        figures=(Goal("schedules", title, "per_second", "schedules/s", jobs // 100),),
        contenders=_contenders(bench, "schedules", jobs, 0, warm_up=0, seconds=5 if bench.quick else 20),
        runs_max=1,
        note=lambda figures: f"the slowest second's took {figures['slowest_ms']:,.0f} ms; "
        f"{figures['put_per_second']:,.0f} schedules were made a second",
    )
