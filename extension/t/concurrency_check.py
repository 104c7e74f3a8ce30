#!/usr/bin/env python3
"""Batched scans while rows are updated, deleted, inserted and vacuumed under them.

    make -C extension test-concurrency         about half a minute
    t/concurrency_check.py --transactions 50000

pgbench moves amounts between accounts and replaces accounts by new rows, so in every snapshot the
number of accounts, the sum of their numbers and the sum of their amounts are the same. One session
vacuums all the time, which sets the visibility bits that batched scans trust, and prunes the pages
that they read. Batched readers, serial and parallel, must never see another sum.

Before, batched UPDATEs and DELETEs wait for a transaction that changes rows that they have found: they
must take the newest version of a row, and leave a row that no longer passes their filter.
"""

import argparse
import subprocess
import threading

from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, inside_python_environment, run_check
from server import Server, stop_on_signals

ACCOUNTS = 20_000
AMOUNT = 1000
WRITERS = 3
TRANSACTIONS_DEFAULT = 12_000
SETTINGS = {"shared_buffers": "128MB", "max_parallel_workers": "4", "jit": "off"}

TABLE = f"""
create table accounts (number int, amount int, note text, touched int8 default 0) with (fillfactor = 80);
insert into accounts select x, {AMOUNT}, repeat('n', x % 40) from generate_series(1, {ACCOUNTS}) x;
create index on accounts (number);
"""
# An UPDATE that waits for a row which REPLACE deletes finds no row afterwards. A transfer of one half would change the sum, so both
# scripts lock the numbers. Lower numbers are locked first, so the writers do not deadlock.
TRANSFER = f"""
\\set low random(1, {ACCOUNTS} / 2)
\\set high random({ACCOUNTS} / 2 + 1, {ACCOUNTS})
\\set moved random(-50, 50)
begin;
select pg_advisory_xact_lock(:low);
select pg_advisory_xact_lock(:high);
update accounts set amount = amount - :moved, touched = touched + 1 where number = :low;
update accounts set amount = amount + :moved where number = :high;
end;
"""
REPLACE = f"""
\\set number random(1, {ACCOUNTS})
begin;
select pg_advisory_xact_lock(:number);
with gone as (delete from accounts where number = :number returning number, amount, note)
insert into accounts select number, amount, note || '' from gone;
end;
"""
ABANDON = f"""
\\set number random(1, {ACCOUNTS})
begin;
insert into accounts values (-1, 12345, 'never committed');
update accounts set amount = 0 where number = :number;
rollback;
"""
# Each query with the one answer that every snapshot gives.
NUMBERS_SUM = ACCOUNTS * (ACCOUNTS + 1) // 2
QUERIES = {
    "select count(*) from accounts": (ACCOUNTS,),
    "select sum(amount), sum(number) from accounts": (ACCOUNTS * AMOUNT, NUMBERS_SUM),
    "select sum(amount), count(*), min(number), max(number) from accounts where number > 0":
        (ACCOUNTS * AMOUNT, ACCOUNTS, 1, ACCOUNTS),
    "select count(*), sum(n) from (select number % 100 as k, count(*) as n from accounts group by 1) g":
        (100, ACCOUNTS),
    "select count(distinct number) from (select number from accounts where note is not null offset 0) a": (ACCOUNTS,),
    "select count(*) from accounts where number < 0": (0,),
}
READERS = {
    "serial": "set max_parallel_workers_per_gather = 0",
    "parallel": "set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; "
                "set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0",
}


# Statements that wait for a change of the rows 1 to 3, and what is left of rows 1 to 4 (number, amount, is_open).
RECHECKED_TABLE = ("create table rechecked as select x as number, 10 * x as amount, true as is_open, repeat('n', 50) as note "
                   "from generate_series(1, 3000) x")
CHANGE = ("update rechecked set is_open = false where number = 1; update rechecked set amount = amount + 100 where number = 2; "
          "delete from rechecked where number = 3")
RECHECKED = {
    "update rechecked set amount = amount * 2 where is_open and note <> ''":
        [("1", "10", "f"), ("2", "240", "t"), ("4", "80", "t")],
    "update rechecked set amount = amount + 1 where amount % 10 = 0 and is_open":
        [("1", "10", "f"), ("2", "121", "t"), ("4", "41", "t")],
    "delete from rechecked where is_open and amount < 100": [("1", "10", "f"), ("2", "120", "t")],
}


