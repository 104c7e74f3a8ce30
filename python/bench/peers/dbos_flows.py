"""Flows in DBOS: `dbos_flows.py WORK COUNT STEPS URL TOGETHER`. Prints figures as JSON. The works are those of gristmill_flows.py."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS

CALL_S = 0.05

work, count, steps, url, together = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
DBOS(config={"name": "flows", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})


@DBOS.step()
def step(number):
    return number


@DBOS.step()
def moment(number):
    return time.monotonic()


@DBOS.step()
def call(number):
    time.sleep(CALL_S)
    return number


@DBOS.workflow()
def flow(number):
    for _ in range(steps):
        number = step(number)
    return number


@DBOS.workflow()
def moments(steps):
    return [moment(number) for number in range(steps)]


@DBOS.workflow()
def calling(number):
    return call(number)


def stored_bytes():
    """Bytes of the store, as a file or a database."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def many():
    flow(0)
    before = stored_bytes()
    began = time.monotonic()
    with ThreadPoolExecutor(together) as pool:
        assert list(pool.map(flow, range(count))) == list(range(count))
    return {"steps": count * steps, "seconds": time.monotonic() - began, "bytes": stored_bytes() - before}


def one():
    moments(2)
    spans = []
    for _ in range(count):
        times = moments(steps)
        spans += [after - before for before, after in zip(times, times[1:])]
    return {"spans": spans}


def calls():
    calling(0)
    began = time.monotonic()
    with ThreadPoolExecutor(together) as pool:
        assert list(pool.map(calling, range(count))) == list(range(count))
    return {"steps": count, "seconds": time.monotonic() - began}


DBOS.launch()
print(json.dumps({"many": many, "one": one, "calls": calls}[work]()))
DBOS.destroy()
