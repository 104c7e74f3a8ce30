"""Instances that clean up after cancelled flows."""

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


@hotel.job(retries=0)
def note(text: str) -> str:
    return text


@hotel.flow(retries=2, retry_delay=0, cleanup_within="1m")
async def book(flow, seats: int, then: str = "raise"):
    reserved = await flow.step(reserve, seats)
    try:
        await asyncio.gather(flow.event("paid"), flow.sleep("2d"), flow.step("nobody runs this", None))
    finally:
        await flow.step(release, reserved)
        if then == "wait":
            await flow.event("never")
        if then == "fail":
            raise ValueError(f"the cleanup of {flow.id} fails")
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
def racing(flow, seats: int):
    reserved = flow.step(reserve, seats).result()
    try:
        return flow.first(flow.step(book, seats), flow.event("paid")).result().name
    finally:
        flow.step(release, reserved).result()


@hotel.flow(cleanup_within="1m")
async def swallowing(flow, seats: int):
    await flow.step(reserve, seats)
    try:
        await flow.event("paid")
    except asyncio.CancelledError:
        return await flow.step(release, seats)


@hotel.flow(cleanup_within="1m")
async def limited(flow, seats: int):
    # The timer is cancelled with the flow: it does not end the cleanup.
    await flow.step(reserve, seats)
    async with asyncio.timeout(3600):
        try:
            await flow.event("paid")
        except asyncio.CancelledError:
            await flow.step(release, seats)
            await flow.step(note, "after the release")
            raise


@hotel.flow(cleanup_within="1m")
async def in_background(flow, seats: int):
    heard = []

    async def watch(awaitable):
        try:
            await awaitable
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    tasks = [asyncio.create_task(watch(one)) for one in (flow.event("noticed"), flow.sleep("2d"), asyncio.sleep(3600))]
    tasks.append(asyncio.create_task(watch(flow.map("nobody runs this", [1, 2]))))
    try:
        await flow.event("paid")
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)
        await flow.step(note, " ".join(heard))


@hotel.flow(cleanup_within="1m")
async def named(flow):
    # The id is the same in the instance that cleans up: the arguments of the step would differ otherwise.
    await flow.step(note, flow.id)
    try:
        await flow.event("paid")
    finally:
        await flow.step(note, "end of " + flow.id)


@hotel.flow(cleanup_within="1m")
def charging(flow):
    flow.event("go").result()
    charges = [flow.step(reserve, seats) for seats in range(3)]
    try:
        return [charge.result() for charge in charges]
    finally:
        flow.step(note, "cleaned up").result()


@hotel.flow(cleanup_within="1m")
async def charging_async(flow):
    await flow.event("go")
    charges = [flow.step(reserve, seats) for seats in range(3)]
    try:
        return [await charge for charge in charges]
    finally:
        await flow.step(note, "cleaned up")


@hotel.flow(cleanup_within="1m")
async def around(flow, rounds: int):
    try:
        await flow.event("go")
        flow.continue_with(rounds + 1)
    except asyncio.CancelledError:
        await flow.step(note, f"round {rounds} is cancelled")


@hotel.flow(cleanup_within="1m")
def around_plainly(flow, rounds: int):
    try:
        flow.event("go").result()
        flow.continue_with(rounds + 1)
    except asyncio.CancelledError:
        flow.step(note, f"round {rounds} is cancelled").result()


@hotel.flow
async def parent(flow, seats: int):
    try:
        return (await flow.first(flow.step(book, seats, "wait"), flow.sleep("1h"))).name
    finally:
        await flow.step(note, "the parent goes on")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def app(clock):
    with temporary_store(hotel, clock=clock) as app:
        yield app


def done(app, flow) -> list[str]:
    """The steps of a flow that have completed."""
    return [step.name for step in app.steps(flow) if step.state == "completed"]


def values(app, flow) -> list[str]:
    """The values of its notes."""
    steps = [step for step in app.steps(flow) if step.name == "note" and step.state == "completed"]
    return [app.details(step.job).value for step in steps]


def cleanups(app, handle, name=None) -> list[str]:
    """The later instances of the same flow."""
    rows = app.flows(name or app.details(handle.id).row.kind)
    return [row.job.id for row in rows if row.job.id != str(handle.id) and app.details(row.job.id).parent is None]


def cleanup(app, handle, name=None) -> str:
    (only,) = cleanups(app, handle, name)
    return only


def cancelled(app, flow, *arguments, **named):
    """A flow that was cancelled while it waited, and its cleanup."""
    handle = flow.submit(*arguments, **named)
    app.drain()
    assert handle.state() == "blocked"
    assert handle.cancel()
    assert not handle.cancel()
    assert handle.state() == "cancelled"
    with pytest.raises(gristmill.JobFailed, match="cancelled"):
        handle.result(timeout=10)
    app.drain()
    assert handle.state() == "cancelled"
    with pytest.raises(gristmill.StoreError, match="is cleaned up after"):
        app.retry(handle)
    return handle, cleanup(app, handle)


@pytest.mark.parametrize("flow", [book, plain, racing, swallowing, limited])
def test_a_cancelled_flow_is_cleaned_up_after(app, flow):
    handle, after = cancelled(app, flow, 3)
    assert done(app, handle) == ["reserve"]
    assert done(app, after)[:2] == ["reserve", "release"]
    assert app.details(after).row.state == "completed"
    if flow is limited:
        assert values(app, after) == ["after the release"]


