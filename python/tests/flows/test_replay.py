"""Durable flows in memory: what is replayed, and what is told of code that changed."""

import asyncio
import contextlib
import datetime
import functools
import json
import random
import zlib

import programs
import pytest
from programs import instance, random_program

import gristmill
from gristmill._flow.loop import run
from gristmill.testing import eager, run_flow
from gristmill.testing.flows import Instance

shop = gristmill.App("flows.db", durable=False)
calls = []


@shop.job(retries=0)
def double(number: int) -> int:
    calls.append(number)
    return 2 * number


@shop.job(retries=0, queue="sums")
def add(left: int, right: int = 1) -> int:
    return left + right


@shop.job(retries=0)
def fail(message: str) -> None:
    raise ValueError(message)


@shop.batch
def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_steps_run_once_and_in_turn():
    ran = []

    @shop.flow(name="in_turn")
    async def flow(flow, number: int) -> int:
        ran.append(number)
        one = await flow.step(double, number)
        two = await flow.step(add, one, right=10)
        return await flow.step(lengths, "x" * two)

    assert run_flow(flow, 4) == 18
    # The flow runs again from its beginning; a step does not.
    assert len(ran) == 4 and calls == [4]


def test_a_plain_flow_asks_for_results():
    @shop.flow(name="plain")
    def flow(flow, number: int):
        first, second = flow.step(double, number), flow.step(double, number + 1)
        total = flow.step(add, first.result(), second.result()).result()
        winner = flow.first(flow.event("go"), flow.sleep("1h")).result()
        return [total, winner.name, flow.map(double, [1, 2]).result(), flow.local(len, "abc").result()]

    assert run_flow(flow, 1) == [6, "sleep", [2, 4], 3]
    assert run_flow(flow, 1, events={"go": None})[1] == "go"
    assert calls == [1, 2, 1, 2] * 2


def test_asyncio_is_durable():
    @shop.flow(name="asynchronous")
    async def flow(flow):
        gathered = await asyncio.gather(flow.step(double, 1), both(flow), flow.map(lengths, ["a", "bb"]))
        done, open = await asyncio.wait([flow.step(double, 4), flow.sleep("1d")], return_when=asyncio.FIRST_COMPLETED)
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        slept = asyncio.get_running_loop().time() - before
        try:
            await asyncio.wait_for(flow.event("never"), 60)
        except asyncio.TimeoutError:
            return [gathered, len(done), len(open), slept]

    async def both(flow):
        return [await flow.step(add, 1, 2), await flow.step(add, 3, 4)]

    assert run_flow(flow) == [[2, [3, 7], [1, 2]], 1, 1, 3600.0]


@pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="needs Python 3.11")
def test_groups_of_tasks_and_timeouts():
    @shop.flow(name="grouped")
    async def flow(flow):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(flow.step(double, number)) for number in range(3)]
        try:
            async with asyncio.timeout(30):
                await flow.event("never")
        except TimeoutError:
            return [task.result() for task in tasks]

    assert run_flow(flow) == [0, 2, 4]


def test_the_first_to_end_wins():
    @shop.flow(name="race")
    async def flow(flow):
        async def later():
            await flow.sleep("3h")
            return "later"

        first = await flow.first(flow.event("approve"), flow.sleep(datetime.timedelta(hours=2)), later())
        return [first.name, first.value, first.index]

    assert run_flow(flow) == ["sleep", None, 1]
    assert run_flow(flow, events=[("1h", "approve", {"by": "Ada"})]) == ["approve", {"by": "Ada"}, 0]
    assert run_flow(flow, events=[("2h 1m", "approve", 1)])[0] == "sleep"


def test_events_wait_for_the_flow_and_the_flow_for_events():
    @shop.flow(name="awaits")
    async def flow(flow):
        one = await flow.event("number")
        two = await flow.event("number", timeout="1h")
        try:
            await flow.event("number", timeout="1h")
        except TimeoutError as late:
            return [one, two, str(late)]

    events = [(0, "number", 1), ("30m", "number", 2), ("2h", "number", 3)]
    assert run_flow(flow, events=events) == [1, 2, "the event 'number' was not sent in time"]
    with pytest.raises(RuntimeError, match="waits for the event 'number'"):
        run_flow(flow)


