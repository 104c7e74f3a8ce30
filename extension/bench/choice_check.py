#!/usr/bin/env python3
"""The planner's choice: is the plan that it takes about as fast as the better of stock and batched?

    make -C extension test-choice              TPC-H, random joins, pgbench's, the generator's and the regression suite's queries
    bench/choice_check.py --only tpch              one source of queries
    bench/choice_check.py --seed 7                 other queries of the generator
    bench/choice_check.py --only-planning          the planning times alone, in more turns
    bench/choice_check.py --write                  the table in its section of bench/RESULTS.md

Each query runs by turns in four ways: stock, as the planner chooses, with batches wherever they can be, and
with batches in place of all indexes. A choice is good if its CPU time is within 10 % of the least of the four.
The misses are measured once more, in more turns, before they count. Planning time is compared as well.
"""

import argparse
import random
import re
import shlex
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

import random_joins  # noqa: E402
from tpch import data as tpch_data  # noqa: E402
from prerequisites import (LIBRARY_NAME, PSYCOPG_REQUIREMENT, MissingPrerequisite,  # noqa: E402
                           inside_python_environment, postgres_source, run_check)
from server import Server, default_pg_config, stop_on_signals  # noqa: E402

SECTION = "The planner's choice"
SETTINGS = {"shared_buffers": "1GB", "work_mem": "64MB", "max_wal_size": "4GB"}
SESSION = "set max_parallel_workers_per_gather = 0; set jit = off; set batchexec.explain = off"
NO_INDEXES = ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_nestloop", "enable_mergejoin")
WAYS = {
    "stock": "set batchexec.enabled = off",
    "chosen": "reset batchexec.enabled",
    "batched": "reset batchexec.enabled; set batchexec.mode = prefer",
    "batched, no indexes": "reset batchexec.enabled; set batchexec.mode = prefer; "
                           + "; ".join(f"set {name} = off" for name in NO_INDEXES),
}
RESET = "reset batchexec.mode; " + "; ".join(f"reset {name}" for name in NO_INDEXES)

JOINS = 40
QUERIES_GENERATED = 130
GENERATED_A_ROUND = 26
DOUBLINGS = 3           # Of the generator's tables, which have up to 3,000 rows.
REGRESSION_QUERIES_MAX = 140
REGRESSION_FILES = ("select", "aggregates", "join", "subselect", "union", "select_distinct", "groupingsets", "limit", "window")
SEED_DEFAULT = 1
TURNS = 5
TURNS_AGAIN = 25
PLANNING_TURNS = 25
QUERY_SECONDS = 0.5     # Turns of a short query are repeated for so long.
TIMEOUT_MS = 20_000     # A way that takes longer counts as that long.

CHOICE_SLACK = 1.10
CLOCK_SLACK_MS = 0.03   # What one reading of a process's CPU time differs from the next by.
GOOD_SHARE_MIN = 0.98
PLANNING_GROWTH_MAX = 1.03


@dataclass
class Choice:
    """One query's least CPU milliseconds each way, and its planning milliseconds."""
    name: str
    sql: str
    times_ms: dict
    planning_ms: dict
    plans: dict

    @property
    def best_ms(self) -> float:
        return min(self.times_ms.values())

    @property
    def chosen_ms(self) -> float:
        """The least time of the chosen plan: other ways may have led to the same one."""
        return min(self.times_ms[way] for way, plan in self.plans.items() if plan == self.plans["chosen"])

    @property
    def is_good(self) -> bool:
        return self.chosen_ms <= self.best_ms * CHOICE_SLACK + CLOCK_SLACK_MS

    @property
    def is_slower_than_stock(self) -> bool:
        return self.chosen_ms > self.times_ms["stock"] * CHOICE_SLACK + CLOCK_SLACK_MS

    def line(self) -> str:
        times = "  ".join(f"{way} {taken:.2f}" for way, taken in self.times_ms.items())
        return f"{self.name}: {times}\n    {' '.join(self.sql.split())[:300]}"


