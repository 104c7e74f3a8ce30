"""Instances that a process keeps in memory: they go on as a replay would, and hold nothing while they wait."""

import asyncio
import contextlib
import gc
import json
import random
import sys
import threading

import programs
import pytest

import gristmill
from gristmill._flow import kept, loop
from gristmill._flow.kept import Kept
from gristmill._flow.loop import AsyncFlow
from gristmill._flow.replay import Suspension
from gristmill.testing.flows import Instance

shop = gristmill.App("kept.db", durable=False)


@shop.job(retries=0)
def double(number: int) -> int:
    return 2 * number


def execute(batch, payload):
    job = programs.app.jobs[batch["kind"]]
    try:
        return "completed", json.dumps(job.entry()(json.loads(payload))), None
    except Exception as error:
        return "dead", None, (type(error).__name__, str(error), "")


def run_with(monkeypatch, program, seed, choose_process):
    """The end and the memos of an instance. `choose_process` gives what runs it each time."""
    order = random.Random(seed)
    instance = Instance(programs.interpreter, json.dumps(program), execute, choose=order.choice)

    def run(program, is_async, payload, memos, outcomes, job, now_ms):
        process = choose_process()
        if process is not None:
            return process.run(job, payload, memos, outcomes)
        return replay(program, is_async, payload, memos, outcomes, job, now_ms)

    replay = loop.run
    with monkeypatch.context() as patched:
        patched.setattr(loop, "run", run)
        return instance.proceed(), [{**json.loads(memo), "seed": None} for memo in instance.memos]


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_go_on_as_a_replay_would(monkeypatch, seed):
    rng = random.Random(seed)
    program = programs.random_program(rng)
    expected = run_with(monkeypatch, program, seed, lambda: None)
    resumed = []

    class Counted(AsyncFlow):
        def resume(self, outcomes):
            resumed.append(self)
            return super().resume(outcomes)

    def process():
        return Kept(lambda memos, outcomes, id: Counted(programs.interpreter.program(), memos, outcomes, id))

    # Two processes, of which one dies or forgets instances now and then.
    processes = [process(), process()]

    def choose_process():
        place = rng.randrange(2)
        if rng.random() < 0.1:
            processes[place] = process()
        if rng.random() < 0.1:
            processes[place].forget(1)
        return processes[place]

    assert run_with(monkeypatch, program, seed, choose_process) == expected
    resumed.clear()
    [one] = processes[:1]
    assert run_with(monkeypatch, program, seed, lambda: one) == expected
    if sys.version_info >= (3, 11):
        assert len(resumed) == len(expected[1]), "one process replays nothing"
    assert not one.instances


class Runner:
    """A process of one flow, and what is stored of its instances."""

    def __init__(self, function):
        self.job = shop.flow(name=f"kept {id(function)}")(function)
        self.made = 0
        self.kept = Kept(self.make)
        self.stored = {}

    def make(self, memos, outcomes, id):
        self.made += 1
        return AsyncFlow(self.job.program(), memos, outcomes, id)

    def turn(self, id, payload=1):
        memos, outcomes = self.stored.setdefault(id, ([], []))
        value = self.kept.run(id, payload, json.loads(json.dumps(memos)), list(outcomes))
        if type(value) is not Suspension:
            return value
        suspended = json.loads(value.text)
        memos.extend(suspended["memo"])
        numbers = [number for child in suspended["children"] for number in child["payloads"]]
        outcomes.extend({"job": "2:0", "state": "completed", "value": 2 * number} for number in numbers)
        return None


async def simple(flow, number: int) -> int:
    return await flow.step(double, await flow.step(double, number))


def test_an_instance_goes_on_only_at_its_memo_and_payload():
    runner = Runner(simple)
    assert [runner.turn("1:0"), runner.turn("1:0"), runner.turn("1:0")] == [None, None, 4]
    assert runner.made == 1
    # Another process took a step meanwhile.
    assert runner.turn("1:1") is None
    runner.stored["1:1"][0][0]["time"] = 7
    assert [runner.turn("1:1"), runner.turn("1:1"), runner.made] == [None, 4, 3]
    # The same memo of another payload: what is stored of the first step is for the number 1.
    assert runner.turn("1:2") is None
    with pytest.raises(gristmill.FlowError, match="had arguments of the hash"):
        runner.turn("1:2", payload=5)
    assert not runner.kept.instances


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_instance_leaves_nothing_to_the_garbage_collector(is_kept):
    async def gathering(flow, number: int) -> int:
        doubled = await asyncio.gather(flow.step(double, number), flow.step(double, 2), flow.map(double, [1, 2]))
        return await flow.step(double, doubled[0])

    # What asyncio makes of several steps refers to itself where it is given up.
    for function in (simple, gathering) if is_kept else (simple,):
        runner = Runner(function)
        if not is_kept:
            runner.kept.passed_over = 1 << 30
        # What is made once is not counted.
        assert [runner.turn("1:0") for _ in range(3)][-1] is not None
        gc.collect()
        gc.disable()
        try:
            for number in range(1, 20):
                assert [runner.turn(f"1:{number}") for _ in range(3)][-1] is not None
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_the_collector_walks_seldom_over_what_is_kept():
    before = gc.get_threshold()
    try:
        for own, expected in [((700, 10, 10), (700, 10, 100)), ((50, 5, 5), (50, 5, 5))]:
            gc.set_threshold(*own)
            Runner(simple)
            assert gc.get_threshold() == expected
    finally:
        gc.set_threshold(*before)