def test_a_failed_step_is_caught_and_compensated():
    @shop.flow(name="compensates", retries=0)
    async def flow(flow, is_caught: bool):
        reserved = await flow.step(double, 1)
        try:
            await flow.step(fail, "sold out", key="seats")
        except gristmill.StepFailed as failed:
            if not is_caught:
                raise
            undone = await flow.step(add, reserved, -2)
            return [failed.step, failed.key, failed.state, failed.type, failed.message, "sold out" in failed.job_traceback, undone]

    assert run_flow(flow, True) == ["fail", "seats", "dead", "ValueError", "sold out", True, 0]
    with pytest.raises(gristmill.JobFailed, match="StepFailed: step fail .key 'seats'., job .* ended as dead: ValueError: sold out"):
        run_flow(flow, False)


def test_a_failing_flow_tells_its_own_traceback():
    @shop.flow(name="raises", retries=0)
    async def flow(flow):
        await flow.step(double, 1)
        raise KeyError("mine")

    with pytest.raises(gristmill.JobFailed, match="KeyError: 'mine'") as raised:
        run_flow(flow)
    assert 'raise KeyError("mine")' in raised.value.job_traceback


def test_a_map_waits_for_all_and_collects():
    @shop.flow(name="maps")
    async def flow(flow):
        kept = await flow.map(fail, ["a", "b"], return_exceptions=True)
        sums = await flow.map(add, [(1, 2), {"left": 5}], starmap=True, name="sums")
        assert await flow.map(double, []) == []
        try:
            await flow.map(fail, ["c", "d"], key="second")
        except gristmill.StepFailed as failed:
            return [[one.message for one in kept], sums, failed.message, failed.key]

    assert run_flow(flow) == [["a", "b"], [3, 6], "c", "second"]


def test_local_values_time_and_chance_are_kept():
    taken = []

    @shop.flow(name="keeps")
    async def flow(flow):
        def take(text):
            taken.append(text)
            return {text: len(taken)}

        async def take_later():
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is not None and len(taken)

        before = [await flow.local(take, "a"), await flow.local(take_later), flow.now().timestamp(), flow.random(), str(flow.uuid())]
        await flow.step(double, 1)
        again = [await flow.local(take, "b"), flow.now().timestamp(), flow.random(), str(flow.uuid())]
        await flow.sleep(5)
        try:
            await flow.local(int, "x")
        except gristmill.StepFailed as failed:
            await flow.sleep(5)
            return [before, again, failed.step, failed.type]

    before, again, step, type = run_flow(flow)
    assert before[:2] == [{"a": 1}, 1] and again[0] == {"b": 2} and taken == ["a", "b"]
    assert 0 <= before[3] < 1 and before[3] != again[2] and before[4] != again[3]
    assert (step, type) == ("int", "ValueError")


# --- code that changed ---


defined = functools.partial(programs.defined, shop)


def test_losers_are_cancelled():
    async def of_steps(flow, payload):
        async def nested():
            return await flow.first(flow.event("deny"), flow.sleep("3d"))

        first = await flow.first(flow.event("approve"), flow.sleep("2d"), nested())
        try:
            await asyncio.wait_for(flow.event("more"), 60)
        except (TimeoutError, asyncio.TimeoutError):
            pass
        await flow.event("pause")
        return first.name

    def plain(flow, payload):
        first = flow.first(flow.event("approve"), flow.sleep("2d"), flow.event("deny"), flow.sleep("3d")).result()
        flow.event("pause").result()
        return first.name

    for function, ended in [(of_steps, ["completed", *["cancelled"] * 3]), (plain, ["completed", *["cancelled"] * 3])]:
        one = instance(defined(function))
        one.send_event("approve")
        one.proceed()
        states = [child.outcome["state"] for child in one.children]
        assert states[:4] == ended and states[-1] == "waiting", states
        if function is of_steps:
            # The timeout was over first.
            assert states[4:-1] == ["cancelled", "expired"], states
        runs = one.runs
        one.send_event("pause")
        assert one.proceed()[1] == '"approve"'
        assert one.runs == runs + 1, "what is cancelled wakes no flow"


