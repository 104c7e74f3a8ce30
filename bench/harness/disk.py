"""The bytes that jobs take on disk, in a closed SQLite file: of Gristmill, and of a table with a row a job."""

import sqlite3

from .build import BENCH
from .contenders import items_file, remove_store

JOBS_ON_DISK = 200_000
# A line of `items_file` without its line feed.
ITEM_BYTES = 100


def _size(path):
    return path.stat().st_size


def gristmill_waiting(bench):
    """Bytes a job that waits."""
    store = bench.folder / "disk.db"
    remove_store(store)
    source = items_file(bench.folder, JOBS_ON_DISK)
    bench.run([bench.builds.gristmill, "submit", "noop", "--input", source, "--store", store])
    size = _size(store)
    remove_store(store)
    return size / JOBS_ON_DISK


def _completed(bench):
    """A store with completed jobs; the value of each is its payload."""
    store, output = bench.folder / "disk.db", bench.folder / "disk.jsonl"
    remove_store(store)
    source = items_file(bench.folder, JOBS_ON_DISK)
    command = ["run", BENCH / "scripts/identity.py", "--input", source, "--output", output, "--store", store]
    bench.run([bench.builds.gristmill, *command])
    output.unlink()
    return store


def gristmill_completed(bench):
    """Bytes a job that has completed."""
    store = _completed(bench)
    size = _size(store)
    remove_store(store)
    return size / JOBS_ON_DISK


def gristmill_pruned(bench):
    """Megabytes of the file once all jobs are deleted."""
    store = _completed(bench)
    bench.run([bench.builds.gristmill, "prune", "--older-than", "0s", "--store", store])
    size = _size(store)
    remove_store(store)
    return size / 1e6


def _rows(bench, values, deleted):
    """The size of a file with a row a job."""
    store = bench.folder / "rows.db"
    remove_store(store)
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, payload TEXT NOT NULL, value TEXT)")
    with open(items_file(bench.folder, JOBS_ON_DISK), encoding="ascii") as lines:
        rows = ((line.rstrip("\n"),) for line in lines)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO job (state, payload) VALUES (0, ?)", rows)
        connection.execute("COMMIT")
    if values:
        connection.execute("UPDATE job SET state = 1, value = payload")
    if deleted:
        connection.execute("DELETE FROM job")
    connection.close()
    size = _size(store)
    remove_store(store)
    return size


# By the id of a row: the contenders, and how each is measured.
FILES = {
    "bytes-waiting": {
        "Gristmill": gristmill_waiting,
        "bare rows": lambda bench: _rows(bench, False, False) / JOBS_ON_DISK,
    },
    "bytes-completed": {
        "Gristmill": gristmill_completed,
        "bare rows": lambda bench: _rows(bench, True, False) / JOBS_ON_DISK,
    },
    "bytes-pruned": {
        "Gristmill": gristmill_pruned,
        "bare rows": lambda bench: _rows(bench, True, True) / 1e6,
    },
}
