"""Flows in Gristmill: `gristmill_flows.py WORK COUNT STEPS STORE PROCESSES`. Prints figures as JSON.

The works: `many` flows of steps that do nothing; `one` flow after the other, with the time between the beginnings of its steps; `calls`
of 50 ms that take 100 items for the same price; `fanout` of one flow to many children; `events` to flows, while many others wait.
"""

import json
import os
import sys
import time
from pathlib import Path

import gristmill

CALL_S, CALL_ITEMS = 0.05, 100
EVENTS = 200
# How long flows may take, in seconds.
PATIENCE_S = 600

app = gristmill.App(sys.argv[4])


@app.job
def step(number: int) -> int:
    return number


@app.job
def moment(number: int) -> float:
    return time.monotonic()


@app.batch(size=CALL_ITEMS)
def call(numbers: list[int]) -> list[int]:
    time.sleep(CALL_S)
    return numbers


@app.flow
async def flow(flow, number: int, steps: int) -> int:
    for _ in range(steps):
        number = await flow.step(step, number)
    return number


@app.flow
async def moments(flow, steps: int) -> list:
    return [await flow.step(moment, number) for number in range(steps)]


@app.flow
async def calling(flow, number: int) -> int:
    return await flow.step(call, number)


@app.flow
async def fanned_out(flow, count: int) -> int:
    return sum(await flow.map(step, range(count)))


@app.flow
async def awaiting(flow, number: int) -> float:
    await flow.event("go")
    return time.monotonic()


def stored_bytes() -> int:
    """Bytes of the store, as a file or a database."""
    store = sys.argv[4]
    if "://" not in store:
        return sum(file.stat().st_size for file in Path(store).parent.glob(Path(store).name + "*"))
    import psycopg

    with psycopg.connect(store) as connection:
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def many(flows: int, steps: int, processes: int) -> dict:
    flow.submit(0, steps)
    app.work(processes, until="empty")
    before = stored_bytes()
    began = time.monotonic()
    handles = flow.submit_many([(number, steps) for number in range(flows)], starmap=True)
    app.work(processes, until="empty")
    seconds = time.monotonic() - began
    assert [handles[place].result(timeout=10) for place in (0, flows - 1)] == [0, flows - 1]
    return {"steps": flows * steps, "seconds": seconds, "bytes": stored_bytes() - before}


def one(flows: int, steps: int, processes: int) -> dict:
    spans = []
    with app.worker(processes):
        moments.submit(2).result(timeout=PATIENCE_S)
        for _ in range(flows):
            times = moments.submit(steps).result(timeout=PATIENCE_S)
            spans += [after - before for before, after in zip(times, times[1:])]
    return {"spans": spans}


def calls(flows: int, steps: int, processes: int) -> dict:
    with app.worker(processes):
        calling.submit(0).result(timeout=PATIENCE_S)
        began = time.monotonic()
        handles = calling.submit_many(range(flows))
        assert handles.results(timeout=PATIENCE_S) == list(range(flows))
        return {"steps": flows, "seconds": time.monotonic() - began, "bound": -(-flows // CALL_ITEMS) * CALL_S / processes}


def fanout(count: int, steps: int, processes: int) -> dict:
    with app.worker(processes):
        fanned_out.submit(1_000).result(timeout=PATIENCE_S)
        began = time.monotonic()
        assert fanned_out.submit(count).result(timeout=PATIENCE_S) == count * (count - 1) // 2
        return {"steps": count, "seconds": time.monotonic() - began}


def events(waiting: int, steps: int, processes: int) -> dict:
    handles = awaiting.submit_many(range(waiting))
    app.work(processes, until="idle")
    spans = []
    with app.worker(processes):
        # The last ones of all batches, so that no row is special.
        for number in range(EVENTS):
            handle = handles[number * waiting // EVENTS]
            began = time.monotonic()
            assert handle.send_event("go")
            spans.append(handle.result(timeout=PATIENCE_S) - began)
        memory = memory_bytes()
    return {"spans": spans, "memory": memory, "bytes": stored_bytes()}


def memory_bytes() -> int:
    """Bytes of memory of this process, in which the worker runs, and of its descendants. Shared pages count once."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    total = 0
    for process in ours:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


if __name__ == "__main__":
    work = {"many": many, "one": one, "calls": calls, "fanout": fanout, "events": events}[sys.argv[1]]
    print(json.dumps(work(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[5]))))
