"""Runs the jobs of a row once on a peer."""

import json
import math

from harness.build import BENCH
from harness.contenders import Sample, items_file

from .work import greedy_bound, naps_file, once_busy

# A process an item costs milliseconds each, so that these jobs are fewer.
JOBS_MAX_OF_PROCESSES = 200
# GNU parallel's lines a process, and the fewest shares of the jobs that a slot gets of them.
LINES_PER_PROCESS_MAX, SHARES_PER_SLOT = 1_000, 2
# Chunk sizes of a pool that are tried, by the longest job in seconds that they are for.
CHUNKS = ((0.000_05, (256, 2_048)), (0.000_5, (16, 128)), (0.005, (1, 8, 32)), (math.inf, (1, 4)))
SHARE_OF_TRIALS = 0.25


def work_file(bench, work, jobs):
    """The jobs' payloads, a line each."""
    return items_file(bench.folder, jobs) if work.is_no_op else naps_file(bench.folder, work, jobs)


def script_of(work):
    return "identity" if work.is_no_op else "nap"


def figures(work, slots, jobs, seconds, cpu_seconds):
    """What every contender's run gives."""
    bound = greedy_bound(work.durations(jobs), slots)
    return {
        "jobs": jobs, "seconds": seconds, "bound": bound, "times": seconds / bound if bound else None,
        "per_second": jobs / seconds, "cpu_us": cpu_seconds / jobs * 1e6,
    }


def timing(work, slots, ends_ns, began_at_ns):
    """When the first job began, and how the run went once its slots were busy. The ends are in the order of the jobs."""
    ends, durations = [(value - began_at_ns) / 1e9 for value in ends_ns], work.durations(len(ends_ns))
    first = min(end - duration for end, duration in zip(ends, durations))
    return {"start_seconds": first, "busy_times": once_busy(durations, ends, slots)}


def checked(output, work, slots, jobs, began_at_ns=None):
    """Fails where a program gave other than one line a job; deletes its output. Where the lines are moments in the order
    of the jobs and `began_at_ns` is given, gives the figures of `timing`."""
    with open(output, encoding="utf-8") as lines:
        values = lines.read().splitlines()
    output.unlink()
    if len(values) != jobs:
        raise RuntimeError(f"there are {len(values)} results for {jobs} jobs")
    return {} if work.is_no_op or began_at_ns is None else timing(work, slots, list(map(int, values)), began_at_ns)


def command_run(bench, work, slots, jobs, command, output, in_order=False):
    """A program that runs all jobs and ends."""
    ended = bench.run(command)
    found = figures(work, slots, jobs, ended.seconds, ended.cpu_seconds)
    return Sample(found | checked(output, work, slots, jobs, ended.began_at_ns if in_order else None), ended.others_cores)


class Pool:
    """One of Python's own pools, with the chunk size that was the best in a first try of each."""

    def __init__(self, bench, name, work, slots, jobs):
        self.bench, self.name, self.work, self.slots, self.jobs = bench, name, work, slots, jobs
        self.chunk = None

    def run(self):
        if self.chunk is None:
            self.chunk = self.best_chunk()
        sample = self.once(self.chunk, self.jobs)
        sample.figures["chunk"] = self.chunk
        return sample

    def best_chunk(self):
        longest = math.inf if self.work.seconds is None else self.work.seconds
        candidates = next(sizes for seconds, sizes in CHUNKS if longest <= seconds)
        share = max(self.slots * 4, int(self.jobs * SHARE_OF_TRIALS))
        return min(candidates, key=lambda chunk: self.once(chunk, min(self.jobs, share)).figures["seconds"])

    def once(self, chunk, jobs):
        source, output = work_file(self.bench, self.work, jobs), self.bench.folder / "pool.jsonl"
        command = [self.bench.builds.python, BENCH / "scripts/pool.py", self.name, self.slots, chunk,
                   script_of(self.work), source, output]
        return command_run(self.bench, self.work, self.slots, jobs, command, output, in_order=True)


def parallel_lines(bench, work, slots, jobs):
    """GNU parallel, with as many lines a process as leave each slot some shares, 1,000 at most."""
    lines = max(1, min(LINES_PER_PROCESS_MAX, jobs // (slots * SHARES_PER_SLOT)))
    source, output = work_file(bench, work, jobs), bench.folder / "parallel.jsonl"
    program = f"'{bench.builds.parallel}' --will-cite --pipe -N{lines} -j{slots}"
    script = f"{program} '{bench.builds.python}' '{BENCH}/scripts/lines.py' {script_of(work)} < '{source}' > '{output}'"
    sample = command_run(bench, work, slots, jobs, ["/bin/sh", "-c", script], output)
    sample.figures["chunk"] = lines
    return sample


def parallel_processes(bench, work, slots, jobs):
    """GNU parallel, a process an item: `sleep`, which starts sooner than a Python script."""
    jobs = min(jobs, JOBS_MAX_OF_PROCESSES)
    source, output = naps_file(bench.folder, work, jobs), bench.folder / "parallel.jsonl"
    command = f"'{bench.builds.parallel}' --will-cite -j{slots} 'sleep {{}} && echo 1' < '{source}' > '{output}'"
    return command_run(bench, work, slots, jobs, ["/bin/sh", "-c", command], output)


def queue(bench, program, work, slots, jobs):
    """A queue on PostgreSQL whose workers are in one process; its jobs are inserted before. The time is its driver's own,
    from the start of its workers to the last outcome."""
    order = {
        "work": "drain", "url": bench.postgres.new_database(), "jobs": jobs, "warm_up_jobs": slots, "batch_jobs": 1_000,
        "sleep_ms": work.seconds * 1e3, "workers_max": slots,
    }
    before = bench.postgres.cpu_seconds()
    ended = bench.run([*program, json.dumps(order)])
    used = bench.postgres.cpu_seconds() - before
    commits = bench.postgres.commits()
    answer = json.loads(ended.stdout.splitlines()[-1])
    found = figures(work, slots, jobs, answer["seconds"], ended.cpu_seconds + used)
    found["transactions_per_job"] = commits / jobs
    return Sample(found, max(0.0, ended.others_cores - used / ended.seconds))
