"""Flows in Absurd: `absurd_flows.py WORK COUNT STEPS URL TOGETHER`. Prints figures as JSON. The works are those of gristmill_flows.py."""

import json
import sys
import threading
import time

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

CALL_S = 0.05
PATIENCE_S = 600

work, count, steps, url, together = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
with psycopg.connect(url, autocommit=True) as connection:
    connection.execute(BUNDLED_SCHEMA_SQL)
client = Absurd(url)
client.create_queue("default")
# Each thread has a worker with a connection of its own.
workers = [Absurd(url) for _ in range(together)]


def flow(params, context):
    number = params["number"]
    for place in range(params["steps"]):
        number = context.step(f"step {place}", lambda: number)
    return number


def moments(params, context):
    return [context.step(f"step {place}", time.monotonic) for place in range(params["steps"])]


def calling(params, context):
    def call():
        time.sleep(CALL_S)
        return params["number"]

    return context.step("call", call)


for one_worker in (client, *workers):
    for function in (flow, moments, calling):
        one_worker.register_task(name=function.__name__)(function)


def run(name, parameters):
    """Runs flows to their ends, by all workers. Their ids."""
    ids = [client.spawn(name, one)["task_id"] for one in parameters]
    threads = [threading.Thread(target=worker.start_worker, kwargs={"batch_size": 10, "poll_interval": 0.005}) for worker in workers]
    for thread in threads:
        thread.start()
    until = time.monotonic() + PATIENCE_S
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            left = "SELECT count(*) FROM absurd.t_default WHERE state NOT IN ('completed', 'failed', 'cancelled')"
            while connection.execute(left).fetchone()[0]:
                assert time.monotonic() < until, "the flows do not end"
                time.sleep(0.005)
    finally:
        for worker in workers:
            worker.stop_worker()
        for thread in threads:
            thread.join()
    return ids


def results(ids):
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT task_id::text, state, completed_payload FROM absurd.t_default").fetchall()
    by_id = {id: (state, value) for id, state, value in rows}
    ended = [by_id[str(id)] for id in ids]
    assert all(state == "completed" for state, _ in ended), ended[:3]
    return [value for _, value in ended]


def stored_bytes():
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def many():
    run("flow", [{"number": 0, "steps": steps}])
    before = stored_bytes()
    began = time.monotonic()
    ids = run("flow", [{"number": number, "steps": steps} for number in range(count)])
    seconds = time.monotonic() - began
    assert results(ids) == list(range(count))
    return {"steps": count * steps, "seconds": seconds, "bytes": stored_bytes() - before}


def one():
    spans = []
    for _ in range(count):
        [times] = results(run("moments", [{"steps": steps}]))
        spans += [after - before for before, after in zip(times, times[1:])]
    return {"spans": spans}


def calls():
    run("calling", [{"number": 0}])
    began = time.monotonic()
    ids = run("calling", [{"number": number} for number in range(count)])
    seconds = time.monotonic() - began
    assert results(ids) == list(range(count))
    return {"steps": count, "seconds": seconds}


print(json.dumps({"many": many, "one": one, "calls": calls}[work]()))
