"""Durable flows on a store, in workers."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap

import programs
import pytest

import gristmill
from gristmill.testing import Clock, run_flow, temporary_store

studio = gristmill.App("studio.db", durable=False)


@studio.job(retries=0)
def double(number: int) -> int:
    return 2 * number


@studio.batch(size=1000, wait="50ms")
def sizes(texts: list[str]) -> list[list[int]]:
    return [[len(text), len(texts)] for text in texts]


@studio.job(retries=0)
def fail(message: str) -> None:
    raise ValueError(message)


@studio.flow(version="1", retries=0)
async def chain(flow, number: int) -> list:
    one = await flow.step(double, number)
    size = await flow.step(sizes, "x" * one)
    return [one, size, await flow.step(double, one), flow.id == gristmill.job().id, flow.version]


@studio.flow(retries=0)
async def approved(flow, number: int):
    first = await flow.first(flow.event("approve"), flow.sleep("2d"))
    try:
        late = await flow.event("late", timeout="1h")
    except TimeoutError:
        late = "nobody"
    return [first.name, first.value, late]


@studio.flow(retries=0)
async def failing(flow, is_caught: bool):
    try:
        await flow.step(fail, "no", key="k")
    except gristmill.StepFailed as failed:
        if is_caught:
            return [failed.step, failed.key, failed.state, failed.type, failed.message, "raise ValueError" in failed.job_traceback]
        raise


@studio.flow(retries=0)
def plain_parent(flow, number: int):
    children = [flow.step(chain, number), flow.step(chain, number + 1)]
    return [child.result()[0] for child in children] + flow.map(double, [1, 2]).result()


@studio.flow(retries=0)
async def leaving(flow):
    # The loser stays open, and ends with the flow.
    await flow.first(flow.step(double, 1), flow.step("nobody runs this", None))
    return "left"


@studio.flow(retries=1, retry_delay=0)
async def stumbling(flow):
    await flow.step(double, 1)
    if gristmill.job().attempt == 1:
        raise RuntimeError("stumbles")
    return await flow.step(double, 2)


@studio.job(retries=0)
def charge(number: int) -> str:
    return gristmill.job().id


@studio.flow(version="1", retries=0)
async def charged(flow, number: int):
    doubled = await flow.step(double, number)
    drawn = flow.random()
    await flow.first(flow.event("approve"), flow.map(double, [1, 2], key="pair"))
    return [doubled, drawn, await flow.step(charge, doubled)]


@studio.job(retries=0)
def place(number: int) -> list:
    flow = gristmill.job().flow
    return [flow.id, flow.name, flow.version, flow.step, flow.key, flow.item]


@studio.flow(version="2", retries=0)
async def placed(flow, number: int) -> list:
    mapped = await flow.map(place, [1, 2], name="all")
    return [flow.id, await flow.step(place, number, key="k"), mapped, gristmill.job().flow is None]


@studio.job(retries=0)
def large(count: int) -> str:
    return "x" * count


@studio.job(retries=0)
def gathered(which: int) -> list:
    outcomes = gristmill.job().prerequisites
    # What a job does with them is its own.
    outcomes.append(which)
    return [outcome["value"] for outcome in outcomes[:-1]]


@studio.flow(retries=0)
async def countdown(flow, number: int):
    await flow.first(flow.step(double, number), flow.step("nobody runs this", None))
    if number:
        flow.continue_with(number - 1)
    return [flow.continued, await flow.event("last"), flow.id]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def app(clock):
    with temporary_store(studio, clock) as app:
        yield app


def test_the_same_step_of_many_instances_is_one_batch(app):
    handles = chain.submit_many(range(100))
    app.drain()
    results = handles.results()
    assert [result[0] for result in results] == [2 * number for number in range(100)]
    assert all(result[3:] == [True, "1"] for result in results)
    # A hundred calls of one item each are what batches save.
    assert max(size for _, (_, size), *_ in results) >= 10
    assert len({row.id.partition(":")[0] for row in app.find(job=sizes)}) <= 50


def test_flows_with_keys_are_submitted_once(app):
    handles = approved.submit_many([1, 2], key=lambda number: f"order {number}")
    app.drain()
    again = approved.submit_many([2, 3], key=lambda number: f"order {number}")
    assert again[0] == handles[1] and again[1] not in handles
    assert app.send_events([("key=order 2", "approve", 1), ("key=order 3", "approve", 2)]) == ["delivered", "kept"]


def test_events_and_time(app, clock):
    waits, early = approved.submit(1), approved.submit(2)
    assert early.send_event("approve", {"by": "Ada"}) and early.send_event("late", 3)
    app.drain()
    assert early.result() == ["approve", {"by": "Ada"}, 3] and waits.state() == "blocked"
    assert not early.send_event("approve")
    clock.advance("1d")
    assert app.drain() == 0
    clock.advance("1d")
    app.drain()
    assert waits.state() == "blocked"
    clock.advance("1h")
    app.drain()
    assert waits.result() == ["sleep", None, "nobody"]
    with pytest.raises(gristmill.StoreError, match="does not exist"):
        app.send_event("99:0", "approve")
    with pytest.raises(gristmill.StoreError, match="not a job id"):
        app.send_event("flow", "approve")


def test_flows_are_listed_with_what_they_wait_for(app):
    waits, other = approved.submit(1), chain.submit(2)
    app.drain()
    assert other.state() == "completed"
    [row] = app.flows(states="blocked")
    assert (row.job.id, row.name, row.version) == (waits.id, "approved", None)
    assert [(step.number, step.event, step.kind) for step in row.awaited] == [
        (0, "approve", row.awaited[0].kind),
        (1, None, row.awaited[1].kind),
    ]
    assert row.awaited[1].until is not None
    assert [(kind.kind, kind.states["completed"], kind.has_worker) for kind in app.flow_kinds("chain")] == [("chain@1", 1, False)]
    assert [kind.name for kind in app.flow_kinds(no_worker=True)] == ["approved", "chain"]
    assert list(app.flows("chain", queue="other")) == app.flow_kinds(queue="other") == []
    steps = list(app.steps(other))
    assert [(step.number, step.name, step.state, step.attempt) for step in steps] == [
        (0, "double", "completed", 1),
        (1, "sizes", "completed", 1),
        (2, "double", "completed", 1),
    ]
    assert [step.number for step in app.steps(other, limit=2)] == [0, 1]
    with pytest.raises(gristmill.StoreError, match="does not exist"):
        list(app.steps("99:0"))


def test_a_step_knows_its_flow(app):
    handles = placed.submit_many([1, 2])
    app.drain()
    for handle, result in zip(handles, handles.results()):
        flow = [handle.id, "placed", "2"]
        assert result == [handle.id, [*flow, "place", "k", None], [[*flow, "all", None, 0], [*flow, "all", None, 1]], True]
    assert run_flow(placed, 1)[1] == ["1:0", "placed", "2", "place", "k", None]


def test_a_job_reads_the_outcomes_of_its_prerequisites(app):
    numbers, one = double.submit_many(range(3)), double.submit(21)
    waits = gathered.submit_many([1, 2], after=[one, numbers])
    none = gathered.submit(3)
    assert waits[0].state() == "blocked"
    app.drain()
    assert waits.results() == [[42, 0, 2, 4]] * 2 and none.result() == []


def test_too_many_bytes_of_prerequisites_are_an_error_of_the_job(app):
    waits = gathered.submit(1, after=large.submit_many([9 << 20] * 2))
    app.drain()
    with pytest.raises(gristmill.JobFailed, match="more than 16777216 bytes .PREREQUISITES_BYTES_MAX."):
        waits.result()


def test_failures_are_those_of_the_steps_job(app):
    caught, uncaught = failing.submit(True), failing.submit(False)
    app.drain()
    assert caught.result() == ["fail", "k", "dead", "ValueError", "no", True]
    with pytest.raises(gristmill.JobFailed, match="StepFailed: step fail .key 'k'., job") as raised:
        uncaught.result()
    assert "await flow.step(fail" in raised.value.job_traceback and "_flow" not in raised.value.job_traceback


def test_child_flows_and_plain_ones(app):
    handle = plain_parent.submit(3)
    app.drain()
    assert handle.result() == [6, 8, 2, 4]


def test_open_steps_end_with_the_flow(app):
    handle = leaving.submit()
    app.drain()
    assert handle.result() == "left"
    [row] = app.find(job="nobody runs this")
    assert row.state == "cancelled"


def test_a_failed_run_is_tried_again_with_its_memo(app):
    handle = stumbling.submit()
    app.drain()
    assert handle.result() == 4
    assert app.counts(job=double)["completed"] == 2


def test_a_loop_keeps_its_last_round(app):
    handles = countdown.submit_many([3, 5])
    assert handles[0].send_event("last", "kept")
    app.drain()
    assert handles[0].result() == [3, "kept", handles[0].id] and handles[1].state() == "blocked"
    # The losers of all rounds are cancelled.
    assert app.counts(job="nobody runs this")["blocked"] + app.counts(job="nobody runs this")["waiting"] == 0
    assert handles[1].send_event("last", None)
    app.drain()
    assert handles[1].result() == [5, None, handles[1].id]
    assert app.counts(job="nobody runs this")["cancelled"] == 10


def test_ended_flows_are_forked(app, clock):
    handles = charged.submit_many(range(30))
    with pytest.raises(gristmill.ForkRefused, match=r"flow 1:0 is not forked: it has not ended \(waiting\)"):
        handles[0].fork("charge")
    app.drain()
    before = handles.results()
    fork = handles[3].fork("charge")
    app.drain()
    value, drawn, charged_by = fork.result()
    # What was before the step is kept; the step ran again.
    assert [value, drawn] == before[3][:2] and charged_by != before[3][2]
    with pytest.raises(gristmill.ForkRefused, match="it has no step `refund`; its steps are double, double .key pair., charge"):
        fork.fork("refund")
    again = app.fork_flows(0, *handles, version="2")
    assert [flow for flow, _ in again] == [handle.id for handle in handles]
    assert len({fork.partition(":")[0] for _, fork in again}) == 1
    assert [row.kind for row in app.find(job="charged@2")] == ["charged@2"] * 30
    assert len(app.fork_flows("charge", states="completed", job=charged)) == 31
    [(_, unknown)] = app.fork_flows("charge", double.submit(1))
    assert isinstance(unknown, gristmill.ForkRefused) and "has not ended" in str(unknown)
    [(_, unknown)] = app.fork_flows("charge", "999:0")
    assert isinstance(unknown, gristmill.ForkRefused) and "999:0 is not forked: it does not exist" in str(unknown)
    with pytest.raises(ValueError, match="either flows or conditions"):
        app.fork_flows("charge")


def test_new_code_goes_on_with_instances_of_an_older_version(tmp_path):
    before, after = (gristmill.App(tmp_path / "jobs.db", durable=False) for _ in range(2))

    for app in (before, after):
        app.job(name="double")(double.function)

    @before.flow(name="order", version="1")
    async def first(flow, number: int):
        return [await flow.step("double", number), await flow.event("go")]

    handles = first.submit_many([1, 2, 3])
    before.drain()
    with pytest.raises(ValueError, match="give it a version of its own"):
        after.flow(first.function, name="order", version="1", upgrades="1")

    @after.flow(name="order", version="2", upgrades=["1"])
    async def second(flow, number: int):
        changed = number if flow.version == "1" or number != 2 else 7
        doubled = await flow.step("double", changed)
        return [doubled, await flow.event("go"), await flow.step("double", doubled, key="again"), flow.version]

    @after.flow(name="order", version="3")
    async def wrong(flow, number: int):
        return await flow.step("double", number + (number == 2))

    assert after.jobs["order@1"].check() == (3, [])
    count, differences = wrong.check(version="1")
    assert (count, [one.flow for one in differences]) == (3, ["1:0", "1:1", "1:2"])
    assert differences[0].problem == "it ends, where it waited" and differences[0].unused == ["@go"]
    assert "step double, number 1 of its name, of flow order@3 had arguments of the hash" in differences[1].problem
    assert [one.flow for one in wrong.check(handles[1]).differences] == ["1:1"]
    for handle in handles:
        handle.send_event("go", "!")
    after.drain()
    assert handles.results() == [[2, "!", 4, "1"], [4, "!", 8, "1"], [6, "!", 12, "1"]]
    before.close()
    after.close()


def test_a_cancelled_flow_cancels_its_steps(app):
    handle = approved.submit(1)
    app.drain()
    assert handle.cancel()
    assert app.counts()["blocked"] == 0 and not handle.send_event("approve")


def test_random_programs_give_what_the_reference_gives(clock):
    rng = random.Random(int(os.environ.get("FLOW_SEED", 1)))
    made = [programs.random_program(rng) for _ in range(60)]
    with temporary_store(programs.app, clock) as app:
        handles = programs.interpreter.submit_many(made)
        for _ in range(600):
            app.drain(concurrency=2)
            if not app.counts()["blocked"]:
                break
            clock.advance("1s")
        results = handles.results(timeout=1)
    assert results == [json.loads(json.dumps(run_flow(programs.interpreter, program))) for program in made]


WORKER = """
    import os, sys, time
    import gristmill

    app = gristmill.App("killed.db")

    @app.job
    def note(name: str) -> str:
        with open("notes", "a") as notes:
            print(name, file=notes)
        return name

    @app.flow
    async def several(flow, number: int) -> list:
        one = await flow.step(note, f"{number} one")
        two = await flow.map(note, [f"{number} two", f"{number} three"])
        waited = await flow.event("go")
        return [one, *two, waited, await flow.step(note, f"{number} four")]

    if __name__ == "__main__":
        app.work(1, until="empty" if sys.argv[1:] else "stopped")
"""


def test_a_killed_worker_loses_nothing_and_repeats_no_finished_step(tmp_path, monkeypatch):
    (tmp_path / "killed.py").write_text(textwrap.dedent(WORKER))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import killed

    handles = killed.several.submit_many(range(20))
    worker = subprocess.Popen([sys.executable, "killed.py"], start_new_session=True)
    try:
        # Once all have come to wait for the event.
        for handle in handles:
            assert killed.app.engine().wait_job(handle.batch, handle.position, 0) is None
        for row in wait_for_rows(killed.app, 20):
            assert row.state == "blocked"
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    for number, handle in enumerate(handles):
        assert handle.send_event("go", number)
    killed.app.work(1, until="empty")
    assert handles.results(timeout=60) == [[f"{n} one", f"{n} two", f"{n} three", n, f"{n} four"] for n in range(20)]
    notes = (tmp_path / "notes").read_text().splitlines()
    assert len(notes) == len(set(notes)) == 80
    killed.app.close()
    del sys.modules["killed"]


def wait_for_rows(app, count):
    """The waits for the event, once there are so many."""
    with app.events(timeout=30) as events:
        while True:
            rows = list(app.find(job="gristmill.event"))
            if len(rows) >= count:
                return rows
            next(events)
