#!/usr/bin/env python3
"""Random queries, batched against stock: the answers and the errors must be equal.

    make -C extension test-differential                  10,000 pairs, a new seed
    t/differential_check.py --seed 7 --pairs 2000        the same tables and queries every time
    t/differential_check.py --minutes 10                 as many pairs as fit

A pair is one generated query run with batchexec.mode = prefer and with forbid. Rounds of tables follow
one another: each has every kind of layout, its own settings, and now and then a concurrent writer, an
old snapshot or parallel workers, or is read through bitmaps, or joined where indexes compete. Behind them come
cursors that stop before an error (differential/cursors.py). A difference of a pair is
written below the build directory as a script for psql, made as small as it could be. Exit status 1: a difference,
a crash or too few batched queries.
"""

import argparse
import collections
import random
import time

from column_source import column_am, row_wrapper
import prerequisites
from prerequisites import LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite, run_check
from server import Server, default_pg_config, stop_on_signals

PAIRS_DEFAULT = 10_000
PAIRS_A_ROUND = 400
PAIRS_A_CURSOR = 10   # The check tries one cursor for so many pairs
INDEXES_A_TABLE = 6
DIFFERENCES_MAX = 20
BATCHED_SHARE_MIN = 0.60
ANALYZED_SHARE = 0.2
DATABASE = "differential"
CURSOR_DATABASE = "cursors"
SITUATIONS = ("quiet", "quiet", "quiet", "writer", "old snapshot", "parallel", "bitmaps", "joins")
FOREIGN_SITUATIONS = ("quiet", "quiet", "parallel", "joins")
DATA_ERROR_CLASS = "22"   # Overflow, division by zero
SETTINGS = {"shared_buffers": "256MB", "max_parallel_workers": "4", "max_worker_processes": "8"}


class Tally:
    """What the run has seen so far."""

    def __init__(self):
        self.pairs = self.batched = self.invalid = 0
        self.errors = collections.Counter()
        self.differences = []
        self.cursors = self.cursor_errors = 0
        self.cursor_differences = []

    def closing_lines(self, seed: int, started: float) -> str:
        failed = ", ".join(f"{state} {count}" for state, count in self.errors.most_common(8)) or "none"
        share = self.batched / self.pairs if self.pairs else 0
        return (f"seed {seed}: {self.pairs} pairs, {len(self.differences)} differences, "
                f"{100 * share:.1f}% batched, {sum(self.errors.values())} pairs ended in an error on both sides "
                f"({failed}); {self.cursors} cursors, {len(self.cursor_differences)} differences, {self.cursor_errors} "
                f"ended in an error; {time.monotonic() - started:.0f} s\n"
                f"{self.pairs + self.cursors - self.failed()} passed, {self.failed()} failed")

    def failed(self) -> int:
        return len(self.differences) + len(self.cursor_differences)