def measured(session, name: str, sql: str, turns: int) -> Choice:
    """Run the query in turns; the least time of each way, for what comes on top is the machine's noise."""
    times = {way: [] for way in WAYS}
    planning = {way: [] for way in ("stock", "chosen")}
    plans = {}
    started = time.monotonic()
    turn = -1
    ways = list(WAYS.items())
    while turn < turns or (time.monotonic() - started < QUERY_SECONDS and turn < TURNS_AGAIN):
        # What runs behind another plan finds other caches: each way is the first in its turn.
        ways.append(ways.pop(0))
        for way, setting in ways:
            session.execute(setting)
            try:
                taken = session.time(sql).cpu_ms
            except measure.QueryFailed as failed:
                if "statement timeout" not in str(failed):
                    raise
                taken = TIMEOUT_MS
            if turn >= 0:
                times[way].append(taken)
            if turn < 0:
                plans[way] = session.execute(f"explain (costs off) {sql}")
            if way in planning:
                planning[way].append(planning_ms(session, sql))
            session.execute(RESET)
        turn += 1
    return Choice(name, sql, {way: min(taken) for way, taken in times.items()},
                  {way: min(taken) for way, taken in planning.items()}, plans)


def planned(session, name: str, sql: str) -> Choice:
    """Plan the query in turns; the least time of each way."""
    planning = {way: [] for way in ("stock", "chosen")}
    plans = {}
    for _ in range(PLANNING_TURNS):
        for way in planning:
            session.execute(WAYS[way])
            planning[way].append(planning_ms(session, sql))
            plans[way] = session.execute(f"explain (costs off) {sql}")
    return Choice(name, sql, {}, {way: min(taken) for way, taken in planning.items()}, plans)


def planning_ms(session, sql: str) -> float:
    rows = session.execute(f"explain (summary on) {sql}")
    return next(float(found[1]) for row in rows if (found := re.match(r"Planning Time: ([0-9.]+) ms", row[0])))


def fill_tpch(server: Server) -> list:
    tpch_data.load(server, 0.1, "tpch")
    return [(f"TPC-H Q{number}", tpch_data.query(number)) for number in tpch_data.QUERY_NUMBERS]


def fill_joins(server: Server, seed: int) -> list:
    tpch_data.load(server, random_joins.SCALE_FACTOR, "joins")
    for index in random_joins.INDEXES:
        server.psql(f"create index on {index}", "joins")
    rng = random.Random(f"{seed}/joins")
    return [(f"join {number}", random_joins.random_join(rng)) for number in range(JOINS)]


PGBENCH_QUERIES = (
    "select abalance from pgbench_accounts where aid = 4711",
    "select count(*) from pgbench_accounts",
    "select sum(abalance) from pgbench_accounts where bid = 1",
    "select bid, count(*), avg(abalance) from pgbench_accounts group by bid",
    "select count(*) from pgbench_accounts where aid between 1000 and 2000",
    "select sum(abalance) from pgbench_accounts where aid between 1000 and 90000",
    "select b.bid, sum(a.abalance) from pgbench_accounts a join pgbench_branches b using (bid) group by b.bid",
    "select t.tid, count(*) from pgbench_tellers t join pgbench_accounts a on a.aid = t.tid group by t.tid",
    "select * from pgbench_accounts where aid % 1000 = 7 order by abalance, aid limit 10",
    "select max(aid) from pgbench_accounts",
    "select count(*) from pgbench_tellers where tbalance = 0",
    "select a.* from pgbench_accounts a join pgbench_branches b on a.aid = b.bid * 100",
)