def upgraded(before, after, wait="pause"):
    """Runs an instance until it waits for an event, and goes on with other code."""
    running = instance(defined(before))
    assert running.proceed(skips_time=False) is None
    running.job = defined(after)
    running.send_event(wait)
    calls.clear()
    return running.proceed()


async def pausing(flow):
    one, two = await flow.step(double, 1), await flow.step(double, 2, key="second")
    await flow.event("pause")
    return one + two


def test_code_between_steps_may_change():
    async def changed(flow):
        # In another order, at once, with a step that is new, and one behind them.
        new, two, one = await asyncio.gather(
            flow.step(add, 1, 1), flow.step(double, 2, key="second"), flow.step(double, 1)
        )
        await flow.event("pause")
        return [new, two, one, await flow.step(double, 3)]

    assert upgraded(pausing, changed) == ("completed", "[2,4,2,6]", None)
    assert calls == [3]


def test_steps_that_are_not_asked_for_again_are_kept():
    seen = []

    async def shorter(flow):
        await flow.event("pause")
        seen.append(flow.unused())
        return await flow.step(double, 1)

    assert upgraded(pausing, shorter) == ("completed", "2", None)
    assert seen == [["double", "double (key 'second')"]] and calls == []


def test_changed_arguments_are_an_error_that_names_the_step():
    async def changed(flow):
        await flow.step(double, 1)
        await flow.step(double, 7, key="second")

    state, _, error = upgraded(pausing, changed)
    assert state == "dead" and error[0] == "FlowError"
    for part in ("step double (key 'second'), number 1", "flow changing", "of the hash", "key=", "version=", "gristmill flow fork"):
        assert part in error[1]


def test_the_order_of_an_objects_members_is_no_change():
    async def before(flow):
        await flow.step("double", {"a": 1, "b": [{"c": 2, "d": 3}]})
        await flow.event("pause")

    async def after(flow):
        return len(await flow.step("double", {"b": [{"d": 3, "c": 2}], "a": 1}))

    shop.jobs["double"], kept = shop.job(name="anything")(dict), shop.jobs["double"]
    try:
        assert upgraded(before, after) == ("completed", "2", None)
    finally:
        shop.jobs["double"] = kept


def test_steps_of_one_identity_keep_their_order_across_kinds():
    async def flow(flow):
        numbers = await asyncio.gather(*(flow.step(job, number, name="same") for number, job in enumerate([double, add, double, add])))
        await flow.event("pause")
        return numbers

    assert upgraded(flow, flow) == ("completed", "[0,2,4,4]", None)


def test_a_step_that_is_cancelled_before_it_begins_keeps_its_place():
    async def flow(flow):
        flow.step(double, 1).cancel()
        second = flow.step(double, 1)
        await flow.event("pause")
        return await second

    async def changed(flow):
        return await flow.step(double, 1)

    assert upgraded(flow, flow) == ("completed", "2", None)
    assert "was cancelled by this instance" in upgraded(flow, changed)[2][1]


def test_a_cancelled_sleep_takes_no_other_ones_place():
    async def flow(flow):
        asyncio.get_running_loop().call_later(60, print).cancel()
        short, long = asyncio.sleep(10, "short"), asyncio.sleep(20, "long")
        values = await asyncio.gather(long, short)
        return [*values, await asyncio.sleep(5, "after")]

    assert run_flow_of(flow) == ("completed", '["long","short","after"]', None)


def run_flow_of(function, payload=None, **options):
    return instance(defined(function), payload, **options).proceed()


# --- limits, and what no flow can do ---


def refused(function, monkeypatch=None, **limits):
    from gristmill._flow import memo, replay

    for name, value in limits.items():
        monkeypatch.setattr(memo if hasattr(memo, name) else replay, name, value)
    state, _, error = run_flow_of(function)
    assert state == "dead" and error[0] == "FlowError", error
    return error[1]


def test_a_flow_that_awaits_nothing_durable_is_told_so():
    async def stuck(flow):
        await asyncio.get_running_loop().create_future()

    async def threads(flow):
        await asyncio.to_thread(print)

    async def unread(flow):
        await asyncio.open_connection("127.0.0.1", 1)

    assert "what nothing will ever bring about" in refused(stuck)
    assert "run_in_executor" in refused(threads) and "flow.local" in refused(threads)
    assert "a flow's event loop has no" in refused(unread)


