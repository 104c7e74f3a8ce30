"""New code goes on with instances of older versions that it fits, and the others are held."""

import json
import os
import subprocess
import sys

import pytest

import gristmill


def double(number: int) -> int:
    return 2 * number


def test_an_upgrade_holds_the_instances_that_the_new_code_does_not_fit(tmp_path):
    before, wrong, right = (gristmill.App(tmp_path / "jobs.db", durable=False) for _ in range(3))
    for app in (before, wrong, right):
        app.job(double)

    @before.flow(name="order", version="1")
    async def first(flow, number: int):
        return [await flow.step("double", number), await flow.event("go")]

    handles = first.submit_many([1, 2, 3])
    before.drain()

    @wrong.flow(name="order", version="2", upgrades=["1"])
    async def second(flow, number: int):
        doubled = await flow.step("double", number + (number == 2))
        return [doubled, await flow.event("go"), "new"]

    @right.flow(name="order", version="2", upgrades=["1"])
    async def third(flow, number: int):
        return [await flow.step("double", number), await flow.event("go"), "right"]

    def states():
        return [handle.state() for handle in handles]

    told = second.upgrade(version="1", dry_run=True)
    assert (told.instances, [one.flow for one in told.differences], told.running) == (3, ["1:1"], [])
    assert states() == ["blocked"] * 3
    told = second.upgrade(version="1")
    assert (told.instances, [one.flow for one in told.differences], told.running) == (3, ["1:1"], [])
    assert "step double, number 1 of its name, of flow order@1 had arguments of the hash" in told.differences[0].problem
    assert states() == ["blocked", "paused", "blocked"]
    # An event wakes those that go on. The one that is held keeps it, and no worker runs it.
    for handle in handles[:2]:
        handle.send_event("go", "!")
    wrong.drain()
    assert states() == ["completed", "paused", "blocked"] and handles[0].result() == [2, "!", "new"]
    # The code that fits goes on with it.
    assert third.upgrade(handles[1], version="1") == (1, [], [])
    right.drain()
    assert states() == ["completed", "completed", "blocked"] and handles[1].result() == [4, "!", "right"]
    # An upgrade that ended in its midst has left all paused.
    right.pause_jobs("flow upgrade", job="order@1")
    assert third.upgrade(version="1") == (1, [], []) and states()[2] == "blocked"

    with pytest.raises(ValueError, match=r"does not go on with the instances of 'order@3': define it with upgrades=\['3'\]"):
        third.upgrade(version="3")
    with pytest.raises(ValueError, match="flow 9:0 does not exist: name instances of 'order@1'"):
        third.upgrade("9:0", version="1")
    other = right.jobs["double"].submit(1)
    with pytest.raises(ValueError, match=f"flow {other.id} is one of 'double': name instances of 'order@1'"):
        third.upgrade(handles[2], other, version="1")
    assert states()[2] == "blocked" and other.state() == "waiting"
    for app in (before, wrong, right):
        app.close()


def test_an_upgrade_waits_for_runs_and_holds_those_that_do_not_end(tmp_path, monkeypatch):
    from gristmill._flow import upgrade

    app = gristmill.App(tmp_path / "jobs.db", durable=False)
    app.job(double)
    told: list[str] = []

    @app.flow(name="order", version="1")
    async def first(flow, number: int):
        return [await flow.step("double", number), await flow.event("go")]

    handles = first.submit_many([1, 2])
    app.drain()
    seen = iter([["1:0", "1:1"], ["1:1"], []])

    class Row:
        def __init__(self, id):
            self.id = id

    find = app.find
    monkeypatch.setattr(
        app, "find", lambda **conditions: map(Row, next(seen)) if conditions["states"] == "running" else find(**conditions)
    )
    monkeypatch.setattr(upgrade, "sleep", lambda seconds: told.append("waits"))
    assert first.upgrade() == (2, [], []) and told == ["waits", "waits"]
    seen = iter([["1:1"]])
    monkeypatch.setattr(upgrade, "RUNS_END_S_MAX", 0.0)
    assert first.upgrade() == (1, [], ["1:1"])
    assert [handle.state() for handle in handles] == ["blocked", "paused"]
    app.close()


def test_an_upgrade_that_fails_holds_all_and_says_so(tmp_path, monkeypatch):
    from gristmill._flow import upgrade

    app = gristmill.App(tmp_path / "jobs.db", durable=False)

    @app.flow(name="order", version="1")
    async def first(flow, number: int):
        return await flow.event("go")

    handles = first.submit_many([1, 2])
    app.drain()
    # A user's pause of nearly the same reason stays.
    app.pause_jobs("upgrade", handles[0])
    cases = [(RuntimeError("no"), upgrade.UpgradeFailed), (SystemExit(1), upgrade.UpgradeFailed), (KeyboardInterrupt(), KeyboardInterrupt)]
    for error, expected in cases:

        def fails(*_, error=error, **named):
            assert handles[1].state() == "paused"
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(upgrade, "replayed", fails)
            with pytest.raises(expected, match='paused by the reason "flow upgrade": call it again'):
                first.upgrade()
        assert [handle.state() for handle in handles] == ["paused", "paused"]
    assert first.upgrade() == (2, [], [])
    assert [handle.state() for handle in handles] == ["paused", "blocked"]
    assert app.resume_jobs("upgrade", handles[0]) == 1

    def forbidden(*_):
        raise gristmill.StoreError("forbidden")

    # A caller who may not read memos pauses nothing.
    with monkeypatch.context() as patch:
        patch.setattr(upgrade, "ask", forbidden)
        with pytest.raises(gristmill.StoreError, match="forbidden"):
            first.upgrade()
    assert [handle.state() for handle in handles] == ["blocked", "blocked"]
    app.close()


