#!/usr/bin/env python3
"""Other extensions beside pg_batchexec on one server: the same answers, batched and not, and what each needs of plans.

    make -C extension test-neighbours     on PostgreSQL 18, in a chroot: Debian has all of them for it
    t/neighbours_check.py                 those that Debian has for the server of PG_CONFIG

Each has a database with the tables of neighbours/shop.sql, on which the queries of that file run, and with what its own file in
that folder makes and asks. All libraries are loaded, with pg_batchexec named first, and then last; that of TimescaleDB on a server of its
own, as an INSERT of several chunks with pg_show_plans beside it ends the server, without pg_batchexec as well.
"""

import json
import re
import subprocess
from dataclasses import dataclass

from prerequisites import (CHECKS_DIRECTORY, LIBRARY_NAME, PSYCOPG_REQUIREMENT, debian_packages, inside_python_environment,
                           postgres_major, run_check)
from server import Server, default_pg_config, stop_on_signals

FOLDER = CHECKS_DIRECTORY / "neighbours"
QUERIES_MARK = "-- Queries\n"
# Errors that say that a query is none.
INVALID_CLASSES = ("42", "0A", "3F")
SETTINGS = {
    "shared_buffers": "128MB", "max_worker_processes": "20", "compute_query_id": "on", "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on", "auto_explain.log_format": "json", "pgaudit.log": "read", "timescaledb.telemetry_level": "off",
    "timescaledb.max_background_workers": "0", "pg_qualstats.sample_rate": "1", "log_destination": "stderr",
}


@dataclass(frozen=True)
class Neighbour:
    """An extension, and the Debian package that brings it; without one, contrib does. `library` has to be loaded with the server."""
    name: str
    package: str = ""
    library: str = ""
    extension: str = ""
    stands_apart: bool = False

    @property
    def creates(self) -> str:
        return "" if self.extension == "none" else f"create extension {self.extension or self.name} cascade"


NEIGHBOURS = (
    Neighbour("pg_hint_plan", "pg-hint-plan", library="pg_hint_plan"),
    Neighbour("pg_stat_statements", library="pg_stat_statements"),
    Neighbour("auto_explain", library="auto_explain", extension="none"),
    Neighbour("pg_qualstats", "pg-qualstats", library="pg_qualstats"),
    Neighbour("pg_stat_kcache", "pg-stat-kcache", library="pg_stat_kcache"),
    Neighbour("pg_show_plans", "show-plans", library="pg_show_plans"),
    Neighbour("pgaudit", "pgaudit", library="pgaudit"),
    Neighbour("timescaledb", "timescaledb", library="timescaledb", stands_apart=True),
    Neighbour("age", "age", library="age"),
    Neighbour("postgis", "postgis-3"),
    Neighbour("vector", "pgvector"),
    Neighbour("pg_trgm"),
    Neighbour("pg_ivm", "pg-ivm", library="pg_ivm"),
    Neighbour("hypopg", "hypopg"),
    Neighbour("orafce", "orafce"),
    Neighbour("pg_partman", "partman", extension="none"),
)


def parts(name: str) -> tuple:
    """The statements that prepare a database, and the queries, of a file of the folder; none where there is no file."""
    file = FOLDER / f"{name}.sql"
    if not file.exists():
        return [], []
    before, queries = file.read_text().split(QUERIES_MARK)
    return tuple([part.strip() for part in text.split(";\n") if part.strip()] for text in (before, queries))


def available(pg_config: str) -> list:
    """The neighbours that can be had for this server; their packages are installed."""
    major = postgres_major(pg_config)
    found = []
    for neighbour in NEIGHBOURS:
        package = f"postgresql-{major}-{neighbour.package}"
        if neighbour.package and subprocess.run(["apt-cache", "show", package], capture_output=True).returncode != 0:
            print(f"{neighbour.name}: there is no package {package}; left out")
            continue
        if neighbour.package:
            debian_packages(package)
        found.append(neighbour)
    return found


