"""Events that a flow's waits get and its code does not read: they go back, once."""

import asyncio
import contextlib
import functools
import json
import sys

import programs
from programs import app, double, instance

from gristmill._flow.loop import run
from gristmill._flow.replay import Suspension
from gristmill.testing import run_flow

defined = functools.partial(programs.defined, app)


def test_events_that_are_not_read_go_back():
    @app.flow(name="raced")
    async def raced(flow):
        first = await flow.first(flow.sleep("1h"), flow.event("go"))
        return [first.name, await flow.event("go")]

    @app.flow(name="raced_plain")
    def plain(flow):
        first = flow.first(flow.sleep("1h"), flow.event("go")).result()
        return [first.name, flow.event("go").result()]

    @app.flow(name="timed")
    async def timed(flow):
        try:
            async with asyncio.timeout(3_600):
                await flow.event("go")
        except asyncio.TimeoutError:
            return ["sleep", await flow.event("go")]

    over, open = {"job": "9:1", "state": "expired"}, {"job": "9:2", "state": "waiting"}
    sent = {"job": "9:2", "state": "completed", "value": "a"}
    flows = [raced, plain, timed] if sys.version_info >= (3, 11) else [raced, plain]
    for flow in flows:

        def go_on(memos, outcomes, flow=flow):
            value = run(flow.program(), flow.is_coroutine, None, memos, outcomes, "9:0")
            return json.loads(value.text) if isinstance(value, Suspension) else value

        memos = [go_on([], [])["memo"][0]]
        # Both have ended when the flow runs, and the sleep wins: the event is for the next wait.
        second = go_on(memos, [over, sent])
        assert second["given_up"] == ["9:2"] and [child["event"] for child in second["children"]] == ["go"]
        memos.append(second["memo"][0])
        # Told again, it is named again where the flow waits on: the store gives it back once.
        again = go_on(memos, [over, sent, {"job": "9:3", "state": "waiting"}])
        assert again["given_up"] == ["9:2"] and not again["children"]
        assert go_on(memos, [over, sent, {"job": "9:3", "state": "completed", "value": "a"}]) == ["sleep", "a"]

    @app.flow(name="raced_anew")
    async def anew(flow):
        await flow.first(flow.sleep("1h"), flow.event("go"), flow.step(double, 1))
        flow.continue_with()

    first = run(anew.program(), True, None, [], [], "9:0")
    for event in (open, sent):
        outcomes = [over, event, {"job": "9:3", "state": "waiting"}]
        again = json.loads(run(anew.program(), True, None, json.loads(first.text)["memo"], outcomes, "9:0").text)
        assert (again["wake"], again["given_up"]) == ("anew", ["9:2"])


def ends(flow, *told, payload=None):
    """What an instance answers, run after run: `told` are the outcomes of the children at each run after the first, in their order."""
    memos, answers = [], []
    for states in ([], *told):
        outcomes = [{"job": f"9:{number}", **state} for number, state in enumerate(states, 1)]
        value = run(flow.program(), flow.is_coroutine, payload, memos, outcomes, "9:0")
        if not isinstance(value, Suspension):
            return [*answers, value]
        answers.append(json.loads(value.text).get("given_up", []))
        memos = [*memos, json.loads(value.text)["memo"][0]]
    return answers


OPEN, OVER = {"state": "waiting"}, {"state": "expired"}


def got(value):
    return {"state": "completed", "value": value}


def test_an_event_goes_back_whichever_run_decides_its_race():
    async def late(flow, payload):
        race = flow.first(flow.sleep("1h"), flow.event("go"))
        await flow.step(double, 1)
        first = await race
        await flow.sleep("1d")
        return first.name

    def plain(flow, payload):
        sleep, go = flow.sleep("1h"), flow.event("go")
        flow.step(double, 1).result()
        first = flow.first(sleep, go).result()
        flow.sleep("1d").result()
        return first.name

    for function in (late, plain):
        told = [[OVER, got("a"), OPEN], [OVER, got("a"), got(2)], [OVER, got("a"), got(2), OVER]]
        answers = ends(defined(function), *told)
        assert answers[2:] == [["9:2"], "sleep"], answers

    async def nested(flow, payload):
        first = await flow.first(flow.sleep("1h"), flow.first(flow.event("go"), flow.event("stop")))
        await flow.sleep("1d")
        return first.name

    def nested_plain(flow, payload):
        first = flow.first(flow.sleep("1h"), flow.first(flow.event("go"), flow.event("stop"))).result()
        flow.sleep("1d").result()
        return first.name

    for function in (nested, nested_plain):
        # Both waits are given up: the one that got an event, and the one that is open.
        assert ends(defined(function), [OVER, got("a"), OPEN])[1] in (["9:2", "9:3"], ["9:3", "9:2"])
        assert ends(defined(function), [OPEN, got("a"), OPEN], [OPEN, got("a"), OPEN, OVER])[1:] == [["9:1", "9:3"], "first"]

    async def gathered(flow, payload):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(flow.event("go"), flow.event("stop")), 60)
        await flow.sleep("1d")

    # The timeout is the third child, or the first where it begins before the events.
    spans = json.loads(run(defined(gathered).program(), True, None, [], [], "9:0").text)["children"]
    told = [OVER if child["event"] is None else got("a") if child["event"] == "go" else OPEN for child in spans]
    answers = ends(defined(gathered), told)
    assert sorted(answers[1]) == [f"9:{number}" for number, state in enumerate(told, 1) if state is not OVER]