def test_an_upgrade_holds_what_it_cannot_verify_and_skips_what_is_gone(tmp_path):
    from gristmill._flow.check import replayed

    before, after, exits = (gristmill.App(tmp_path / "jobs.db", durable=False) for _ in range(3))
    for app in (before, after, exits):
        app.job(double)

    @before.flow(name="order", version="1")
    async def first(flow, number: int):
        return [await flow.step("double", number), await flow.event("go")]

    handles = first.submit_many([1, 2])
    before.drain()

    @after.flow(name="order", version="2", upgrades=["1"])
    async def second(flow, number: int):
        if number == 2:
            flow.local(print, "never")
        doubled = await flow.step("double", number)
        waited = await flow.event("go")
        return [doubled, waited, flow.local(abs, -1)]

    told = second.upgrade(version="1")
    assert [(one.flow, one.problem, one.unused) for one in told.differences] == [
        ("1:1", "it is not verified beyond flow.local print, which a check does not run", ["double", "@go"])
    ]
    assert [handle.state() for handle in handles] == ["blocked", "paused"]
    served = after.jobs["order@1"]
    assert list(replayed(served, ["1:0", "9:0"], skips_deleted=True)) == [[None]]
    with pytest.raises(gristmill.StoreError, match="9:0"):
        list(replayed(served, ["1:0", "9:0"]))

    @exits.flow(name="order", version="2", upgrades=["1"])
    def third(flow, number: int):
        if number == 1:
            raise SystemExit(3)
        flow.random()
        flow.step("double", number).result()
        flow.event("go").result()

    told = third.upgrade(version="1")
    assert [(one.flow, one.problem.partition(",")[0]) for one in told.differences] == [
        ("1:0", "SystemExit: 3"),
        ("1:1", "it is not verified beyond flow.random or flow.uuid"),
    ]
    for app in (before, after, exits):
        app.close()


UPGRADED = """
import os
import gristmill

app = gristmill.App(os.environ["SHOP_STORE"])

@app.job
def double(number):
    return 2 * number

@app.flow(name="order", version="2", upgrades=["1"])
async def order(flow, number):
    doubled = await flow.step(double, number + (number == 2))
    return doubled + await flow.event("go")
"""


def test_flows_are_upgraded_on_the_command_line(app, tmp_path):
    app.job(double)

    @app.flow(name="order", version="1")
    async def order(flow, number):
        return await flow.step("double", number) + await flow.event("go")

    handles = order.submit_many([1, 2])
    app.drain()
    (tmp_path / "upgraded.py").write_text(UPGRADED)
    environment = {"SHOP_STORE": app.store, "PYTHONPATH": str(tmp_path)}

    def upgrade(*arguments):
        program = [sys.executable, "-m", "gristmill", "flow", "upgrade", *arguments]
        ended = subprocess.run(program, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stdout, ended.stderr

    status, output, errors = upgrade("upgraded:app", "order", "--from", "1", "--dry-run")
    assert status == 1 and output.startswith("1:1 FlowError: step double, number 1 of its name, of flow order@1"), errors
    assert errors == "order@1: 1 would go on, 1 would be held\n" and handles[1].state() == "blocked"
    status, output, errors = upgrade("upgraded:app", "order", "--from", "1", "--json")
    held = json.loads(output)
    assert (status, held["flow"], held["unused"]) == (1, "1:1", ["double", "@go"]), errors
    assert errors == "order@1: 1 go on, 1 are held, paused by the reason `flow upgrade`\n"
    assert [handle.state() for handle in handles] == ["blocked", "paused"]
    assert upgrade("upgraded:app", "order", "1:0", "--from", "1")[:2] == (0, "")
    # The command of the help lets one go on as it is.
    assert "gristmill resume JOB --reason 'flow upgrade'" in " ".join(upgrade("--help")[1].split())
    program = [sys.executable, "-m", "gristmill", "resume", "1:1", "--reason", "flow upgrade", "--store", str(app.store)]
    subprocess.run(program, check=True, timeout=60)
    assert handles[1].state() == "blocked"
    for arguments, reason in [
        (["upgraded:app", "order", "--from", "3"], "no flow of the application goes on with 'order@3': name the version in upgrades="),
        (["upgraded:app", "order", "9:0", "--from", "1"], "flow 9:0 does not exist"),
        (["upgraded:app", "order"], "--from"),
        (["nowhere:app", "order", "--from", "1"], "error: there is no module nowhere"),
    ]:
        status, _, errors = upgrade(*arguments)
        assert status == 2 and reason in errors
