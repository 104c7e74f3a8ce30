"""Runs one piece of work on one contender, in a new database, and gives its figures."""

import json
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness import machine
from harness.build import BENCH
from harness.contenders import Bench, Sample, items_file
from harness.tables import grid

from .server import PROGRAMS, Postgres, cpu_seconds_of_tree

PATIENCE_SECONDS = 600
# A table with a row a job, as careful queues have it: an index holds only the jobs that are ready.
ROW_A_JOB = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL DEFAULT 'default',
    kind text NOT NULL DEFAULT 'noop', state smallint NOT NULL DEFAULT 0, attempt smallint NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(),
    claimed_at timestamptz, claimed_by bigint, payload jsonb NOT NULL
);
CREATE INDEX job_ready ON job (queue, priority DESC, run_at, id) WHERE state = 0;
"""
FILL_ROWS = """
INSERT INTO job (payload) SELECT jsonb_build_object(
    'id', lpad(number::text, 8, '0'), 'to', 'user@example.com', 'pad', repeat('x', 50)
) FROM generate_series(%d, %d) AS number
"""
CLAIM_ROWS = """
UPDATE job SET state = 1, attempt = attempt + 1, claimed_at = now(), claimed_by = 1 WHERE id = ANY(ARRAY(
    SELECT id FROM job WHERE state = 0 AND queue = 'default' AND run_at <= now()
    ORDER BY priority DESC, run_at, id LIMIT 100 FOR UPDATE SKIP LOCKED
)) RETURNING id, payload
"""


@dataclass
class PostgresBench(Bench):
    """The server, and the needs of all measurements."""

    postgres: Postgres = None
    notes: dict = field(default_factory=dict)

    def measured(self, command):
        """Runs a program of the database's only contender. The server's processor time counts as the contender's."""
        began = self.postgres.cpu_seconds()
        ended = self.run(command)
        used = self.postgres.cpu_seconds() - began
        return ended, max(0.0, ended.others_cores - used / ended.seconds)


def drive(bench, contender, work, jobs, warm_up_jobs, url=None, **order):
    """Runs `work` with a contender's driver (each takes an order as JSON and answers with one line of JSON), in a new
    database or in that at `url`."""
    url = url or bench.postgres.new_database()
    order = {
        "contender": contender, "work": work, "store": url, "url": url, "jobs": jobs, "warm_up_jobs": warm_up_jobs,
        "batch_jobs": 1_000, **order,
    }
    program = [bench.builds.driver] if contender == "gristmill" else bench.builds.peer(contender)
    ended, others_cores = bench.measured([*program, json.dumps(order)])
    figures = json.loads(ended.stdout.splitlines()[-1])
    if "seconds" in figures:
        figures["per_second"] = figures["jobs"] / figures["seconds"]
    return Sample(figures, others_cores)


def claims_with(bench, jobs):
    """Claims of 100 with so many jobs waiting, by a process that has not submitted them, once the vacuum and the checkpoint
    that loading causes are over."""
    url = bench.postgres.new_database()
    drive(bench, "gristmill", "fill", jobs, 0, url)
    bench.postgres.settle()
    return drive(bench, "gristmill", "claims", 0, 0, url)


def deep(bench, jobs, shallow_jobs):
    """Measures claims with many waiting jobs and their size on disk, and the same with a row a job."""
    shallow_ms = claims_with(bench, shallow_jobs).figures["claim_ms"]
    sample = claims_with(bench, jobs)
    ours = sizes(bench, "gristmill")
    rows_shallow_ms, rows_deep_ms = claim_rows(bench, jobs, shallow_jobs)
    rows = sizes(bench, "public")
    figures = sample.figures
    figures["shallow_ms"], figures["deep_ms"] = shallow_ms, figures["claim_ms"]
    figures["slowdown"] = figures["deep_ms"] / figures["shallow_ms"]
    figures["rows_slowdown"] = rows_deep_ms / rows_shallow_ms
    bench.notes["deep"] = [
        f"{jobs:,} jobs waiting, claims of 100 (medians): {figures['deep_ms']:.2f} ms after {figures['shallow_ms']:.2f} ms with "
        f"{shallow_jobs:,} waiting; a row a job: {rows_deep_ms:.2f} ms after {rows_shallow_ms:.2f} ms.",
        "",
        *grid(
            ("layout", "table", "rows", "table MB", "indexes MB", "dead tuples"),
            [(layout, f"`{name}`", *cells) for layout, tables in (("packed", ours), ("a row a job", rows)) for name, *cells in tables],
            "llrrrr",
        ),
    ]
    return sample


def old_snapshot(bench, jobs):
    """Drains jobs while somebody holds a snapshot from before, so that vacuum removes nothing, and then measures the latency of an
    idle worker."""
    url = bench.postgres.new_database()
    drain = lambda: drive(bench, "gristmill", "drain", jobs, 0, url, batch_jobs=100).figures["per_second"]
    without = drain()
    with held_snapshot(bench, url):
        share = drain() / without
        dead = sum(int(cells[-1].replace(",", "")) for cells in sizes(bench, "gristmill")) / jobs * 1e6
        sample = drive(bench, "gristmill", "latency", 500, 20, url, rate_per_second=50)
    sample.figures.update(share=share, dead=dead)
    return sample


