"""Rows with a target: how outcomes gather, how soon they are visible, and how workers share."""

import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from harness import machine
from harness.build import BENCH
from harness.contenders import Sample
from harness.plan import OURS, Figure, Measurement
from postgres.contenders import background
from postgres.server import cpu_seconds_of_tree

from . import ours
from .work import Work, naps_file

STEADY = Work("2ms", "2 ms", 0.002)
STEADY_SLOTS, STEADY_PROCESSES = 16, 2
# One slot, whose jobs are far enough apart that each outcome is the first one after a quiet time.
IDLE = Work("30ms", "30 ms", 0.03)
IDLE_JOBS = 100
FLEET = Work("20ms", "20 ms", 0.02)
FLEET_AGENTS, FLEET_JOBS = 32, 8_000
SHARED = Work("1s", "1 s", 1.0)
SHARED_WORKERS, SHARED_PROCESSES, SHARED_JOBS = 2, 4, 40
AWAITED = Work("6ms", "6 ms", 0.006)
AWAITED_JOBS, AWAITED_WARM_UP_JOBS = 200, 20


def plan(bench, stores):
    """The rows; `stores` maps the names of the report to the ways of `ours.run`."""
    found = []
    for name, where in stores.items():
        found += [
            _row(f"target-commits-{where}", lambda where=where: steady(bench, where), (
                Figure("outcomes", f"jobs of 2 ms on 16 slots, {name}: outcomes a commit", "outcomes_per_commit", "", 50),
                Figure("visible-p99", "the same: end to visible outcome, p99", "p99_ms", "ms", 15, more_is_better=False),
            )),
            _row(f"target-idle-{where}", lambda where=where: idle(bench, where), (
                Figure("idle-p50", f"one job after the other, {name}: end to visible outcome, p50", "p50_ms", "ms", 15,
                       more_is_better=False),
                Figure("idle-p99", "the same, p99", "p99_ms", "ms", 15, more_is_better=False),
            )),
        ]
    for name, where in (("SQLite", "sqlite"), ("PostgreSQL", "postgres")):
        found.append(_row(f"target-share-{where}", lambda where=where: shared(bench, where), (
            Figure("share", f"40 jobs of 1 s, two workers of 4 processes, {name}: first begin to last end", "busy_seconds",
                   "s", 5.5, more_is_better=False),
            Figure("share-wall", "the same, with the workers' start and end", "seconds", "s", 0, more_is_better=False),
        )))
    found += [
        _row("target-fleet", lambda: fleet(bench), (
            Figure("fleet", "32 agents with jobs of 20 ms: transactions a second", "transactions_per_second", "", 150,
                   more_is_better=False),
            Figure("fleet-rate", "the same: jobs a second", "per_second", "jobs/s", 0),
        )),
        _row("target-await", lambda: awaited(bench), (
            Figure("await-p50", "`GET /results?wait_ms` for a job of 6 ms, `worker` on PostgreSQL: submit to result, p50",
                   "p50_ms", "ms", 10, more_is_better=False),
            Figure("await-p99", "the same, p99", "p99_ms", "ms", 0, more_is_better=False),
            Figure("await-begin", "the same, submit to the job's begin, p50", "begin_ms", "ms", 0, more_is_better=False),
            Figure("await-answer", "the same, the job's end to its result, p50", "answer_ms", "ms", 0, more_is_better=False),
        )),
    ]
    return found


def _row(name, run, figures):
    return Measurement(id=name, needs=("gristmill", "reader"), figures=figures, contenders={OURS: run})


def _share(bench):
    return bench.seconds / 2