def test_an_event_that_another_task_reads_does_not_go_back():
    async def raced(flow, how):
        values = []
        hour = flow.sleep("1h") if how == "sleep" else None
        go = flow.event("go")

        async def listen():
            values.append(await go)

        task = asyncio.get_running_loop().create_task(listen())
        if how == "early":
            await flow.sleep("1m")
        first = await flow.first(hour or flow.sleep("1h"), go)
        await flow.sleep("1d")
        return [first.name, values, task.cancelled()]

    job = defined(raced)
    # It was read before the race began, so the race has it, too.
    assert ends(job, [got("a"), OPEN], [got("a"), OVER], [got("a"), OVER, OVER], payload="early")[1:] == [[], [], ["go", ["a"], False]]
    # Both end at once, and the event first.
    assert ends(job, [got("a"), OVER], [got("a"), OVER, OVER], payload="go")[1:] == [[], ["go", ["a"], False]]
    # The listener is cancelled with the race, or has the event.
    answers = ends(job, [OVER, got("a")], [OVER, got("a"), OVER], payload="sleep")[1:]
    assert answers in ([["9:2"], ["sleep", [], True]], [[], ["sleep", ["a"], False]]), answers


def test_events_that_nothing_has_read_go_back_where_an_instance_begins_anew():
    async def unread(flow, payload=None):
        flow.event("stop")
        await flow.step(double, 1)
        flow.continue_with()

    async def waited(flow, payload=None):
        await asyncio.wait([flow.event("stop"), flow.step(double, 1)])
        flow.continue_with()

    def plain(flow, payload=None):
        flow.event("stop")
        flow.step(double, 1).result()
        flow.continue_with()

    async def read(flow, payload=None):
        await flow.event("stop")
        await flow.step(double, 1)
        flow.continue_with()

    def read_plain(flow, payload=None):
        flow.first(flow.event("stop")).result()
        flow.step(double, 1).result()
        flow.continue_with()

    for function in (unread, waited, plain):
        assert ends(defined(function), [got("a"), got(2)])[-1] == ["9:1"], function
        assert ends(defined(function), [got("a"), OPEN], [got("a"), got(2)])[-1] == ["9:1"], function
    for function in (read, read_plain):
        assert ends(defined(function), [got("a")], [got("a"), got(2)])[-1] == [], function


def test_an_event_goes_back_once():
    async def kept(flow, payload):
        first = await flow.first(flow.sleep("1h"), flow.event("go"))
        values = [await flow.event("go", timeout="1d")]
        for _ in range(3):
            await flow.sleep("1h")
        with contextlib.suppress(TimeoutError):
            values.append(await flow.event("go", timeout="1d"))
        return [first.name, values]

    def plain(flow, payload):
        first = flow.first(flow.sleep("1h"), flow.event("go")).result()
        values = [flow.event("go", timeout="1d").result()]
        for _ in range(3):
            flow.sleep("1h").result()
        with contextlib.suppress(TimeoutError):
            values.append(flow.event("go", timeout="1d").result())
        return [first.name, values]

    for function in (kept, plain):
        one = instance(defined(function))
        # Both end before the flow runs.
        one.send_event("go", "a", after="1h")
        assert json.loads(one.proceed()[1]) == ["sleep", ["a"]]


def test_a_race_in_a_loop_loses_no_event():
    @app.flow(name="heard")
    async def heard(flow, values: list[str]):
        first = await flow.first(flow.sleep("1h"), flow.event("go"))
        if first.name == "go":
            values.append(first.value)
        if len(values) == 3:
            return values
        flow.continue_with(values)

    # Each comes at the moment at which a sleep ends.
    assert run_flow(heard, [], events=[("1h", "go", "a"), ("2h", "go", "b"), ("3h", "go", "c")]) == ["a", "b", "c"]
