"""What the package offers to tests of applications."""

import asyncio
import datetime
import os

import pytest
import shop

import gristmill
from gristmill.testing import assert_submitted, eager, submitted, temporary_store


def test_the_clock_brings_delays_retries_and_schedules_about(gristmill_app, gristmill_clock):
    @gristmill_app.job(retries=1, retry_delay="10m", backoff="constant")
    def fail_once(payload):
        job = gristmill.job()
        if job.attempt == 1:
            raise ValueError("not yet")
        return job.attempt

    later = fail_once.submit(1, delay="1h")
    gristmill_app.schedule("daily", fail_once, 2, cron="0 0 * * *")
    assert gristmill_app.drain() == 0 and later.state() == "scheduled"
    gristmill_clock.advance("59m")
    assert gristmill_app.drain() == 0
    gristmill_clock.advance("1m")
    assert gristmill_app.drain() == 0 and later.state() == "scheduled"
    gristmill_clock.advance("10m")
    assert gristmill_app.drain() == 1 and later.result() == 2
    assert later.details().row.finished_at == gristmill_clock.now
    assert gristmill_app.find_schedule("daily").fired == 0
    gristmill_clock.advance("1d")
    assert gristmill_app.find_schedule("daily").fired == 1
    assert_submitted(fail_once, 1, 2)


def test_the_clock_lets_jobs_expire(gristmill_app, gristmill_clock):
    job = gristmill_app.job(shop.double.function)
    handle = job.submit(1, expires="1m")
    gristmill_clock.advance(datetime.timedelta(minutes=2))
    assert handle.state() == "expired"


def test_each_store_is_empty_and_private(gristmill_app):
    gristmill_app.job(shop.double.function).submit(1)
    places = []
    for _ in range(2):
        with temporary_store(gristmill.App()) as app:
            places.append(app.store)
            assert os.stat(app.store).st_mode & 0o777 == 0o600
            assert sum(app.counts().values()) == 0 and app.stats()["workers"] == 0
            assert app.job(shop.double.function).submit(1).id == "1:0"
    assert places[0] != places[1] and not os.path.exists(places[0])


def test_a_store_without_a_test_clock_cannot_be_moved(app):
    with pytest.raises(ValueError, match="machine's clock"):
        app.engine().advance(1)


def test_what_was_submitted_is_asserted(gristmill_app):
    shop.define(gristmill_app)
    halve, add = gristmill_app.jobs["halve"], gristmill_app.jobs["add"]
    halve.submit(shop.Picture("a", 10))
    add.submit(1, 2)
    assert_submitted(halve, shop.Picture("a", 10))
    assert submitted(add) == [{"left": 1, "right": 2}]
    with pytest.raises(AssertionError, match="was submitted with"):
        assert_submitted(add)
    with pytest.raises(AssertionError, match="not with"):
        assert_submitted(add, {"left": 1, "right": 3})


def test_eager_jobs_run_when_they_are_submitted(gristmill_eager):
    shop.define(gristmill_eager)
    jobs = gristmill_eager.jobs
    assert jobs["double"].submit(21).result() == 42
    assert jobs["halve"].submit(shop.Picture("a", 8)).result() == shop.Picture("a", 4)
    assert jobs["add"].submit_many([(1, 2), (3, 4)], starmap=True).results() == [3, 7]
    assert jobs["inverse"].submit(4).result() == 0.25 and jobs["Embed"].submit("aaa").result()[1] == 3
    assert list(jobs["double"].map([1, 2])) == [2, 4]
    assert submitted(jobs["double"]) == [21, 1, 2]
    assert gristmill_eager.counts()["completed"] == 8 and gristmill_eager.drain() == 0


def test_eager_jobs_fail_and_are_retried(gristmill_eager):
    shop.define(gristmill_eager)
    jobs = gristmill_eager.jobs
    assert jobs["succeed_on_third"].submit(0).result() == 3
    for name, payload, error_type in [("fail_for_good", 0, "Fail"), ("refuse_odd", 1, "ValueError"), ("inverse", 0, "ZeroDivisionError")]:
        handle = jobs[name].submit(payload)
        assert handle.state() == "dead"
        with pytest.raises(gristmill.JobFailed) as raised:
            handle.result()
        assert raised.value.type == error_type
    values = list(jobs["refuse_odd"].map([1, 2], return_exceptions=True))
    assert isinstance(values[0], gristmill.JobFailed) and values[1] == 2
    with pytest.raises(gristmill.JobFailed):
        jobs["refuse_odd"].submit_many([2, 1]).results()


def test_eager_jobs_are_awaited_within_a_loop(gristmill_eager):
    @gristmill_eager.job
    async def reply(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    async def both():
        return await asyncio.gather(reply.submit(1), await reply.submit_async(2))

    assert asyncio.run(both()) == [2, 3]


def test_an_application_is_eager_only_within_the_block(app):
    shop.define(app)
    with eager(app):
        assert app.jobs["double"].submit(1).state() == "completed"
        with pytest.raises(gristmill.StoreError, match="stores nothing"):
            app.stats()
    assert app.jobs["double"].submit(1).state() == "waiting"
    assert gristmill.job() is None