class Check:
    """What has passed, and what has not."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def expect(self, holds: bool, complaint: str) -> None:
        self.passed += holds
        self.failed += not holds
        if not holds:
            print(f"FAILED {complaint}", flush=True)

    def compare(self, session, neighbour: str, query: str) -> bool:
        """Run a query batched and as stock; whether its plan had a batched node."""
        answers = []
        for mode in ("forbid", "prefer"):
            session.must(f"set batchexec.mode = '{mode}'")
            kind, value = session.run(query)
            answers.append((kind, sorted(map(repr, value)) if kind == "rows" else value))
        is_valid = answers[0][0] != "error" or answers[0][1][:2] not in INVALID_CLASSES
        self.expect(is_valid and answers[0] == answers[1],
                    f"{neighbour}: {query}\n    stock {str(answers[0])[:200]}\n    batched {str(answers[1])[:200]}")
        return "Custom Scan (Batch" in plan_of(session, query)


def plan_of(session, query: str) -> str:
    hint, _, rest = query.rpartition("*/")
    kind, rows = session.run(f"{hint}*/ explain (costs off) {rest}" if hint else f"explain (costs off) {query}")
    return b"\n".join(row[0] for row in rows).decode() if kind == "rows" else ""


def check_database(check: Check, server: Server, neighbour: Neighbour, session_of) -> None:
    server.psql(f"create database {neighbour.name} template template0 locale 'C' encoding 'UTF8'")
    session = session_of(server.conninfo(neighbour.name))
    if neighbour.creates:
        session.must(neighbour.creates)
    shop, queries = parts("shop")
    own, more = parts(neighbour.name)
    for statement in (*shop, *own):
        session.must(statement)
    batched = sum(check.compare(session, neighbour.name, query) for query in (*queries, *more))
    print(f"{neighbour.name}: {len(queries) + len(more)} queries, {batched} batched", flush=True)
    session.must("set batchexec.mode = 'allow'")
    NEEDS.get(neighbour.name, lambda *_: None)(check, server, session)
    session.connection.finish()


def check_hints(check: Check, server: Server, session) -> None:
    """A hint decides how a table is read, under a batched aggregate as well."""
    del server
    for hint, wanted in (("IndexScan(orders)", "Index Scan using"), ("IndexOnlyScan(orders)", "Index Only Scan using"),
                         ("BitmapScan(orders)", "Bitmap Heap Scan|Bitmap Index Scan"), ("NoSeqScan(orders)", "Index"),
                         ("SeqScan(orders)", "Batched Table: orders"), ("Set(batchexec.enabled off)", "^(?!.*Batch)")):
        plan = plan_of(session, f"/*+ {hint} */ select count(*) from orders where id > 0")
        check.expect(re.search(wanted, plan, re.S) is not None, f"hint {hint}:\n{plan}")


def check_statements(check: Check, server: Server, session) -> None:
    """Rows and calls are counted for batched statements."""
    del server
    session.must("select pg_stat_statements_reset()")
    for _ in range(3):
        session.must("select state, count(*) from orders group by state")
    found = session.must("select calls, rows from pg_stat_statements where query like 'select state, count(*)%'")
    check.expect(found == [(b"3", b"12")], f"pg_stat_statements: {found}")


def check_explained(check: Check, server: Server, session) -> None:
    """The log's plans are JSON that names the table where plan viewers look for it."""
    session.must("select /* logged plan */ state, count(*) from orders group by state")
    log = server.log.read_text(errors="replace")
    text = log[log.rindex("plan:\n", 0, log.rindex("logged plan")) + len("plan:\n"):]
    plan, _ = json.JSONDecoder().raw_decode(text.lstrip())
    node = plan["Plan"]
    check.expect(node.get("Custom Plan Provider") == "BatchAgg" and node.get("Relation Name") == "orders"
                 and node.get("Alias") == "orders" and node.get("Batches", 0) > 0, f"auto_explain: {json.dumps(node)[:400]}")


def check_chunks(check: Check, server: Server, session) -> None:
    """Where TimescaleDB's own node reads the chunks, EXPLAIN says so."""
    del server
    plan = plan_of(session, "select device, value from readings where at > now() - interval '30 years' and value > 103")
    if "Custom Scan (ChunkAppend)" in plan:
        check.expect("Not Batched: scans below ChunkAppend" in plan, f"timescaledb:\n{plan}")


NEEDS = {"pg_hint_plan": check_hints, "pg_stat_statements": check_statements, "auto_explain": check_explained,
         "timescaledb": check_chunks}


def check_together(check: Check, neighbours: list, pg_config: str, session_of) -> None:
    libraries = [neighbour.library for neighbour in neighbours if neighbour.library]
    # pg_stat_kcache asks for it to be loaded before.
    libraries.sort(key=lambda library: library != "pg_stat_statements")
    for preload in ([LIBRARY_NAME, *libraries], [*libraries, LIBRARY_NAME]):
        print(f"== {', '.join(preload)}", flush=True)
        with Server(preload=preload, settings=SETTINGS, pg_config=pg_config) as server:
            for neighbour in neighbours:
                check_database(check, server, neighbour, session_of)
            for line in server.crashes():
                check.expect(False, f"server log: {line}")
            asks = "loaded after other libraries" in server.log.read_text(errors="replace")
            # TimescaleDB's loader plans nothing itself.
            matters = preload[0] not in (LIBRARY_NAME, "timescaledb")
            check.expect(asks == matters, "the log asks for another order where that matters")


def main() -> int:
    inside_python_environment(PSYCOPG_REQUIREMENT)
    from differential.comparison import Session

    stop_on_signals()
    pg_config = default_pg_config()
    neighbours = available(pg_config)
    check = Check()
    for apart in (False, True):
        check_together(check, [neighbour for neighbour in neighbours if neighbour.stands_apart == apart], pg_config, Session)
    print(f"{check.passed} passed, {check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    run_check(main)