def fill_pgbench(server: Server) -> list:
    done = server.command([server.binaries / "pgbench", "-i", "-q", "-s", "3", "pgbench"], cwd="/",
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingPrerequisite(f"pgbench -i failed: {done.stderr.strip()}")
    return [(f"pgbench {number}", sql) for number, sql in enumerate(PGBENCH_QUERIES)]


def fill_generated(server: Server, seed: int) -> list:
    """The generator's tables, some of them indexed, and queries of one statement over these."""
    from differential import column_types, queries, tables
    server.psql("; ".join(column_types.COLLATIONS_SETUP), "generated")
    found = []
    while len(found) < QUERIES_GENERATED:
        batch = len(found) // GENERATED_A_ROUND
        rng = random.Random(f"{seed}/{batch}")
        kinds = [kind for kind in tables.KINDS if kind not in ("temporary", "empty")]
        made = [tables.make_table(rng, f"r{batch}_t{index}", kind) for index, kind in enumerate(rng.sample(kinds, 5))]
        for table in made:
            server.psql(";\n".join(table.setup), "generated")
            server.psql("; ".join([f"insert into {table.name} select * from {table.name}"] * DOUBLINGS), "generated")
            if rng.random() < 0.7:
                server.psql(f"create index on {table.name} (id)", "generated")
        maker = queries.QueryMaker(rng, made, may_write=False)
        taken = 0
        while taken < GENERATED_A_ROUND:
            query = maker.make()
            if query.frame == ["{q}"]:
                found.append((f"generated {len(found)}", query.select()))
                taken += 1
    server.psql("vacuum (analyze)", "generated")
    return found


def fill_regression(server: Server) -> list:
    """The regression suite's tables, and the queries of some of its files over the larger ones."""
    inputs = postgres_source(default_pg_config()) / "src/test/regress"
    for name in ("test_setup", "create_index"):
        server.command([server.binaries / "psql", "-Xq", "-d", "regression", "-f", inputs / f"sql/{name}.sql"], cwd="/",
                       capture_output=True, extra_environment={"PG_ABS_SRCDIR": str(inputs), "PG_LIBDIR": "/",
                                                               "PG_DLSUFFIX": ".so"})
    server.psql("vacuum (analyze)", "regression")
    found = []
    for name in REGRESSION_FILES:
        text = re.sub(r"--.*", "", (inputs / f"sql/{name}.sql").read_text())
        for statement in re.split(r";\s*\n", text):
            statement = statement.strip()
            if (re.match(r"select|with|\(select", statement, re.IGNORECASE) and re.search(r"\b(tenk|onek)", statement)
                    and not re.search(r"\binto\b|for update|\\|^\s*$|:", statement.replace("::", ""), re.IGNORECASE)):
                found.append((f"regression {name} {len(found)}", statement))
    return found


SOURCES = {"tpch": lambda server, _: fill_tpch(server), "joins": fill_joins, "pgbench": lambda server, _: fill_pgbench(server),
           "generated": fill_generated, "regression": lambda server, _: fill_regression(server)}


def runs(session, sql: str) -> bool:
    """Does the query end without an error in each plan, and in time without batches?

    Where an index brings a LIMIT the rows that it needs, others that would raise an error are not looked at.
    """
    for way, setting in WAYS.items():
        session.execute(setting)
        try:
            session.time(sql)
            session.execute(f"explain {sql}")
        except measure.QueryFailed as failed:
            if way == "stock" or "statement timeout" not in str(failed):
                return False
        finally:
            session.execute(RESET)
    return True


def runnable(session, found: list, count_max: int) -> list:
    return [(name, sql) for name, sql in found if runs(session, sql)][:count_max]


def check_source(server: Server, source: str, seed: int, only_planning: bool) -> list:
    server.psql(f"create database {source}")
    found = SOURCES[source](server, seed)
    session = measure.Session(server.conninfo(source))
    session.count_usage()
    session.execute(f"load '{LIBRARY_NAME}'; set statement_timeout = {TIMEOUT_MS}; {SESSION}")
    choices = []
    for name, sql in runnable(session, found, REGRESSION_QUERIES_MAX):
        if only_planning:
            choices.append(planned(session, name, sql))
            continue
        choice = measured(session, name, sql, TURNS)
        if not choice.is_good:
            choice = measured(session, name, sql, TURNS_AGAIN if choice.best_ms < 100 else TURNS)
        choices.append(choice)
        if not choice.is_good:
            print(f"miss: {choice.line()}", flush=True)
    session.connection.finish()
    return choices


def growth_in(choices: list) -> float:
    planning = {way: sum(choice.planning_ms[way] for choice in choices) for way in ("stock", "chosen")}
    return planning["chosen"] / planning["stock"] if choices else 1.0


def planning_growth(name: str, choices: list) -> float:
    growth = growth_in(choices)
    unchanged = [choice for choice in choices if choice.plans["chosen"] == choice.plans["stock"]]
    batched = [choice for choice in choices if choice not in unchanged]
    more_us = sum(choice.planning_ms["chosen"] - choice.planning_ms["stock"] for choice in batched) * 1000
    print(f"{name}: planning time {growth:.3f} of stock's: {growth_in(unchanged):.3f} in {len(unchanged)} queries that stay "
          f"stock's, {growth_in(batched):.3f} in {len(batched)} that are batched: {more_us / max(len(batched), 1):.0f} us each",
          flush=True)
    return growth


def summary(name: str, choices: list) -> tuple:
    """The share of good choices, the growth of planning time, and the row of a table that says so."""
    good = sum(choice.is_good for choice in choices)
    growth = planning_growth(name, choices)
    slower = sum(choice.is_slower_than_stock for choice in choices)
    share = f"{good} of {len(choices)}"
    print(f"{name}: {share} choices within 10 % of the best ({100 * good / len(choices):.1f} %); "
          f"{slower} more than 10 % slower than stock", flush=True)
    return good / len(choices), growth, f"| {name} | {share} ({100 * good / len(choices):.1f} %) | {slower} | {growth:.3f} |"


def results(rows: list, version: str) -> str:
    return "\n".join([
        f"Printed by `bench/choice_check.py {shlex.join(sys.argv[1:])}`. "
        f"{report.machine()}; PostgreSQL {version}; {date.today().isoformat()}. "
        f"Asked: {GOOD_SHARE_MIN:.0%} of the choices, and a planning time of {PLANNING_GROWTH_MAX:.2f}.", "",
        "| queries | within 10 % of the best | more than 10 % slower than stock | planning time, of stock's |",
        "| --- | --- | --- | --- |", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SOURCES, action="append", help="a source of queries; repeat for more")
    parser.add_argument("--seed", type=int, default=SEED_DEFAULT, help="of the generator's queries")
    parser.add_argument("--only-planning", action="store_true", help="measure planning times alone")
    parser.add_argument("--write", action="store_true", help="put the table in bench/RESULTS.md")
    options = parser.parse_args()
    if options.write and options.only_planning:
        parser.error("--write puts the choices in the table, which --only-planning does not measure")
    stop_on_signals()
    server = Server(settings=SETTINGS)
    if not server.library.exists():
        raise MissingPrerequisite(f"{server.library} is not built; run `make -C extension` first")
    choices = []
    rows = []
    with server:
        for source in options.only or SOURCES:
            taken = check_source(server, source, options.seed, options.only_planning)
            if options.only_planning:
                planning_growth(source, taken)
            else:
                rows.append(summary(source, taken)[-1])
            choices += taken
        version = server.psql("show server_version").strip()
        crashes = server.crashes()
    if options.only_planning:
        return 1 if crashes or planning_growth("all", choices) > PLANNING_GROWTH_MAX else 0
    share, growth, row = summary("all", choices)
    if options.write:
        report.write_section(BENCH_DIRECTORY / "RESULTS.md", SECTION, results([*rows, row], version))
    for line in crashes:
        print(f"server log: {line}")
    good = sum(choice.is_good for choice in choices)
    print(f"{good} passed, {len(choices) - good} failed; asked: {GOOD_SHARE_MIN:.0%} and planning time below "
          f"{PLANNING_GROWTH_MAX:.2f} of stock's")
    return 1 if crashes or share < GOOD_SHARE_MIN or growth > PLANNING_GROWTH_MAX else 0


if __name__ == "__main__":
    inside_python_environment(PSYCOPG_REQUIREMENT)
    import measure
    import report
    run_check(main)
