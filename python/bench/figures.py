"""The package's figures, each beside a peer's in the same run. Run by `make bench-python`, which writes bench/RESULTS-python.md."""

import argparse
import asyncio
import contextlib
import importlib.util
import multiprocessing
import multiprocessing.pool
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import embedding
import queues

import gristmill

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(queues.FOLDER), str(ROOT / "bench"), str(ROOT / "bench" / "postgres")]

NAP_S, NAP_PROCESSES = 0.005, 8
# The best chunk sizes of a pool are among these.
CHUNKS, NAP_CHUNKS = (100, 1_000, 10_000), (1, 4, 16)
new_file = queues.file


def identity(number):
    return number


def nap(number):
    time.sleep(NAP_S)
    return number


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextlib.contextmanager
def postgres_stores():
    """A function that gives the places of new stores in PostgreSQL, one after the other."""
    import server

    with tempfile.TemporaryDirectory() as folder:
        # The server runs as a user of its own.
        pathlib.Path(folder).chmod(0o755)
        with server.Postgres(pathlib.Path(folder) / "server") as postgres:
            yield lambda: contextlib.nullcontext(postgres.new_database())


def rates(items, runs, work, new_store=new_file):
    """Items per second of each run of `work(app)`, each on a store of its own, which is opened before."""
    measured = []
    for _ in range(runs):
        with new_store() as place, opened(place) as app:
            measured.append(items / seconds_of(lambda: work(app)))
    return measured


def opened(place):
    app = gristmill.App(place)
    app.counts()
    return app


def submit_many(items):
    """Submits that many items."""

    def work(app):
        submitted = app.job(identity).submit_many(items)
        assert len(submitted) == len(items), submitted

    return work


def records(count):
    """Items as people have them: dictionaries of about 100 bytes of JSON."""
    return [
        {"id": number, "path": f"/pictures/{number:07}.jpg", "width": 640, "tags": ["raw", "new"], "scale": number / 3}
        for number in range(count)
    ]


def submit_each(items):
    def work(app):
        job = app.job(identity)
        for number in range(items):
            job.submit(number)

    return work


def map_identity(items, processes):
    def work(app):
        count = sum(1 for _ in app.map(identity, range(items), processes=processes))
        assert count == items, count

    return work


def pool_rates(function, items, runs, processes, chunks, new_pool=multiprocessing.Pool):
    """Items per second of each run of a pool, which keeps nothing; with the chunk size that was the best."""

    def run(chunk):
        with new_pool(processes) as pool:
            count = sum(1 for _ in pool.imap(function, range(items), chunk))
            assert count == items, count

    measured = {chunk: [items / seconds_of(lambda: run(chunk)) for _ in range(runs)] for chunk in chunks}
    return max(measured.items(), key=lambda item: statistics.median(item[1]))


def import_ms(rounds):
    """Milliseconds by which `gristmill.App` lengthens the start of an interpreter, of each round."""
    bare, with_package = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import gristmill; gristmill.App"]
    times = [[seconds_of(lambda: subprocess.run(command, check=True)) for _ in range(rounds)] for command in (bare, with_package)]
    start_s = statistics.median(times[0])
    return [1000 * (time_s - start_s) for time_s in times[1]]


def fixture_ms(rounds):
    """Milliseconds that the fixture `gristmill_app` takes, with its end, of each round."""
    from gristmill.testing import temporary_store

    def work():
        with temporary_store(gristmill.App()) as app:
            app.counts()

    return [1000 * seconds_of(work) for _ in range(rounds)]


def awaited_ms(rounds):
    """Milliseconds from a submit to its awaited result, with a worker that waits in the same process."""

    async def await_all(job):
        measured = []
        for _ in range(rounds):
            began = time.perf_counter()
            await job.submit(1)
            measured.append(1000 * (time.perf_counter() - began))
        return measured

    with new_file() as place, opened(place) as app:
        job = app.job(identity)
        with app.worker(1):
            job.submit(0).result(timeout=60)
            return asyncio.run(await_all(job))


def synced_ms(rounds):
    """Milliseconds of a write of a page with its fsync, of each round: what the disk of this machine takes."""
    with tempfile.NamedTemporaryFile() as file:
        measured = []
        for _ in range(rounds):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            measured.append(1000 * (time.perf_counter() - began))
        return measured


