"""The package's figures, each beside a peer's in the same run. Run by `make bench-python`, which writes bench/RESULTS-python.md."""

import argparse
import multiprocessing
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import gristmill


def identity(number):
    return number


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rates(items, runs, work):
    """Items per second of each run of `work(app)`, each on a store of its own, which is opened before."""
    measured = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder, opened(folder) as app:
            measured.append(items / seconds_of(lambda: work(app)))
    return measured


def opened(folder):
    app = gristmill.App(os.path.join(folder, "jobs.db"))
    app.counts()
    return app


def submit_many(items):
    def work(app):
        submitted = app.job(identity).submit_many(range(items))
        assert len(submitted) == items, submitted

    return work


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


def pool_rates(items, runs, processes, chunk):
    """Items per second of each run of a pool of processes, which keeps nothing."""

    def work():
        with multiprocessing.Pool(processes) as pool:
            count = sum(1 for _ in pool.imap(identity, range(items), chunk))
            assert count == items, count

    return [items / seconds_of(work) for _ in range(runs)]


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
    """Milliseconds from a submit to its result, with a worker that waits in the same process."""
    with tempfile.TemporaryDirectory() as folder, opened(folder) as app:
        job = app.job(identity)
        with app.worker(1):
            job.submit(0).result(timeout=60)
            return [1000 * seconds_of(lambda: job.submit(1).result(timeout=60)) for _ in range(rounds)]


def table(rows, unit):
    """Rows of a name and what was measured, as Markdown: the median, the lowest and the highest."""
    digits = 0 if unit == "a second" else 2
    lines = [f"| work | {unit}, median | lowest | highest |", "| --- | ---: | ---: | ---: |"]
    for name, measured in rows:
        figures = [statistics.median(measured), min(measured), max(measured)]
        lines.append(f"| {name} | " + " | ".join(f"{figure:,.{digits}f}" for figure in figures) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few items and one run each, to see that it works")
    parser.add_argument("--output", type=pathlib.Path, help="the Markdown file to write as well")
    arguments = parser.parse_args()
    quick = arguments.quick
    many, few, runs, rounds = (50_000, 100, 1, 3) if quick else (1_000_000, 2_000, 3, 21)
    processes = os.cpu_count() or 1
    chunks = (100, 1_000) if quick else (1, 10, 100, 1_000, 10_000)
    work = [
        ("`submit_many` into SQLite", rates(many, runs, submit_many(many))),
        ("`submit`, one by one", rates(few, runs, submit_each(few))),
        ("`map` of an identity function", rates(many, runs, map_identity(many, processes))),
    ]
    for chunk in chunks:
        # A chunk of one is a message for each item.
        items = many if chunk >= 100 else many // 20
        work.append((f"`Pool.imap` of the same, chunks of {chunk:,}; keeps nothing", pool_rates(items, runs, processes, chunk)))
    waits = [
        ("submit and result of one job", awaited_ms(50 if quick else 1_000)),
        ("import of the package", import_ms(rounds)),
        ("fixture `gristmill_app`", fixture_ms(rounds)),
    ]
    report = (
        "# Figures of the Python package\n\n"
        f"`make bench-python` on Python {platform.python_version()}, {processes} processors: {runs} runs of {many:,} items"
        f" ({few:,} one by one). Every commit is synced.\n\n{table(work, 'a second')}\n\n{table(waits, 'ms')}\n"
    )
    print(report)
    if arguments.output is not None:
        arguments.output.write_text(report)


if __name__ == "__main__":
    main()