def try_cursors(tally: Tally, server: Server, seed: int) -> None:
    """In a database of their own, as many as the pairs allow."""
    server.psql(f"create database {CURSOR_DATABASE}")
    session = comparison.Session(server.conninfo(CURSOR_DATABASE), [f"load '{LIBRARY_NAME}'"])
    tally.cursors, tally.cursor_errors, tally.cursor_differences = cursors.compare(session, seed,
                                                                                   tally.pairs // PAIRS_A_CURSOR)
    for found in tally.cursor_differences:
        print(f"DIFFERENCE: {found}", flush=True)


def one_side_raises_data_error(taken: dict) -> bool:
    errors = [answer.error for answer in taken.values() if answer.error]
    return len(errors) == 1 and errors[0].startswith(DATA_ERROR_CLASS)


class Round:
    """One set of tables and settings, and the sessions that query them."""

    def __init__(self, server: Server, seed: int, number: int, is_foreign: bool = False):
        self.rng = random.Random(f"{seed}/{number}")
        self.server = server
        self.seed = seed
        self.number = number
        self.is_foreign = is_foreign
        self.situation = self.rng.choice(FOREIGN_SITUATIONS if is_foreign else SITUATIONS)
        self.tables = [tables.make_table(self.rng, f"t{index}", kind)
                       for index, kind in enumerate(self._kinds())]
        if is_foreign:
            self._make_foreign()
        self.settings = self._settings()
        self.concurrent = []

    def _kinds(self) -> list:
        kinds = [kind for kind in tables.KINDS
                 if kind != "temporary" or (self.situation == "quiet" and not self.is_foreign)]
        if self.situation == "parallel":
            return self.rng.sample(["fixed_width", "seed_shape", "partitioned", "churned", "vacuumed"], 3)
        return self.rng.sample(kinds, 6)

    def _make_foreign(self) -> None:
        """Foreign tables in the place of most of the tables, with the rows of these; some partitions stay tables."""
        for table in self.tables:
            table.setup += [f"select make_foreign('{name}')" for name in tables.names_with_rows(table)
                            if self.rng.random() < 0.9]

    def _settings(self) -> list:
        rows = self.rng.choice((None, None, 1, 3, 64))
        settings = [f"set batchexec.batch_rows = {rows}"] if rows else []
        if self.rng.random() < 0.2:
            settings += ["set work_mem = '64kB'", "set hash_mem_multiplier = 1"]
        if self.rng.random() < 0.3:
            settings.append("set enable_sort = off")
        if self.rng.random() < 0.3:
            settings.append("set enable_partitionwise_aggregate = on")
        if self.situation == "parallel":
            settings += ["set parallel_setup_cost = 0", "set parallel_tuple_cost = 0",
                         "set min_parallel_table_scan_size = 0", "set max_parallel_workers_per_gather = 2"]
        elif self.situation == "joins":
            # Batched joins are proposed at a cost that wins over the tables' indexes; some are parallel.
            settings += ["set batchexec.cost_row = 0", "set batchexec.cost_startup = 0", "set batchexec.cost_result_row = 0",
                         "set parallel_setup_cost = 0", "set parallel_tuple_cost = 0", "set min_parallel_table_scan_size = 0",
                         f"set max_parallel_workers_per_gather = {self.rng.choice((0, 0, 2))}"]
        else:
            settings.append("set max_parallel_workers_per_gather = 0")
            # Batches then save nothing, so both sides have one plan: which of two equal keys stands for a
            # group (1 or 1.00), and the order of rows, depend on it.
            settings.append("set batchexec.cost_row = 1")
        if self.situation == "bitmaps":
            settings += ["set enable_seqscan = off", "set enable_indexscan = off", "set enable_indexonlyscan = off"]
        return settings

    def _session(self) -> "comparison.Session":
        return comparison.Session(self.server.conninfo(DATABASE), [f"load '{LIBRARY_NAME}'"])

    def run(self, tally: Tally, pairs: int, deadline: float) -> None:
        pair, writer = self._open()
        maker = queries.QueryMaker(self.rng, self.tables, self.situation == "parallel",
                                   may_write=self.situation == "quiet" and not self.is_foreign,
                                   joins_only=self.situation == "joins", may_sample=not self.is_foreign)
        for _ in range(pairs):
            if len(tally.differences) >= DIFFERENCES_MAX or time.monotonic() > deadline:
                break
            query = maker.make()
            if self.situation == "old snapshot" and query.frame[0].startswith("begin"):
                query.frame, query.probe = ["{q}"], "{q}"
            self._try(tally, pair, query)
        for session in {id(session): session for session in (pair.batched, pair.stock, writer) if session}.values():
            session.connection.finish()
        self._drop_tables()

    def _open(self):
        """The tables made, and a pair of sessions in this round's situation; its writer, if there is one."""
        first = self._session()
        for table in self.tables:
            for statement in table.setup:
                first.must(statement)
        if self.situation in ("bitmaps", "joins"):
            self._add_indexes(first)
        if self.rng.random() < 0.5:
            first.must("analyze")
        second = first
        writer = None
        if self.situation == "old snapshot":
            second = self._session()
            for session in (first, second):
                session.must("begin isolation level repeatable read")
                session.must(f"select count(*) from {self.tables[0].name}")
        if self.situation in ("writer", "old snapshot"):
            writer = self._session()
            self.concurrent = tables.concurrent_changes(self.rng, self.tables)
            for statement in self.concurrent:
                writer.must(statement)
            if self.situation == "old snapshot":
                writer.must("commit")
        for session in {id(first): first, id(second): second}.values():
            for statement in self.settings:
                session.must(statement)
        return comparison.Pair(first, second, savepoint=self.situation == "old snapshot"), writer

    def _add_indexes(self, session) -> None:
        """Types without an order, and values that are too long for an index, go without."""
        for table in self.tables:
            for column in self.rng.sample(table.columns, min(INDEXES_A_TABLE, len(table.columns))):
                statement = f"create index on {table.name} ({column.name})"
                if session.run(statement)[0] == "done":
                    table.setup.append(statement)

    def _drop_tables(self) -> None:
        if self.is_foreign:
            self.server.psql("set client_min_messages = error; select drop_tables('t%')", DATABASE)
            return
        names = ", ".join(table.name for table in self.tables if not table.is_temporary)
        self.server.psql(f"set client_min_messages = error; drop table if exists {names} cascade", DATABASE)

    def _try(self, tally: Tally, pair, query) -> None:
        tally.pairs += 1
        try:
            taken = pair.answers(query, stock_first=self.rng.random() < 0.5)
            pair.batched.use("prefer")
            # With ANALYZE now and then: its figures come from code that plain execution never runs.
            explained = pair.batched.explain(query, self.rng.random() < ANALYZED_SHARE, pair.savepoint)
            tally.batched += comparison.is_batched(explained)
        except comparison.ServerLost as lost:
            self._report(tally, f"the server was lost: {lost}",
                         minimiser.script(self.seed, self.settings, self._setup_of(query), self.concurrent,
                                          query, f"server lost: {lost}"))
            raise
        error = taken["stock"].error
        if error:
            tally.errors[error] += 1
            if error.startswith(comparison.INVALID_CLASSES):
                tally.invalid += 1
                print(f"invalid: {pair.stock.message}\n  in {query.statements()}"[:1500])
        found = comparison.difference(query, taken)
        # The order of joins decides which rows an expression of one table is evaluated for: stock's orders differ, too.
        if self.situation == "joins" and one_side_raises_data_error(taken):
            tally.errors["by order of joins"] += 1
            return
        if not found and not error and explained[0] == "error":
            self._report(tally, f"EXPLAIN fails with {explained[1]}: {pair.batched.message}",
                         minimiser.script(self.seed, self.settings, self._setup_of(query), self.concurrent,
                                          query, "EXPLAIN VERBOSE, maybe with ANALYZE, fails"))
        if found:
            found = f"round {self.number} ({self.situation}): {found}"
            self._report(tally, found, minimiser.minimised(self.seed, pair, self.settings, self.concurrent,
                                                           query, found))

    def _setup_of(self, query) -> list:
        return [statement for table in query.tables for statement in table.setup]

    def _report(self, tally: Tally, found: str, script: str) -> None:
        tally.differences.append(found)
        path = prerequisites.build_directory("differences") / f"seed{self.seed}-{len(tally.differences)}.sql"
        path.write_text(script)
        shown = script if len(script) < 3000 else script[:600] + "\n...\n" + script[-1800:]
        print(f"DIFFERENCE {len(tally.differences)} ({path}): {found}\n{shown}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--pairs", type=int, default=PAIRS_DEFAULT)
    parser.add_argument("--minutes", type=float, help="stop after this long, however many pairs were tried")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--column-am", action="store_true", help="tables of the test access method, not of heap")
    kind.add_argument("--foreign", action="store_true", help="foreign tables of the test wrapper")
    parser.add_argument("--first-round", type=int, default=0, help="start at this round of the seed")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs is at least 1")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def main() -> int:
    options = parse_options()
    stop_on_signals()
    source, prepare = ((column_am, column_am.make_default) if options.column_am else
                       (row_wrapper, row_wrapper.install) if options.foreign else (None, None))
    server = Server(settings=SETTINGS, more_libraries=[source.build(default_pg_config())] if source else [])
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    started = time.monotonic()
    deadline = started + 60 * options.minutes if options.minutes else float("inf")
    tally = Tally()
    print(f"seed {options.seed}", flush=True)
    with server:
        server.psql(f"create database {DATABASE}")
        server.psql("; ".join(column_types.COLLATIONS_SETUP), DATABASE)
        if source:
            prepare(server, DATABASE)
        number = options.first_round
        try:
            while (tally.pairs < options.pairs and len(tally.differences) < DIFFERENCES_MAX
                   and time.monotonic() < deadline):
                one = Round(server, options.seed, number, options.foreign)
                one.run(tally, min(PAIRS_A_ROUND, options.pairs - tally.pairs), deadline)
                number += 1
                print(f"round {number} ({one.situation}): {tally.pairs} pairs, {len(tally.differences)} differences, "
                      f"{100 * tally.batched / max(1, tally.pairs):.1f}% batched", flush=True)
            if source is None:
                try_cursors(tally, server, options.seed)
        except comparison.ServerLost:
            pass
        crashes = server.crashes()
    for line in crashes:
        print(f"server log: {line}")
    print(tally.closing_lines(options.seed, started))
    few = tally.batched < BATCHED_SHARE_MIN * tally.pairs
    if few:
        print(f"too few queries were batched: at least {100 * BATCHED_SHARE_MIN:.0f}% have to be")
    if tally.invalid:
        print(f"{tally.invalid} queries were not valid SQL; the generator should not write such")
    return 1 if tally.failed() or crashes or few else 0


if __name__ == "__main__":
    prerequisites.inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential import column_types, comparison, cursors, minimiser, queries, tables
    run_check(main)
