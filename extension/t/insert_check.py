#!/usr/bin/env python3
"""Batched INSERTs beside readers, and across a crash.

    make -C extension test-insert

* Readers beside INSERTs that are committed or rolled back see all rows of an INSERT, or none.
* After a crash of the server the committed rows are there, the others are not, and an index finds
  what the table holds. Pages that the log gives are compared with those that were written.
* Two sessions that insert the same keys wait for each other, and one gets the unique violation.
"""

import argparse
import subprocess
import threading
import time

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, inside_python_environment, run_check
from server import Server, as_server_account, stop_on_signals

ROWS = 7000
INSERTS = 30
WAIT_S = 60
# WAL as a server in use writes it: full pages, and flushed.
SETTINGS = {"shared_buffers": "32MB", "full_page_writes": "on", "wal_consistency_checking": "all",
            "max_wal_size": "4GB", "checkpoint_timeout": "1h"}
TABLES = (f"create table source as select x as id, x % 9 as kind, repeat('n', x % 300) as note "
          f"from generate_series(1, {ROWS}) x",
          "create table target (round int, id int, kind int, note text, primary key (round, id))",
          "create index on target (kind)", "create table plain (round int, note text)",
          "vacuum (analyze) source")
INSERT = "insert into target select {round}, id, kind, note from source"
INSERT_PLAIN = "insert into plain select {round}, note from source"
BY_INDEX = "set enable_seqscan = off; set enable_bitmapscan = off"


class Checks:
    """Runs the checks on one server; counts what passed and what failed."""

    def __init__(self, server: Server):
        self.server = server
        self.passed = 0
        self.failed = 0

    def expect(self, name: str, got, expected) -> None:
        if got == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {name}: expected {expected}, got {got}")

    def session(self, *settings: str):
        return comparison.Session(self.server.conninfo(),
                                  [f"load '{LIBRARY_NAME}'", "set batchexec.mode = prefer",
                                                           f"set lock_timeout = '{WAIT_S}s'", *settings])

    def is_batched(self) -> None:
        session = self.session()
        for command in (INSERT, INSERT_PLAIN):
            plan = session.must("explain " + command.format(round=0))
            self.expect("the INSERT is batched", b"BatchInsert" in plan[0][0], True)

    def beside_readers(self) -> None:
        """Rounds of even numbers are rolled back."""
        stop = threading.Event()
        wrong = []
        reads = []

        def read() -> None:
            session = self.session()
            while not stop.is_set():
                rows = session.must("select round, count(*), count(distinct id) from target group by round")
                reads.append(1)
                wrong.extend(row for row in rows if (int(row[0]) % 2, int(row[1]), int(row[2])) != (1, ROWS, ROWS))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            writer = self.session()
            for number in range(INSERTS):
                writer.must("begin")
                writer.must(INSERT.format(round=number))
                writer.must("commit" if number % 2 else "rollback")
        finally:
            stop.set()
            reader.join()
        self.expect("readers see whole INSERTs", wrong, [])
        self.expect("readers read", bool(reads), True)
        self.expect("what was committed is there", self.counts(), (INSERTS // 2, ROWS * (INSERTS // 2)))

    def counts(self) -> tuple:
        row = self.session().must("select count(distinct round), count(*) from target")[0]
        return int(row[0]), int(row[1])

    def same_keys(self) -> None:
        """The second session waits for the first one's commit."""
        first, second = self.session(), self.session()
        backend = int(second.must("select pg_backend_pid()")[0][0])
        outcome = []
        first.must("begin")
        first.must(INSERT.format(round=1001))
        waiter = threading.Thread(target=lambda: outcome.append(second.run(INSERT.format(round=1001))))
        waiter.start()
        self.expect("the second INSERT waits", self.waits(first, backend), True)
        first.must("commit")
        waiter.join(WAIT_S)
        self.expect("the second INSERT fails", outcome, [("error", "23505")])

    @staticmethod
    def waits(session, backend: int) -> bool:
        """Poll, with a deadline, until the backend waits for a transaction."""
        asked = (f"select exists (select from pg_locks where pid = {backend} and locktype = 'transactionid' "
                 "and not granted)")
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if session.must(asked)[0][0] == b"t":
                return True
        return False

    def across_crash(self) -> None:
        """The server is killed with one INSERT committed and another under way."""
        self.server.psql("checkpoint")
        session = self.session()
        session.must(INSERT.format(round=2001))
        session.must(INSERT_PLAIN.format(round=2001))
        open_session = self.session()
        open_session.must("begin")
        open_session.must(INSERT.format(round=2002))
        open_session.must(INSERT_PLAIN.format(round=2002))
        # So that the rows of the open transaction are in the log, too.
        session.must("create table flushed ()")
        before = session.must("select count(*), sum(hashtext(t::text)) from target t where round <> 2002")
        crash(self.server)
        after = self.session()
        self.expect("rows after the crash", after.must("select count(*), sum(hashtext(t::text)) from target t"), before)
        by_index = self.session(*BY_INDEX.split("; "))
        self.expect("rows by the index after the crash",
                    by_index.must("select count(*), sum(hashtext(t::text)) from target t where round >= 0"), before)
        counted = after.must("select round, count(*) from plain group by round")
        self.expect("rows without an index after the crash",
                    [tuple(int(value) for value in row) for row in counted], [(2001, ROWS)])
        again = self.session()
        again.must(INSERT.format(round=2002))
        found = int(again.must("select count(*) from target where round = 2002")[0][0])
        self.expect("the lost keys can be inserted", found, ROWS)


def crash(server: Server) -> None:
    """Stop the server without a checkpoint, and start it again: it replays its log."""
    control = [server.binaries / "pg_ctl", "-D", server.directory / "data", "-s", "-w"]
    for words in (["stop", "-m", "immediate"], ["start", "-l", server.log]):
        done = subprocess.run([str(word) for word in (*control, *words)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd="/",
                              start_new_session=True, **as_server_account())
        if done.returncode != 0:
            raise RuntimeError(f"pg_ctl {words[0]} failed")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    stop_on_signals()
    server = Server(preload=[LIBRARY_NAME], settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    with server:
        for statement in TABLES:
            server.psql(statement)
        checks = Checks(server)
        checks.is_batched()
        checks.beside_readers()
        checks.same_keys()
        checks.across_crash()
        crashes = server.crashes()
    for line in crashes:
        print(f"server log: {line}")
    print(f"{checks.passed} passed, {checks.failed + len(crashes)} failed")
    return 1 if checks.failed or crashes else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import comparison
    run_check(main)
