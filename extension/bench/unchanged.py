"""What must not change: the extension loaded but off, point selects, pgbench -S and TPC-B.

A session with the library stands against one without it, on the same server and the same buffers.
Sides take turns, and the median decides, for two per cent is close to a machine's noise. pgbench's sides
take each place of a turn equally often: TPC-B slows down as its tables grow, by more than a per cent a turn.
"""

import contextlib
import os
import re
import statistics
from collections import deque

import cases
import measure as timing
import report
from prerequisites import LIBRARY_NAME
from server import Server

PGBENCH_DATABASE = "pgbench"
PGBENCH_SCALE = 10
PGBENCH_SECONDS = 1  # Short turns, many of them: a slow moment of the machine then falls on every side.
PGBENCH_TURNS_A_ROUND = 3
SIDES = {
    "without": "",
    "off": f"-c session_preload_libraries={LIBRARY_NAME} -c batchexec.enabled=off",
    "on": f"-c session_preload_libraries={LIBRARY_NAME} -c batchexec.enabled=on",
}
POINT_SELECT = "\\set key random(1, 100000 * :scale)\nselect * from pgbench_accounts where aid = :key;\n"


def measure(server: Server, table: str, options) -> list:
    """The rows of the table that have to stay within two per cent of stock."""
    rows = []
    if options.only is None or options.only in "unchanged, loaded but off":
        rows += _scan_when_off(server, table, options.rounds)
    if options.only is None or options.only in "unchanged, point selects, pgbench -S, pgbench, TPC-B":
        rows += _pgbench(server, options.rounds)
    return rows


def _scan_when_off(server: Server, table: str, rounds: int) -> list:
    queries = {"sum(a)": f"select sum(a) from {table}", "count(*)": f"select count(*) from {table}"}
    sessions = {}
    for side in ("without", "off"):
        sessions[side] = timing.Session(server.conninfo(options=SIDES[side]))
        sessions[side].count_usage()
        sessions[side].execute("set max_parallel_workers_per_gather = 0; set jit = off")
    rows = []
    for name, sql in queries.items():
        taken = timing.take_turns({side: (lambda session=session: session.time(sql))
                                   for side, session in sessions.items()}, rounds)
        rows.append(report.Row(f"{name}, extension loaded but off", "serial, off", taken["without"],
                               taken["off"], False, 0, 1, cases.UNCHANGED_REACH))
    return rows


def _pgbench(server: Server, rounds: int) -> list:
    server.psql(f"create database {PGBENCH_DATABASE}")
    pgbench = server.binaries / "pgbench"
    _checked(server.command([pgbench, "-i", "-q", "-s", PGBENCH_SCALE, PGBENCH_DATABASE],
                            cwd="/", capture_output=True, text=True))
    script = server.directory / "point_select.sql"
    script.write_text(POINT_SELECT)
    script.chmod(0o644)
    workloads = {"point selects, prepared": ["-n", "-M", "prepared", "-f", script],
                 "pgbench -S": ["-n", "-S"], "pgbench, TPC-B": ["-n"]}
    rows = []
    for name, words in workloads.items():
        rates = {side: [] for side in SIDES}
        with _one_core(server):
            order = deque(SIDES)
            for turn in range(-1, rounds * PGBENCH_TURNS_A_ROUND):
                order.rotate()
                for side in order:
                    done = _checked(server.command(
                        [pgbench, *words, "-T", PGBENCH_SECONDS, PGBENCH_DATABASE], cwd="/",
                        capture_output=True, text=True, extra_environment={"PGOPTIONS": SIDES[side]}))
                    if turn >= 0:
                        rates[side].append(float(re.search(r"tps = ([0-9.]+)", done.stdout)[1]))
        medians = {side: statistics.median(taken) for side, taken in rates.items()}
        for side in ("off", "on"):
            rows.append(report.RateRow(name, f"loaded, {side}", medians["without"], medians[side],
                                       cases.UNCHANGED_REACH))
    return rows


@contextlib.contextmanager
def _one_core(server: Server):
    """Keep pgbench and its backend on one core.

    Left alone, the scheduler puts them now on one core, now on two, and that alone changes the rate
    by a factor of 1.8 from run to run.
    """
    postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    everywhere = os.sched_getaffinity(0)
    here = {max(everywhere)}
    try:
        for process in (postmaster, 0):
            os.sched_setaffinity(process, here)
        yield
    finally:
        for process in (postmaster, 0):
            os.sched_setaffinity(process, everywhere)


def _checked(done):
    if done.returncode != 0:
        raise RuntimeError(f"pgbench: {done.stderr.strip()}")
    return done