def steady(bench, where):
    """Many short jobs: outcomes a commit from one run, the latency from another, beside which a reader runs."""
    jobs = max(200, int(STEADY_SLOTS / STEADY.seconds * 2 * _share(bench)))
    more = ("-j", STEADY_PROCESSES, "--threads", STEADY_SLOTS // STEADY_PROCESSES)
    sample = ours.run(bench, where, STEADY, STEADY_SLOTS, jobs, more=more)
    read = ours.run(bench, where, STEADY, STEADY_SLOTS, jobs, more=more, reads=True)
    sample.figures |= {key: read.figures[key] for key in ("p50_ms", "p99_ms", "max_ms")}
    return sample


def idle(bench, where):
    return ours.run(bench, where, IDLE, 1, IDLE_JOBS, reads=True)


def _submit(bench, program, url, work, jobs):
    submit = [program, "submit", "nap", "--input", naps_file(bench.folder, work, jobs), "--batch", ours.BATCH_JOBS]
    subprocess.run([str(word) for word in submit], env={**bench.builds.environment(), "GRISTMILL_STORE": str(url)}, check=True,
                   capture_output=True)


class _Others:
    """The processor time of other programs than this one, its children, the database and a server."""

    def __init__(self, bench, *servers):
        self.postgres, self.servers = bench.postgres, servers
        self.began, self.busy, self.own = time.monotonic(), machine.cpu_seconds_busy(), self._own()

    def _own(self):
        return sum(os.times()[:4]) + self.postgres.cpu_seconds() + sum(map(cpu_seconds_of_tree, self.servers))

    def cores(self):
        """How many cores they used since the beginning."""
        others = machine.cpu_seconds_busy() - self.busy - (self._own() - self.own)
        return max(0.0, others / (time.monotonic() - self.began))


def _together(bench, commands):
    """Starts programs at once and waits for all; the seconds from the start to the last end."""
    began = time.monotonic()
    programs = [subprocess.Popen([str(word) for word in command], env=bench.builds.environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        for program in programs:
            said = program.communicate(timeout=120)[1]
            if program.returncode:
                raise RuntimeError(f"a worker ended with {program.returncode}: {said}")
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("a worker did not end") from error
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return time.monotonic() - began


def shared(bench, where):
    """Two workers that start together, with all jobs submitted before."""
    program = bench.builds.gristmill
    with tempfile.TemporaryDirectory(dir=bench.folder, prefix="store-") as folder:
        store = Path(folder) / "real.db" if where == "sqlite" else bench.postgres.new_database()
        _submit(bench, program, store, SHARED, SHARED_JOBS)
        worker = [program, "worker", BENCH / "scripts/nap.py", "--kind", "nap", "-j", SHARED_PROCESSES, "--store", store, "--drain",
                  "--quiet"]
        others = _Others(bench)
        seconds = _together(bench, [worker] * SHARED_WORKERS)
        others_cores = others.cores()
        results = subprocess.run([str(program), "results", "--batch", "1", "--store", str(store)], env=bench.builds.environment(),
                                 capture_output=True, text=True, check=True).stdout
    ends = [json.loads(line)["value"] / 1e9 for line in results.splitlines()]
    if len(ends) != SHARED_JOBS:
        raise RuntimeError(f"{len(ends)} of {SHARED_JOBS} jobs completed")
    return Sample({"seconds": seconds, "busy_seconds": max(ends) - min(ends) + SHARED.seconds}, others_cores)


def fleet(bench):
    """Agents of one server, a process each. Transactions count from the first job's begin to the last one's end, with those of
    the agents' start and end, over that time."""
    program, url = bench.builds.gristmill, bench.postgres.new_database()
    jobs = max(FLEET_AGENTS, int(FLEET_JOBS * _share(bench)))
    environment = {**bench.builds.environment(), "GRISTMILL_STORE": url}
    with background([program, "serve", "--mode", "server", "--listen", "127.0.0.1:0"], environment, "listening on ") as server:
        address = server.said.split("listening on ", 1)[1].split()[0]
        _submit(bench, program, url, FLEET, jobs)
        agent = [program, "agent", BENCH / "scripts/nap.py", "--kind", "nap", "--base-url", address, "--batch", ours.BATCH_JOBS,
                 "-j", 1, "--drain", "--quiet"]
        before, used, others = (
            bench.postgres.commits_so_far(), cpu_seconds_of_tree(server.process_id), _Others(bench, server.process_id))
        _together(bench, [agent] * FLEET_AGENTS)
        used, others_cores = cpu_seconds_of_tree(server.process_id) - used, others.cores()
    commits = bench.postgres.commits() - before
    ends = [value / 1e9 for value in ours.ends_ns(bench, jobs)]
    seconds = max(ends) - min(ends) + FLEET.seconds
    found = {"transactions_per_second": commits / seconds, "per_second": jobs / seconds, "server_cores": used / seconds}
    return Sample(found, others_cores)


def awaited(bench):
    """Jobs one after the other, each submitted and awaited over HTTP, with a worker beside the server."""
    program, url = bench.builds.gristmill, bench.postgres.new_database()
    environment = {**bench.builds.environment(), "GRISTMILL_STORE": url}
    worker = [program, "worker", BENCH / "scripts/nap.py", "--kind", "nap", "-j", 1, "--quiet"]
    with ExitStack() as stack:
        server = stack.enter_context(
            background([program, "serve", "--mode", "server", "--listen", "127.0.0.1:0"], environment, "listening on "))
        own = stack.enter_context(background(worker, environment))
        host, port = server.said.split("listening on ", 1)[1].split()[0].removeprefix("http://").rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        for _ in range(AWAITED_WARM_UP_JOBS):
            _await_one(connection)
        others = _Others(bench, server.process_id, own.process_id)
        taken = [_await_one(connection) for _ in range(AWAITED_JOBS)]
        others_cores = others.cores()
        connection.close()
    whole, begin, answer = (sorted(column) for column in zip(*taken))
    found = {"p50_ms": statistics.median(whole), "p99_ms": whole[round((len(whole) - 1) * 0.99)],
             "begin_ms": statistics.median(begin), "answer_ms": statistics.median(answer)}
    return Sample(found, others_cores)


def _await_one(connection):
    """Milliseconds from the submit of a job to its result, to its begin, and from its end to its result."""
    began = time.time_ns()
    body = json.dumps({"kind": "nap", "payload": AWAITED.seconds})
    connection.request("POST", "/api/v1/jobs", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    submitted = json.loads(answer.read())
    if answer.status != 201:
        raise RuntimeError(f"the server refused a job: {submitted}")
    batch = submitted["batches"][0]["batch"]
    connection.request("GET", f"/api/v1/results?batches={batch}&wait_ms=30000")
    lines = connection.getresponse().read().splitlines()
    answered = time.time_ns()
    outcomes = [json.loads(line) for line in lines]
    if [outcome["state"] for outcome in outcomes] != ["completed"]:
        raise RuntimeError(f"batch {batch} has the results {lines}")
    ended = outcomes[0]["value"]
    return (answered - began) / 1e6, (ended - began) / 1e6 - AWAITED.seconds * 1e3, (answered - ended) / 1e6