def test_a_cleanup_that_begins_anew_ends(app):
    _, after = cancelled(app, book, 3, then="anew")
    assert (app.details(after).row.state, done(app, after)) == ("completed", ["reserve", "release"])


def test_a_cleanup_is_tried_again_and_its_failure_is_seen(app):
    handle, after = cancelled(app, book, 3, then="fail")
    details = app.details(after)
    assert (details.row.state, details.row.attempt) == ("dead", 3)
    assert [failure.message for failure in details.failures] == [f"the cleanup of {handle.id} fails"] * 3
    # Its steps are not run again.
    assert done(app, after) == ["reserve", "release"]


def test_tasks_in_the_background_hear_of_the_cancel(app):
    _, after = cancelled(app, in_background, 1)
    assert values(app, after) == ["cancelled cancelled cancelled cancelled"]


def test_a_cleanup_knows_the_flow_by_its_id(app):
    handle, after = cancelled(app, named)
    assert values(app, after) == [str(handle.id), f"end of {handle.id}"]


def test_a_cleanup_ends_in_time_and_by_a_cancel(app, clock):
    _, slow = cancelled(app, book, 1, then="wait")
    state = lambda job: app.details(job).row.state  # noqa: E731
    assert (state(slow), done(app, slow)) == ("blocked", ["reserve", "release"])
    # Its time counts from the look that finds that it has begun.
    clock.advance("6s")
    clock.advance("59s")
    assert state(slow) == "blocked"
    clock.advance("1s")
    assert state(slow) == "cancelled"
    handle = book.submit(2, then="wait")
    app.drain()
    handle.cancel()
    app.drain()
    instances = cleanups(app, handle)
    stopped = instances[-1]
    assert state(stopped) == "blocked"
    # A repeated cancel by conditions leaves the cleanup.
    assert app.cancel(job=book) == 0
    assert app.cancel(stopped) == 1
    app.drain()
    assert (state(stopped), cleanups(app, handle)) == ("cancelled", instances), "nothing cleans up after a cleanup"


def test_a_key_is_free_at_once(app):
    handle = book.submit(1, key="room")
    app.drain()
    handle.cancel()
    again = book.submit(1, key="room")
    assert str(again.id) != str(handle.id)
    app.drain()
    assert again.state() == "blocked"
    assert done(app, [job for job in cleanups(app, handle) if job != str(again.id)][0]) == ["reserve", "release"]


def test_a_parent_does_not_wait_for_the_cleanup_of_its_child(app, clock):
    handle = parent.submit(5)
    app.drain()
    child = next(step.job for step in app.steps(handle) if step.name == "book")
    clock.advance("1h")
    app.drain()
    assert (handle.result(timeout=10), app.details(child).row.state) == ("sleep", "cancelled")
    after = [row.job.id for row in app.flows("book") if row.job.id != child]
    assert [(app.details(one).row.state, done(app, one)) for one in after] == [("blocked", ["reserve", "release"])]


def cancelled_before_it_is_told(app, flow, *arguments):
    """Cancel a flow that has not been told of its event, and return the cleanup."""
    handle = flow.submit(*arguments)
    app.drain()
    app.pause("holiday", job=flow)
    app.send_event(handle, "go")
    assert handle.cancel()
    app.resume("holiday", job=flow)
    app.drain()
    return cleanup(app, handle)


@pytest.mark.parametrize("flow", [charging, charging_async])
def test_steps_that_were_about_to_begin_do_not(app, flow):
    after = cancelled_before_it_is_told(app, flow)
    assert (app.details(after).row.state, values(app, after)) == ("completed", ["cleaned up"])
    assert done(app, after) == ["@go", "note"]


@pytest.mark.parametrize("flow", [around, around_plainly])
def test_a_cancel_is_heard_where_the_flow_would_begin_anew(app, flow):
    after = cancelled_before_it_is_told(app, flow, 1)
    assert (app.details(after).row.state, values(app, after)) == ("completed", ["round 1 is cancelled"])


def test_forks_of_a_cleanup(app):
    _, after = cancelled(app, book, 3)
    ((_, again), (_, ordinary)) = app.fork_flows("release", after) + app.fork_flows("reserve", after)
    app.drain()
    # From a step of the cleanup it cleans up once more; from a step before it is the flow again.
    assert (app.details(again).row.state, done(app, again)) == ("completed", ["reserve", "release"])
    assert (app.details(ordinary).row.state, done(app, ordinary)) == ("blocked", ["reserve"])


def test_a_plain_flow_begins_no_step_while_it_waits():
    ran = []

    @hotel.job(retries=0)
    def keep(number: int) -> int:
        ran.append(number)
        return number

    @hotel.flow(name="unwound")
    def unwound(flow):
        try:
            return flow.step(keep, 1).result()
        finally:
            flow.step(keep, 2).result()

    assert (run_flow(unwound), ran) == (1, [1, 2])


@pytest.mark.parametrize("span", [0, "2d"])
def test_a_cleanup_has_a_limit(span):
    with pytest.raises(ValueError, match="CLEANUP_MS_MAX"):
        hotel.flow(cleanup_within=span)(lambda flow: None)
