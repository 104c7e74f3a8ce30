"""`reader.py STORE JOBS`: reads a store's reports while they come in, and says how old each outcome was when it became
visible.

The jobs' values are the moments they ended at, in nanoseconds since 1970. The reader looks for reports that it has not
seen, of the batches that are not whole yet: every millisecond in a file (where the file has changed), every two in a
database. What a look brings was visible when the look ended, so that a figure is at most one look too high. Prints `ready`, and at
the end JSON: samples, p50_ms, p99_ms, max_ms.
"""

import json
import re
import sqlite3
import sys
import time

PATIENCE_SECONDS = 30
# The first line, once the reader looks: what ends before would count as seen late.
READY = "ready"
FILE_LOOK_EVERY_SECONDS = 0.001
DATABASE_LOOK_EVERY_SECONDS = 0.002
# A report's id in a file is its batch's, times this, plus its first position.
IDS_PER_BATCH = 16_384


def positions(text):
    """The positions that a report names: `0-2,5` in a file, `{[0,3),[5,6)}` in a database."""
    if text.startswith("{"):
        pairs = [(int(first), int(until)) for first, until in re.findall(r"\[(\d+),(\d+)\)", text)]
    else:
        ends = [part.split("-") for part in text.split(",")]
        pairs = [(int(part[0]), int(part[-1]) + 1) for part in ends]
    return [position for first, until in pairs for position in range(first, until)]


class File:
    """A SQLite store."""

    look_every_seconds = FILE_LOOK_EVERY_SECONDS

    def __init__(self, path):
        self.path, self.connection, self.version = path, None, None

    def reports(self, first_batch):
        """(batch, key, jobs) of all reports from a batch on; none where nothing was committed since the last look."""
        try:
            if self.connection is None:
                self.connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=1)
            version = self.connection.execute("PRAGMA data_version").fetchone()
            if version == self.version:
                return []
            rows = self.connection.execute("SELECT id, count FROM report WHERE id >= ?", (first_batch * IDS_PER_BATCH,))
            found = [(key // IDS_PER_BATCH, key, jobs) for key, jobs in rows]
            self.version = version
            return found
        except sqlite3.OperationalError:
            # The file or its tables are not there yet.
            self.connection = None
            return []

    def outcomes(self, key):
        """The positions and values of a report; None where it is gone, joined with another."""
        return self.connection.execute('SELECT positions, "values" FROM report WHERE id = ?', (key,)).fetchone()

    def batches(self):
        return dict(self.connection.execute("SELECT id, count FROM batch"))


class Database:
    """A store on PostgreSQL."""

    look_every_seconds = DATABASE_LOOK_EVERY_SECONDS

    def __init__(self, url):
        import psycopg

        self.connection = psycopg.connect(url, autocommit=True)

    def reports(self, first_batch):
        rows = self.connection.execute(
            "SELECT batch_id, first_position, count FROM gristmill.report WHERE batch_id >= %s", (first_batch,)
        )
        return [(batch, (batch, position), jobs) for batch, position, jobs in rows]

    def outcomes(self, key):
        return self.connection.execute(
            'SELECT positions::text, "values" FROM gristmill.report WHERE batch_id = %s AND first_position = %s', key
        ).fetchone()

    def batches(self):
        return dict(self.connection.execute("SELECT id, count FROM gristmill.batch").fetchall())


def ages(store, jobs):
    """How old each outcome was, in nanoseconds, when a look brought it."""
    found, ended, seen, whole, first_batch = [], set(), {}, {}, 0
    until = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < jobs and time.monotonic() < until:
        reports = store.reports(first_batch)
        visible_at = time.time_ns()
        for batch, key, count in reports:
            if seen.get(key) == count:
                continue
            texts = store.outcomes(key)
            if texts is None:
                continue
            seen[key] = count
            for position, value in zip(positions(texts[0]), json.loads(texts[1]), strict=True):
                # A report that was joined with others brings outcomes again that were seen before.
                if (batch, position) not in ended:
                    ended.add((batch, position))
                    found.append(visible_at - value)
                    whole[batch] = whole.get(batch, 0) + 1
            until = time.monotonic() + PATIENCE_SECONDS
        if reports:
            counts = store.batches()
            first_batch = min((b for b in counts if whole.get(b, 0) < counts[b]), default=first_batch)
        time.sleep(store.look_every_seconds)
    return sorted(found)


def main():
    address, jobs = sys.argv[1], int(sys.argv[2])
    store = Database(address) if address.startswith("postgresql:") else File(address)
    print(READY, flush=True)
    found = ages(store, jobs)
    at = lambda share: found[round((len(found) - 1) * share)] / 1e6
    answer = {"samples": len(found)}
    if found:
        answer |= {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