def test_limits_have_names(monkeypatch):
    async def many(flow):
        await asyncio.gather(*(flow.step(double, number) for number in range(5)))

    async def one_map(flow):
        await flow.map(double, range(5))

    async def large(flow):
        await flow.local(str, "x" * 300)
        await flow.sleep(1)

    async def sleeps(flow):
        await asyncio.gather(*(flow.sleep(number + 1) for number in range(5)))

    async def spinning(flow):
        while True:
            await asyncio.sleep(0)

    assert "STEPS_OPEN_MAX" in refused(many, monkeypatch, STEPS_OPEN_MAX=4)
    assert "STEPS_OPEN_MAX" in refused(one_map)
    monkeypatch.undo()
    assert "5 steps; the limit is 4 (STEPS_MAX)" in refused(many, monkeypatch, STEPS_MAX=4)
    monkeypatch.undo()
    assert "GROUPS_MAX" in refused(sleeps, monkeypatch, GROUPS_MAX=4)
    assert "MEMO_BYTES_MAX" in refused(large, monkeypatch, MEMO_BYTES_MAX=200)
    monkeypatch.undo()
    from gristmill._flow import loop

    monkeypatch.setattr(loop, "TURNS_MAX", 1000)
    assert "TURNS_MAX" in refused(spinning)


def test_what_is_no_flow_is_refused():
    with pytest.raises(TypeError, match="the first one of a flow is the flow itself"):
        shop.flow(lambda: None)
    with pytest.raises(ValueError, match="without @"):
        shop.flow(version="1@2")(lambda flow: None)
    with pytest.raises(TypeError, match="did you mean version="):
        shop.flow(versoin="1")

    async def unknown(flow):
        await flow.step(len, "text")

    async def misspelt(flow):
        await flow.step(double, 1, retrys=2)

    async def marked(flow):
        await flow.step(double, 1, name="@sleep")

    async def unawaited(flow):
        await flow.step(double, flow.step(double, 1))

    async def returned(flow):
        return flow.step(double, 1)

    for function in (unawaited, returned):
        assert "the step double stands in the place of its result: await it first" in refused(function)
    assert "give functions to flow.local" in run_flow_of(unknown)[2][1]
    assert "did you mean retries=" in run_flow_of(misspelt)[2][1]
    assert "does not begin with @" in refused(marked)


# --- unwinding ---


def test_nothing_begins_while_a_flow_is_unwound():
    async def flow(flow):
        try:
            await flow.step(double, 1)
        finally:
            await flow.step(add, 1, 1)
        async with asyncio.timeout(60):
            await flow.step(double, 2)
        return flow.unused()

    if hasattr(asyncio, "timeout"):
        assert run_flow_of(flow) == ("completed", "[]", None)
        assert calls == [1, 2]


def test_no_loop_and_no_task_is_left(recwarn):
    async def flow(flow):
        task = asyncio.ensure_future(flow.sleep("1d"))
        await asyncio.gather(flow.step(double, 1), flow.event("e", timeout=1), return_exceptions=True)
        return task.done()

    assert run_flow_of(flow) == ("completed", "false", None)
    assert not asyncio.all_tasks() if asyncio._get_running_loop() else True
    assert not list(recwarn)


# --- eager applications ---


def test_flows_of_an_eager_application():
    @shop.flow(name="eager_parent", version="2")
    async def parent(flow, number: int) -> list:
        child = await flow.step(child_flow, number)
        approved = await flow.event("approve")
        return [child, approved, flow.id is not None, flow.version]

    @shop.flow(name="eager_child")
    def child_flow(flow, number: int) -> int:
        return flow.step(double, number).result()

    with eager(shop):
        handle = parent.submit(2)
        assert handle.state() == "blocked"
        with pytest.raises(gristmill.StoreError, match="waits for the event 'approve'"):
            handle.result()
        assert handle.send_event("approve", {"by": "Ada"})
        assert handle.result() == [4, {"by": "Ada"}, True, "2"]
        assert not handle.send_event("approve")


