"""Runs the jobs of a row once on Gristmill: on a file, on PostgreSQL, or by an agent of a server."""

import json
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from harness.build import BENCH
from harness.contenders import Sample
from postgres.contenders import background
from postgres.server import cpu_seconds_of_tree

from .peers import checked, figures, script_of, timing, work_file
from .reader import READY, positions

BATCH_JOBS = 1_000
# A reader that misses an outcome gives up by itself before.
READER_SECONDS_MAX = 60


def run(bench, where, work, slots, jobs, script=None, more=("-j",), program=None, reads=False):
    """One run on `where`: `sqlite`, `postgres` or `agent`. `more` are the arguments that give the program its slots;
    `reads` has a reader look at the outcomes meanwhile."""
    script = BENCH / "scripts" / f"{script or script_of(work)}.py"
    more = ["-j", slots] if more == ("-j",) else list(more)
    program = program or bench.builds.gristmill
    runs = {"sqlite": _on_file, "postgres": _on_postgres, "agent": _by_agent}
    return runs[where](bench, program, work, slots, jobs, script, more, reads)


def _on_file(bench, program, work, slots, jobs, script, more, reads):
    # A program that hangs from an earlier benchmark may hold locks beside a store, so that each run has a folder of its own.
    with tempfile.TemporaryDirectory(dir=bench.folder, prefix="store-") as folder:
        store = Path(folder) / "real.db"
        sample = _main_job(bench, program, work, slots, jobs, script, more, store, reads)
        found = _statistics(bench, program, store)
    # Claims and commits share transactions where they come together, so this is no less than there were.
    writes = sum(found["hops"].get(hop, {}).get("batches", 0) for hop in ("submit", "claim", "commit"))
    sample.figures |= {**_commits(found, jobs), "transactions_per_job": writes / jobs}
    return sample


def _on_postgres(bench, program, work, slots, jobs, script, more, reads):
    url = bench.postgres.new_database()
    # Makes the schema.
    _statistics(bench, program, url)
    commits, used = bench.postgres.commits(), bench.postgres.cpu_seconds()
    sample = _main_job(bench, program, work, slots, jobs, script, more, url, reads)
    used = bench.postgres.cpu_seconds() - used
    commits = bench.postgres.commits() - commits
    found = _statistics(bench, program, url)
    sample.figures |= {**_commits(found, jobs), "transactions_per_job": commits / jobs}
    sample.figures["cpu_us"] += used / jobs * 1e6
    sample.others_cores = max(0.0, sample.others_cores - used / sample.figures["seconds"])
    return sample


def _main_job(bench, program, work, slots, jobs, script, more, store, reads):
    """`gristmill run`, from the file of items to the file of results, its start included."""
    source, output = work_file(bench, work, jobs), bench.folder / "real.jsonl"
    output.unlink(missing_ok=True)
    command = [program, "run", script, "--input", source, "--output", output, "--store", store, "--values", "--quiet",
               *more, "--batch", BATCH_JOBS]
    with _reader(bench, store, jobs, reads) as reader:
        ended = bench.run(command)
    found = figures(work, slots, jobs, ended.seconds, ended.cpu_seconds)
    found |= reader | checked(output, work, slots, jobs, ended.began_at_ns)
    return Sample(found, ended.others_cores)


def _by_agent(bench, program, work, slots, jobs, script, more, reads):
    """`gristmill agent --batch --drain` beside `gristmill serve` on PostgreSQL; the jobs are submitted before. From the
    agent's start to its end."""
    url = bench.postgres.new_database()
    environment = {**bench.builds.environment(), "GRISTMILL_STORE": url}
    serve = [program, "serve", "--mode", "server", "--listen", "127.0.0.1:0"]
    with background(serve, environment, "listening on ") as server:
        submit = [program, "submit", "nap", "--input", work_file(bench, work, jobs), "--batch", BATCH_JOBS]
        subprocess.run([str(word) for word in submit], env=environment, check=True, capture_output=True)
        address = server.said.split("listening on ", 1)[1].split()[0]
        agent = [program, "agent", script, "--kind", "nap", "--base-url", address, "--batch", BATCH_JOBS, *more,
                 "--drain", "--quiet"]
        commits = bench.postgres.commits_so_far()
        used, served = bench.postgres.cpu_seconds(), cpu_seconds_of_tree(server.process_id)
        with _reader(bench, url, jobs, reads) as reader:
            ended = bench.run(agent)
        others_used = bench.postgres.cpu_seconds() - used + cpu_seconds_of_tree(server.process_id) - served
    commits = bench.postgres.commits() - commits
    ((completed,),) = bench.postgres.in_database("SELECT sum(count) FROM gristmill.report WHERE state = 'completed'")
    if int(completed or 0) != jobs:
        raise RuntimeError(f"the agent ended with {completed} of {jobs} jobs completed")
    found = figures(work, slots, jobs, ended.seconds, ended.cpu_seconds + others_used)
    found |= {**reader, **_commits(_statistics(bench, program, url), jobs), "transactions_per_job": commits / jobs}
    if not work.is_no_op:
        found |= timing(work, slots, ends_ns(bench, jobs), ended.began_at_ns)
    return Sample(found, max(0.0, ended.others_cores - others_used / ended.seconds))


def _statistics(bench, program, store):
    command = [str(program), "stats", "--json", "--store", str(store)]
    ended = subprocess.run(command, env=bench.builds.environment(), capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"`{' '.join(command)}`: {ended.stderr}")
    return json.loads(ended.stdout)


def _commits(found, jobs):
    """Outcomes a commit, by the program's own count, and the reports that hold them."""
    commits = found["hops"].get("commit", {}).get("batches", 0)
    return {"outcomes_per_commit": jobs / commits if commits else None, "reports": found["reports"]}


def ends_ns(bench, jobs):
    """The values of all jobs in the newest database, in the order of the jobs: the moments they ended at."""
    rows = bench.postgres.in_database(
        """SELECT batch_id, positions, translate("values", E'\\n[] ', '') FROM gristmill.report ORDER BY batch_id"""
    )
    found = []
    for batch, text, values in rows:
        found += [(int(batch), at, int(value)) for at, value in zip(positions(text), values.split(","), strict=True)]
    return [value for _, _, value in sorted(found)]


@contextmanager
def _reader(bench, store, jobs, reads):
    """Runs the reader beside the block; what it found is in the dictionary once the block has ended."""
    found = {}
    if not reads:
        yield found
        return
    command = [bench.builds.reader_python, BENCH / "real/reader.py", store, jobs]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline().strip() != READY:
            raise RuntimeError("the reader did not start")
        yield found
        answer = json.loads(process.communicate(timeout=READER_SECONDS_MAX)[0])
        if answer["samples"] != jobs:
            raise RuntimeError(f"the reader saw {answer['samples']} of {jobs} outcomes")
        found |= {key: answer[key] for key in ("p50_ms", "p99_ms", "max_ms")}
    finally:
        process.kill()
        process.wait()