@contextmanager
def held_snapshot(bench, url):
    """A client that keeps a snapshot of the database."""
    command = [str(PROGRAMS / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", url]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        client.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gristmill.slice;\n")
        client.stdin.flush()
        if not client.stdout.readline().strip():
            raise RuntimeError("psql took no snapshot")
        yield
    finally:
        client.stdin.close()
        client.wait(10)


def claim_rows(bench, jobs, shallow_jobs):
    """The medians of claims of 100 from a table of rows: with few waiting, and with many. Milliseconds."""
    bench.postgres.new_database()
    bench.postgres.in_database(ROW_A_JOB)
    medians, filled = [], 0
    for count in (shallow_jobs, jobs):
        bench.postgres.in_database(FILL_ROWS % (filled + 1, count))
        filled = count
        bench.postgres.settle()
        samples = []
        for _ in range(80):
            plan = bench.postgres.in_database(f"EXPLAIN (ANALYZE, TIMING off, FORMAT json) {CLAIM_ROWS}")
            samples.append(json.loads("".join(line[0] for line in plan))[0]["Execution Time"])
        medians.append(sorted(samples)[len(samples) // 2])
    return medians


def sizes(bench, schema):
    """Name, rows, MB of the table with its large values, MB of its indexes, dead tuples: of all tables over 100 KB."""
    found = bench.postgres.in_database(f"""
        SELECT pg_stat_force_next_flush();
        SELECT c.relname, s.n_live_tup, (pg_total_relation_size(c.oid) - pg_indexes_size(c.oid)) / 1e6,
               pg_indexes_size(c.oid) / 1e6, s.n_dead_tup
        FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = '{schema}' AND pg_total_relation_size(c.oid) > 100000 ORDER BY pg_total_relation_size(c.oid) DESC
    """)
    return [
        (row[0], f"{int(row[1]):,}", f"{float(row[2]):,.1f}", f"{float(row[3]):,.1f}", f"{int(row[4]):,}")
        for row in found if len(row) == 5
    ]


def agent_drain(bench, script, jobs, batch, delay_seconds):
    """Measures one warm, idle agent over HTTP, from the moment at which all jobs become claimable to the last commit."""
    url = bench.postgres.new_database()
    environment = {**bench.builds.environment(), "GRISTMILL_STORE": url}
    submit = [str(bench.builds.gristmill), "submit", "identity", "--input"]
    server_command = [bench.builds.gristmill, "serve", "--mode", "server", "--listen", "127.0.0.1:0"]
    with background(server_command, environment, "listening on ") as server:
        agent_command = [
            bench.builds.gristmill, "agent", BENCH / "scripts" / script, "--kind", "identity", "--quiet",
            "--base-url", server.said.split("listening on ", 1)[1].split()[0], *(["--batch", "10000"] if batch else []),
        ]
        with background(agent_command, environment) as agent:
            warm_up = items_file(bench.folder, min(jobs, 200))
            subprocess.run([*submit, str(warm_up)], env=environment, check=True, capture_output=True)
            until_reported(bench, min(jobs, 200))
            machine.wait_until_quiet(bench.quiet_seconds_max)
            delayed = [*submit, str(items_file(bench.folder, jobs)), "--delay", f"{delay_seconds}s"]
            subprocess.run(delayed, env=environment, check=True, capture_output=True)
            (due,), = bench.postgres.in_database("SELECT max(run_at) FROM gristmill.batch")
            time.sleep(max(0, int(due) / 1e3 - time.time()))
            own = (bench.postgres.process.pid, server.process_id, agent.process_id)
            busy, used, began = machine.cpu_seconds_busy(), sum(map(cpu_seconds_of_tree, own)), time.monotonic()
            until_reported(bench, jobs + min(jobs, 200))
            others = machine.cpu_seconds_busy() - busy - (sum(map(cpu_seconds_of_tree, own)) - used)
            others_cores = max(0.0, others / (time.monotonic() - began))
    (last,), = bench.postgres.in_database("SELECT max(finished_at) FROM gristmill.report")
    return Sample({"per_second": jobs / max(1e-3, (int(last) - int(due)) / 1e3)}, others_cores)


def until_reported(bench, jobs):
    """Waits until this number of jobs have outcomes."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := bench.postgres.in_database("SELECT coalesce(sum(count), 0) FROM gristmill.report")) != [[str(jobs)]]:
        if time.monotonic() > until:
            raise RuntimeError(f"{found[0][0]} of {jobs} jobs have an outcome")
        time.sleep(0.5)


@dataclass
class Background:
    """A program that runs until it is asked to end, and its first output."""

    process_id: int
    said: str


@contextmanager
def background(command, environment, says=None):
    """Runs a program while the block runs. The block begins when the program has printed `says`."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )
        try:
            said, until = "", time.monotonic() + PATIENCE_SECONDS
            while says and says not in said:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"`{' '.join(map(str, command))}` did not start: {said}")
                time.sleep(0.01)
                log.seek(0)
                said = log.read()
            yield Background(process.pid, said)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
