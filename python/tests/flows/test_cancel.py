"""Flows that clean up after a cancel."""

import asyncio

import pytest

import gristmill
from gristmill.testing import Clock, run_flow, temporary_store

hotel = gristmill.App("hotel.db", durable=False)


@hotel.job(retries=0)
def reserve(seats: int) -> int:
    return seats


@hotel.job(retries=0)
def release(seats: int) -> int:
    return seats


@hotel.flow(retries=3, cleanup_within="1m")
async def book(flow, seats: int, then: str = "raise"):
    reserved = await flow.step(reserve, seats)
    try:
        await asyncio.gather(flow.event("paid"), flow.sleep("2d"), flow.step("nobody runs this", None))
    finally:
        await flow.step(release, reserved)
        if then == "wait":
            await flow.event("never")
        if then == "fail":
            raise ValueError("the cleanup fails")
        if then == "anew":
            flow.continue_with(seats + 1)


@hotel.flow(cleanup_within=60)
def plain(flow, seats: int):
    reserved = flow.step(reserve, seats).result()
    try:
        return flow.event("paid").result()
    finally:
        flow.step(release, reserved).result()


@hotel.flow(cleanup_within="1m")
async def swallowing(flow, seats: int):
    try:
        await flow.event("paid")
    except asyncio.CancelledError:
        return await flow.step(reserve, seats)


@hotel.flow
async def parent(flow, seats: int):
    return await flow.step(book, seats)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def app(clock):
    with temporary_store(hotel, clock=clock) as app:
        yield app


def done(app, handle) -> list[str]:
    """The steps of a flow that have completed."""
    return [step.name for step in app.steps(handle) if step.state == "completed"]


@pytest.mark.parametrize("then", ["raise", "fail", "anew"])
def test_a_cancelled_flow_takes_steps_and_ends_as_cancelled(app, then):
    handle = book.submit(3, then=then)
    app.drain()
    assert handle.state() == "blocked"
    assert handle.cancel()
    assert (handle.state(), done(app, handle)) == ("waiting", ["reserve"])
    app.drain()
    assert (handle.state(), done(app, handle)) == ("cancelled", ["reserve", "release"])
    details = app.details(handle.id)
    assert (details.row.error is not None and "the cleanup fails" in details.row.error) is (then == "fail")
    with pytest.raises(gristmill.JobFailed, match="cancelled"):
        handle.result(timeout=10)
    assert not app.retry(handle)


@pytest.mark.parametrize("flow", [plain, swallowing])
def test_plain_flows_and_those_that_return_end_as_cancelled(app, flow):
    handle = flow.submit(2)
    app.drain()
    handle.cancel()
    app.drain()
    assert (handle.state(), done(app, handle)[-1:]) == ("cancelled", ["release" if flow is plain else "reserve"])


def test_a_cleanup_ends_in_time_and_by_a_second_cancel(app, clock):
    slow, twice = book.submit(1, then="wait"), book.submit(2, then="wait")
    app.drain()
    slow.cancel()
    twice.cancel()
    app.drain()
    assert (slow.state(), twice.state()) == ("blocked", "blocked")
    assert done(app, slow) == ["reserve", "release"]
    twice.cancel()
    assert twice.state() == "cancelled"
    clock.advance("59s")
    app.drain()
    assert slow.state() == "blocked"
    clock.advance("1s")
    app.drain()
    assert slow.state() == "cancelled"


def test_a_child_cleans_up_after_its_parent(app):
    handle = parent.submit(5)
    app.drain()
    child = next(iter(app.steps(handle))).job
    handle.cancel()
    assert (handle.state(), app.details(child).row.state) == ("cancelled", "waiting")
    app.drain()
    assert (done(app, child), app.details(child).row.state) == (["reserve", "release"], "cancelled")


def test_a_plain_flow_begins_no_step_while_it_waits():
    ran = []

    @hotel.job(retries=0)
    def note(number: int) -> int:
        ran.append(number)
        return number

    @hotel.flow(name="unwound")
    def unwound(flow):
        try:
            return flow.step(note, 1).result()
        finally:
            flow.step(note, 2).result()

    assert (run_flow(unwound), ran) == (1, [1, 2])


@pytest.mark.parametrize("span", [0, "2d"])
def test_a_cleanup_has_a_limit(span):
    with pytest.raises(ValueError, match="CLEANUP_MS_MAX"):
        hotel.flow(cleanup_within=span)(lambda flow: None)
