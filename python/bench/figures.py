"""The package's figures, each beside a peer's in the same run. Run by `make bench-python`."""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
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


def rates(items, runs, prepare):
    """Items per second of each run."""
    measured = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            work = prepare(folder)
            measured.append(items / seconds_of(work))
    return measured


def open_app(folder):
    app = gristmill.App(os.path.join(folder, "jobs.db"))
    app.counts()
    return app


def submit_many(items):
    def prepare(folder):
        job = open_app(folder).job(identity)
        return lambda: job.submit_many(range(items))

    return prepare


def submit_each(items):
    def prepare(folder):
        job = open_app(folder).job(identity)

        def work():
            for number in range(items):
                job.submit(number)

        return work

    return prepare


def map_identity(items, processes):
    def prepare(folder):
        app = open_app(folder)

        def work():
            count = sum(1 for _ in app.map(identity, range(items), processes=processes))
            assert count == items, count

        return work

    return prepare


def pool_imap(items, processes, chunk):
    def prepare(folder):
        def work():
            with multiprocessing.Pool(processes) as pool:
                count = sum(1 for _ in pool.imap(identity, range(items), chunk))
                assert count == items, count

        return work

    return prepare


def awaited_results(rounds):
    """Seconds from a submit to its result, with a worker that waits in the same process."""
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(folder)
        job = app.job(identity)
        with app.worker(1):
            job.submit(0).result(timeout=60)
            return [seconds_of(lambda: job.submit(1).result(timeout=60)) for _ in range(rounds)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few items and one run each, to see that it works")
    quick = parser.parse_args().quick
    many, few, runs = (50_000, 100, 1) if quick else (1_000_000, 2_000, 3)
    processes = os.cpu_count() or 1
    chunks = (100, 1_000) if quick else (1, 10, 100, 1_000, 10_000)
    print(f"Python {platform.python_version()}, {processes} processors, {runs} runs, items: {many}, every commit synced")
    rows = [
        ("submit_many into SQLite", rates(many, runs, submit_many(many))),
        ("submit, one by one", rates(few, runs, submit_each(few))),
        ("map of an identity function", rates(many, runs, map_identity(many, processes))),
    ]
    for chunk in chunks:
        # A chunk of one is a message for each item.
        items = many if chunk >= 100 else many // 20
        measured = rates(items, runs, pool_imap(items, processes, chunk))
        rows.append((f"Pool.imap of the same, chunks of {chunk}, nothing kept", measured))
    for name, measured in rows:
        lowest, highest = min(measured), max(measured)
        print(f"{name:55} {statistics.median(measured):>12,.0f} a second   (from {lowest:,.0f} to {highest:,.0f})")
    waits = sorted(awaited_results(50 if quick else 1_000))
    half, most = waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000
    print(f"{'submit and result of one job, p50':55} {half:>12.2f} ms         (p99 {most:.2f})")
    print(json.dumps({"version": sys.version, "rows": dict(rows), "waits_s": waits[:: max(1, len(waits) // 20)]}), file=sys.stderr)


if __name__ == "__main__":
    main()
