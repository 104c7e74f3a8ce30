"""An agent on Ray beside `gristmill agent --batch`, both for the same server."""

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time

import queues
import ray

import gristmill
import gristmill.ray
from gristmill._process import program_path

TABLE = ("Agents of a server", "jobs a second", 0)
DRAIN_S = 300


@contextlib.contextmanager
def serving():
    """The URL of a server on a store in a file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program_path(), "serve", "--listen", "127.0.0.1:0", "--store", f"{folder}/jobs.db", "--mode", "server"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            url = next(found[1] for found in (re.search(r"listening on (http://\S+)", line) for line in process.stderr) if found)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield url
        finally:
            process.terminate()
            process.wait()


def drained(jobs, processes, run):
    """Jobs a second of `run(app)`, which starts agents and returns when all jobs have completed."""
    import work

    with serving() as url, tempfile.TemporaryDirectory() as folder, gristmill.App(url) as app:
        moments = os.path.join(folder, "moments")
        os.environ.update(BENCH_MOMENTS=moments, BENCH_NAP_S="0")
        app.job(work.job).submit_many(range(jobs))
        run(app, processes, jobs)
        found = work.moments(moments)
        assert len(found) >= jobs, len(found)
        return queues.per_second(found)


def by_agent(app, processes, jobs):
    app.work(processes, until="empty")


def by_ray(app, processes, jobs):
    environment = {name: os.environ[name] for name in ("BENCH_MOMENTS", "BENCH_NAP_S")}
    served = gristmill.ray.serve_agents(app, min=1, max=1, concurrency=processes, runtime_env={"env_vars": environment})
    with served:
        until = time.monotonic() + DRAIN_S
        while app.counts()["completed"] < jobs:
            assert time.monotonic() < until, app.counts()
            time.sleep(0.05)


def measure(report, sizes):
    processes = os.cpu_count() or 1
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=processes, include_dashboard=False)
    own = [drained(sizes.drained, processes, by_agent) for _ in range(sizes.runs)]
    report.add(TABLE, "`gristmill agent --batch`", own)
    on_ray = [drained(sizes.drained, processes, by_ray) for _ in range(sizes.runs)]
    report.add(TABLE, "the same as a Ray actor", on_ray, round(0.7 * report.median(TABLE, "`gristmill agent --batch`")))
    ray.shutdown()