class Report:
    """The rows of the tables, as they are measured."""

    def __init__(self, only):
        self.only = only
        self.rows = {}
        self.left_out = []
        # What bounds the rows of a table: a section of bench/bounds.md.
        self.bounds = {}

    def wants(self, *names):
        return any(re.search(self.only, name) for name in names)

    def add(self, table, name, measured, asked=None, note=""):
        """A row: what was measured, and what is asked for."""
        self.rows.setdefault(table, []).append((name, list(measured), asked, note))
        print(f"{name}: {statistics.median(measured):,.2f}", file=sys.stderr, flush=True)

    def leave_out(self, name, reason):
        self.left_out.append(f"{name}: {reason}")
        print(f"{name} is left out: {reason}", file=sys.stderr, flush=True)

    def median(self, table, name):
        return next(statistics.median(measured) for row, measured, _, _ in self.rows[table] if row == name)

    def markdown(self):
        """The tables: the median, the lowest and the highest of each row."""
        parts = []
        for (title, unit, digits), rows in self.rows.items():
            lines = [f"## {title}", "", f"| work | {unit}, median | lowest | highest | asked for | |"]
            lines.append("| --- | ---: | ---: | ---: | ---: | --- |")
            for name, measured, asked, note in rows:
                figures = [statistics.median(measured), min(measured), max(measured)]
                cells = [f"{figure:,.{digits}f}" for figure in figures] + [f"{asked:,}" if asked else ""]
                lines.append(f"| {name} | {' | '.join(cells)} | {note} |")
            parts.append("\n".join(lines))
        notes = self.bounds_of_missed()
        if notes:
            parts.append("\n".join(["## What bounds what is not reached", "", *notes]))
        if self.left_out:
            parts.append("Left out: " + "; ".join(self.left_out) + ".")
        return "\n\n".join(parts)


    def bounds_of_missed(self):
        """A line of Markdown for each row that does not reach what is asked for. A rate is to be at least that, all else at most."""
        from harness.report import bounds

        notes = bounds()
        lines = []
        for table, rows in self.rows.items():
            is_rate = table[1].endswith("a second")
            for name, measured, asked, _ in rows:
                figure = statistics.median(measured)
                if asked and (figure < asked if is_rate else figure > asked):
                    lines.append(f"* {table[0]}, {name}: {notes.get(self.bounds.get(table), 'not known yet.')}")
        return lines


RATES = ("Submits and maps", "items a second", 0)
DRAINS = ("Drains of jobs that do nothing", "jobs a second", 0)
NAPS = (f"Jobs of 5 ms on {NAP_PROCESSES} processes", "times their sum over the processes", 3)
WAITS = ("Waits", "ms", 2)
SYNCED = "every commit is synced"
# A peer gets no further run of a row after so long in total. Seconds.
PEER_S = 10


def measure_rates(report, sizes):
    many, few, runs = sizes.many, sizes.few, sizes.runs
    if report.wants("submit"):
        for what, items in (("numbers", range(many)), ("dictionaries of 100 bytes", records(many))):
            submit = submit_many(items)
            report.add(RATES, f"`submit_many` of {what} into SQLite", rates(many, runs, submit), 500_000)
            with postgres_stores() as new_store:
                report.add(RATES, f"`submit_many` of {what} into PostgreSQL", rates(many, runs, submit, new_store), 300_000)
        report.add(RATES, "`submit`, one by one, into SQLite", rates(few, runs, submit_each(few)))
    if report.wants("map"):
        processes = os.cpu_count() or 1
        report.add(RATES, "`map` of an identity function", rates(many, runs, map_identity(many, processes)), 250_000)
        chunk, measured = pool_rates(identity, many, runs, processes, CHUNKS)
        report.add(RATES, "`Pool.imap` of the same", measured, note=f"chunks of {chunk:,}; keeps nothing")


def repeated(runs, measure):
    """What `measure` gives, as often as there are runs, or until they have taken `PEER_S` together."""
    began, measured = time.monotonic(), []
    while len(measured) < runs and (not measured or time.monotonic() - began < PEER_S):
        measured.append(measure())
    return measured


def measure_peers(report, runs, folder, table, words, places, measure):
    """A row of the table for each peer and each of these places of its jobs: `measure(peer, place)`."""
    for title in places:
        new_place, peers = queues.PLACES[title]
        for peer in peers:
            if not report.wants(*words, peer):
                continue
            name = queues.PEERS[peer][0]

            def once():
                with new_place() as place:
                    return measure(peer, place)

            try:
                # It is installed before.
                queues.interpreter(folder, peer)
                measured = repeated(runs, once)
            except (queues.LeftOut, subprocess.SubprocessError, OSError) as error:
                report.leave_out(f"{name} on {title}", error)
                continue
            report.add(table, f"{name} on {title}", measured)


def measure_drains(report, sizes, folder):
    """No-op jobs that were submitted before."""
    processes = os.cpu_count() or 1

    def drain_peer(peer, place):
        return queues.per_second(queues.drain_peer(folder, peer, place, sizes.drained_by_peers, processes, 0))

    def ours(new_store):
        def once():
            with new_store() as place:
                return queues.per_second(queues.drain_ours(place, sizes.drained, processes, 0))

        return [once() for _ in range(sizes.runs)]

    measure_peers(report, sizes.runs, folder, DRAINS, ["drain"], queues.PLACES, drain_peer)
    if report.wants("drain"):
        best = max((statistics.median(measured) for _, measured, _, _ in report.rows.get(DRAINS, [])), default=0)
        report.add(DRAINS, "Gristmill on SQLite", ours(new_file), 50 * round(best), SYNCED)
        with postgres_stores() as new_store:
            report.add(DRAINS, "Gristmill on PostgreSQL", ours(new_store), None, SYNCED)