# --- random programs ---


@pytest.mark.parametrize("seed", range(300))
def test_random_programs_do_not_depend_on_the_order_of_ends(seed):
    rng = random.Random(seed)
    program = random_program(rng)
    expected = instance(programs.interpreter, program).proceed()
    assert expected[0] == "completed"
    for _ in range(3):
        assert instance(programs.interpreter, program, choose=rng.choice).proceed() == expected


def test_a_flow_continues_with_a_state():
    rounds = []

    @shop.flow(name="rounds")
    async def flow(flow, number: int, total: int = 0):
        rounds.append(flow.continued)
        seen = await flow.step(double, number)
        flow.step("nobody runs this", None)
        try:
            if number > 1:
                await asyncio.gather(flow.sleep("1h"), later(flow, number, total + seen))
        finally:
            # What cleans up does not keep it from beginning anew.
            with contextlib.suppress(BaseException):
                flow.step(double, 99)
        return [total + seen, flow.continued, flow.now().hour]

    async def later(flow, number, total):
        await flow.sleep("2h")
        flow.continue_with(number - 1, total=total)

    def execute(batch, payload):
        return "completed", str(double(json.loads(payload))) if batch["kind"] == "double" else "null", None

    instance = Instance(flow, '{"number":3}', execute, choose=lambda children: children[0])
    assert json.loads(instance.proceed()[1])[:2] == [12, 2]
    assert sorted(set(rounds)) == [0, 1, 2] and calls == [3, 2, 1]
    assert len(instance.memos) == 2 and len(instance.children) == 1


def test_a_plain_flow_continues_with_a_state():
    @shop.flow(name="plain_rounds")
    def flow(flow, number: int):
        flow.step(double, number).result()
        if number:
            flow.continue_with(number - 1)
        return flow.continued

    assert run_flow(flow, 3) == 3 and calls == [3, 2, 1, 0]


def test_a_loop_that_never_ends_and_a_state_that_cannot_be_kept_are_told():
    @shop.flow(name="endless", retries=0)
    async def endless(flow, number: int):
        await flow.sleep("1d")
        flow.continue_with(number + 1)

    with pytest.raises(RuntimeError, match="begun anew 10,000 times"):
        run_flow(endless, 1)

    @shop.flow(name="too_large", retries=0)
    async def too_large(flow, text: str):
        flow.continue_with(text * 3_000_000)

    with pytest.raises(gristmill.JobFailed, match=r"bytes of names, keys and local values, or of state.*MEMO_BYTES_MAX"):
        run_flow(too_large, "x")

    @shop.flow(name="misfit", retries=0)
    async def misfit(flow, text: str):
        flow.continue_with(text, 2)

    with pytest.raises(gristmill.JobFailed, match="do not fit the parameters"):
        run_flow(misfit, "x")


def test_an_instance_begins_with_the_steps_of_another():
    @shop.flow(name="forked")
    async def forked(flow, number: int):
        one = await flow.step(double, number)
        return [one, await flow.step(add, one), flow.continued]

    @shop.flow(name="forked_plain")
    def plain(flow, number: int):
        one = flow.step(double, number).result()
        return [one, flow.step(add, one).result(), flow.continued]

    for flow in (forked, plain):
        steps = {"steps": [["double", zlib.crc32(b"5")]]}
        kept = [{"job": "3:0", "state": "completed", "value": 77}]
        begin = {"begin": {"origin": "4:2", "state": 5, "count": 1, "memos": [steps, {"seen": [0]}], "outcomes": kept}}

        def go_on(memos, outcomes, flow=flow):
            return run(flow.program(), flow.is_coroutine, 1, memos, outcomes, "9:0")

        suspended = json.loads(go_on([begin], []).text)
        assert [child["payloads"] for child in suspended["children"]] == [[{"left": 77}]]
        own = [begin, suspended["memo"][0]]
        assert go_on(own, [{"job": "9:1", "state": "completed", "value": 78}]) == [77, 78, 1]
        begin["begin"]["state"] = 6
        with pytest.raises(gristmill.FlowError, match="step double, number 1 of its name"):
            go_on([begin], [])