def test_few_instances_are_kept_and_the_others_replay(monkeypatch):
    monkeypatch.setattr(kept, "INSTANCES_KEPT_MAX", 32)
    runner = Runner(simple)
    ids = [f"1:{number}" for number in range(60)]
    for id in ids:
        assert runner.turn(id) is None
        assert len(runner.kept.instances) <= 32
    # The last ones are those that are kept.
    assert [id for id in ids if id in runner.kept.instances] == ids[-len(runner.kept.instances) :]
    assert [runner.turn(id) for id in ids] == [None] * 60
    assert [runner.turn(id) for id in ids] == [4] * 60
    assert runner.made > 60 and not runner.kept.instances


def test_where_most_instances_end_before_they_go_on_none_is_kept_for_a_while(monkeypatch):
    monkeypatch.setattr(kept, "INSTANCES_KEPT_MAX", 32)
    monkeypatch.setattr(kept, "RUNS_PASSED_OVER", 150)
    runner = Runner(simple)
    ids = [f"1:{number}" for number in range(100)]
    assert [runner.turn(id) for id in ids] == [None] * 100
    assert runner.kept.passed_over > 0 and ids[-1] not in runner.kept.instances
    assert [runner.turn(id) for id in ids] == [None] * 100
    assert [runner.turn(id) for id in ids] == [4] * 100
    # Few instances have room, and are kept again.
    assert runner.kept.passed_over == 0
    assert runner.turn("2:1") is None and "2:1" in runner.kept.instances


@pytest.mark.parametrize("what", ["_bytes_used", "_files_open"])
def test_large_instances_and_open_files_are_not_kept(monkeypatch, what):
    per_instance = {"_bytes_used": 10 << 20, "_files_open": 1}[what]
    runner = Runner(simple)
    monkeypatch.setattr(kept, what, lambda: 1 + per_instance * len(runner.kept.instances))
    counts = []
    for number in range(500):
        assert runner.turn(f"1:{number}") is None
        counts.append(len(runner.kept.instances))
    most = {"_bytes_used": 128 // 10 + 1, "_files_open": 64 + kept.LOOK_EVERY_MAX}[what]
    assert most // 2 < max(counts) <= most and counts.count(0) > 3


lock = threading.Lock()
semaphores = []


async def in_with(flow, number: int) -> int:
    with lock:
        return await flow.step(double, number)


async def in_async_with(flow, number: int) -> int:
    async with semaphores[0]:
        return await flow.step(double, number)


async def in_finally(flow, number: int) -> int:
    lock.acquire()
    try:
        return await flow.step(double, number)
    finally:
        lock.release()


async def in_except_of_all(flow, number: int) -> int:
    lock.acquire()
    try:
        value = await flow.step(double, number)
    except BaseException:
        lock.release()
        raise
    lock.release()
    return value


async def in_bare_except(flow, number: int) -> int:
    lock.acquire()
    try:
        value = await flow.step(double, number)
    except ValueError:
        raise
    except:  # noqa: E722
        lock.release()
        raise
    lock.release()
    return value


async def in_except_of_several(flow, number: int) -> int:
    lock.acquire()
    try:
        value = await flow.step(double, number)
    except (ValueError, asyncio.CancelledError, GeneratorExit):
        lock.release()
        raise
    lock.release()
    return value


async def deep(flow, number: int) -> int:
    return await in_with(flow, number)


async def in_a_task(flow, number: int) -> int:
    return (await asyncio.gather(flow.step(double, number), in_with(flow, number)))[1]


async def numbers(flow, number):
    with lock:
        yield await flow.step(double, number)


async def in_async_for(flow, number: int) -> int:
    async for value in numbers(flow, number):
        last = value
    return last


async def in_timeout(flow, number: int) -> int:
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        return await flow.step(double, number)


HOLDING = [
    *(in_with, in_async_with, in_finally, in_except_of_all, in_bare_except, in_except_of_several),
    *(deep, in_a_task, in_async_for, in_timeout),
]


@pytest.mark.parametrize("function", HOLDING, ids=lambda one: one.__name__)
def test_an_instance_that_holds_something_is_unwound(function):
    semaphores[:] = [asyncio.Semaphore(1)]
    runner = Runner(function)
    for id in ("1:0", "1:1"):
        # Without the lock of the other one.
        assert runner.turn(id) is None
        assert not runner.kept.instances and not lock.locked()
    assert [runner.turn("1:0"), runner.turn("1:1")] == [2, 2]


async def in_except(flow, number: int) -> int:
    try:
        return await flow.step(double, number)
    except (gristmill.StepFailed, KeyError) as failed:
        return len(str(failed))
    except ValueError:
        raise


async def after_with(flow, number: int) -> int:
    return await flow.step(double, held(number))


def held(number):
    with lock:
        return number


async def in_tasks(flow, number: int) -> int:
    return max(await asyncio.gather(in_except(flow, number), flow.step(double, number, name="other")))


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="the code of older versions does not show what an except catches")
@pytest.mark.parametrize("function", [in_except, after_with, in_tasks], ids=lambda one: one.__name__)
def test_an_instance_that_holds_nothing_is_kept(function):
    runner = Runner(function)
    assert runner.turn("1:0") is None
    assert runner.kept.instances
    assert runner.turn("1:0") == 2
    assert runner.made == 1


def test_nothing_of_an_instance_reaches_another(monkeypatch):
    import contextvars

    name = contextvars.ContextVar("name", default="nobody")

    async def named(flow, number: int) -> list:
        before = name.get()
        name.set(f"flow {number}")
        await flow.step(double, number)
        return [before, name.get(), len(asyncio.all_tasks())]

    runner = Runner(named)
    for turn in range(2):
        ended = [runner.turn(f"1:{number}", number) for number in range(3)]
    assert ended == [["nobody", f"flow {number}", 1] for number in range(3)]
    assert name.get() == "nobody" and asyncio._get_running_loop() is None