def check_rechecks(server: Server) -> list:
    """Run each of the statements against a concurrent change; what went wrong."""
    wrong = []
    for statement, expected in RECHECKED.items():
        server.psql(f"drop table if exists rechecked; {RECHECKED_TABLE}; analyze rechecked")
        changer, watcher = (comparison.Session(server.conninfo()) for _ in range(2))
        waiter = comparison.Session(server.conninfo(), [f"load '{LIBRARY_NAME}'", "set batchexec.mode = prefer"])
        if not comparison.is_batched(waiter.run(f"explain {statement}")):
            wrong.append(f"not batched: {statement}")
        changer.must("begin")
        for change in CHANGE.split("; "):
            changer.must(change)
        thread = threading.Thread(target=waiter.must, args=(statement,))
        thread.start()
        while not watcher.must("select 1 from pg_locks where not granted"):
            pass
        changer.must("commit")
        thread.join()
        left = watcher.must("select number, amount, is_open from rechecked where number <= 4 order by 1")
        left = [tuple(value.decode() for value in row) for row in left]
        if left != expected:
            wrong.append(f"{statement}: expected {expected}, got {left}")
    return wrong


class Reader(threading.Thread):
    """Asks every query in turn until it is told to stop; keeps the answers that were wrong."""

    def __init__(self, server: Server, name: str, stop: threading.Event):
        super().__init__(name=name)
        self.stop_event = stop
        self.reads = 0
        self.wrong = []
        self.session = comparison.Session(server.conninfo(), [f"load '{LIBRARY_NAME}'", READERS[name]])
        self.session.must("set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off")
        for sql in QUERIES:
            if not comparison.is_batched(self.session.run(f"explain {sql}")):
                self.wrong.append(f"not batched: {sql}")

    def run(self):
        try:
            while not self.stop_event.is_set():
                for sql, expected in QUERIES.items():
                    answer = self.session.must(sql)
                    self.reads += 1
                    got = tuple(int(value) for value in answer[0])
                    if got != expected:
                        self.wrong.append(f"{sql}: expected {expected}, got {got}")
        except (comparison.ServerLost, RuntimeError) as failure:
            self.wrong.append(str(failure))


def vacuum_until(server: Server, stop: threading.Event, rounds: list) -> None:
    session = comparison.Session(server.conninfo())
    while not stop.is_set():
        session.must("vacuum (truncate off) accounts")
        rounds.append(1)


def write(server: Server, transactions: int) -> None:
    """Run the writers to their end."""
    scripts = []
    for name, text, weight in (("transfer", TRANSFER, 6), ("replace", REPLACE, 3), ("abandon", ABANDON, 1)):
        path = server.directory / f"{name}.sql"
        path.write_text(text)
        path.chmod(0o644)
        scripts.append(f"--file={path}@{weight}")
    done = server.command([server.binaries / "pgbench", "-n", "-c", WRITERS, "-t", transactions // WRITERS,
                           *scripts, "postgres"], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"pgbench: {done.stdout[-1000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS_DEFAULT)
    options = parser.parse_args()
    if options.transactions < WRITERS:
        parser.error(f"--transactions is at least {WRITERS}")
    stop_on_signals()
    server = Server(settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    with server:
        server.psql(TABLE)
        server.psql("vacuum (analyze) accounts")
        not_rechecked = check_rechecks(server)
        stop, vacuums = threading.Event(), []
        readers = [Reader(server, name, stop) for name in READERS]
        vacuum = threading.Thread(target=vacuum_until, args=(server, stop, vacuums))
        try:
            for thread in (*readers, vacuum):
                thread.start()
            write(server, options.transactions)
        finally:
            stop.set()
            for thread in (*readers, vacuum):
                thread.join()
        crashes = server.crashes()
    failed = len(crashes)
    for line in crashes:
        print(f"server log: {line}")
    failed += len(not_rechecked)
    print(f"{len(RECHECKED)} statements beside a change of their rows, {len(not_rechecked)} wrong")
    for wrong in not_rechecked:
        print(f"  {wrong}")
    for reader in readers:
        print(f"{reader.name}: {reader.reads} reads beside {options.transactions} transactions and "
              f"{len(vacuums)} vacuums, {len(reader.wrong)} wrong")
        failed += len(reader.wrong)
        for wrong in reader.wrong[:10]:
            print(f"  {wrong}")
    print(f"{sum(reader.reads for reader in readers) - failed} passed, {failed} failed")
    return 1 if failed or not all(reader.reads for reader in readers) else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import comparison
    run_check(main)