def measure_naps(report, sizes, folder):
    """Jobs of 5 ms, as a multiple of the sum of their naps over the processes."""
    jobs = sizes.naps
    bound_s = jobs * NAP_S / NAP_PROCESSES

    def times(moments):
        return queues.times_the_sum(moments, NAP_PROCESSES, NAP_S)

    def ours():
        with new_file() as place:
            return times(queues.drain_ours(place, jobs, NAP_PROCESSES, NAP_S))

    if report.wants("naps"):
        name = f"{NAP_PROCESSES} processes that sleep in a loop"
        bare = [queues.bare_times(jobs, NAP_PROCESSES, NAP_S) for _ in range(sizes.runs)]
        report.add(NAPS, name, bare, note="the bound: sleeps of 5 ms take longer on this machine")
        asked = round(1.03 * report.median(NAPS, name), 3)
        report.add(NAPS, "Gristmill on SQLite", [ours() for _ in range(sizes.runs)], asked, SYNCED)
        for name, pool in (("Pool", multiprocessing.Pool), ("ThreadPool", multiprocessing.pool.ThreadPool)):
            chunk, measured = pool_rates(nap, jobs, sizes.runs, NAP_PROCESSES, NAP_CHUNKS, pool)
            multiples = [jobs / rate / bound_s for rate in measured]
            report.add(NAPS, f"`{name}.imap`", multiples, note=f"chunks of {chunk}, with the start of the pool; keeps nothing")
    measure_peers(
        report, sizes.runs, folder, NAPS, ["naps"], queues.FAST_PLACES,
        lambda peer, place: times(queues.drain_peer(folder, peer, place, jobs, NAP_PROCESSES, NAP_S)),
    )


def measure_waits(report, sizes):
    if report.wants("waits"):
        report.add(WAITS, "submit and awaited result of one job, on SQLite", awaited_ms(sizes.awaited), 3, "two commits, each synced")
        report.add(WAITS, "fsync of a page, for comparison", synced_ms(sizes.awaited))
        report.add(WAITS, "import of the package", import_ms(sizes.rounds), 60)
        report.add(WAITS, "fixture `gristmill_app`", fixture_ms(sizes.rounds), 10)


def measure_batches(report, sizes):
    if not report.wants("batches"):
        return
    missing = [name for name in embedding.NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        report.leave_out("embeddings", f"{', '.join(missing)} not installed")
        return
    embedding.measure(report, sizes, new_file)


class Sizes:
    """How much of everything is measured."""

    def __init__(self, quick, runs):
        self.runs, self.rounds, self.awaited = (1, 3, 50) if quick else (3, 21, 1_000)
        self.runs = runs or self.runs
        self.many, self.few = (50_000, 100) if quick else (1_000_000, 2_000)
        self.drained, self.drained_by_peers = (20_000, 300) if quick else (300_000, 3_000)
        self.naps, self.texts = (400, 100) if quick else (8_000, 1_000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few items and one run each, to see that it works")
    parser.add_argument("--runs", type=int, help="runs of each row")
    parser.add_argument("--only", default="", metavar="REGEX", help="of submit, map, drain, naps, waits, batches, ray, and peers' names")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/python/bench-peers", help="the peers' environments")
    parser.add_argument("--output", type=pathlib.Path, help="the Markdown file to write as well")
    arguments = parser.parse_args()
    sizes, report = Sizes(arguments.quick, arguments.runs), Report(arguments.only)
    report.bounds = {NAPS: "python-naps", embedding.TABLE: "python-embeddings"}
    parts = [
        lambda: measure_rates(report, sizes),
        lambda: measure_waits(report, sizes),
        lambda: measure_drains(report, sizes, arguments.folder),
        lambda: measure_naps(report, sizes, arguments.folder),
        lambda: measure_batches(report, sizes),
        lambda: measure_ray(report, sizes),
    ]
    for measure in parts:
        measure()
        # After each part: a run that is ended early leaves what it has measured.
        if arguments.output is not None:
            arguments.output.write_text(text_of(report, sizes))
    print(text_of(report, sizes))


def measure_ray(report, sizes):
    if not report.wants("ray"):
        return
    if importlib.util.find_spec("ray") is None:
        report.leave_out("agents on Ray", "Ray is not installed")
        return
    import ray_agents

    ray_agents.measure(report, sizes)


def text_of(report, sizes):
    return (
        "# Figures of the Python package\n\n"
        f"`make bench-python` on Python {platform.python_version()}, {os.cpu_count()} processors: medians of {sizes.runs} runs of"
        f" {sizes.many:,} items ({sizes.few:,} one by one), {sizes.drained:,} drained jobs ({sizes.drained_by_peers:,} of each peer) and"
        f" {sizes.naps:,} jobs of 5 ms. A drain counts from the end of its first job to the end of its last one, with jobs that were"
        " submitted before; the job notes the moment in a file.\n\n"
        f"{report.markdown()}\n"
    )


if __name__ == "__main__":
    main()
