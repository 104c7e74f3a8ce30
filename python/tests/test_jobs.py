"""Submitting, results, types, retries."""

import asyncio
import dataclasses
import json
import math

import pytest
import shop

import gristmill


@pytest.fixture
def jobs(app):
    shop.define(app)
    return app.jobs


def run(app, *kinds):
    return app.work(1, jobs=kinds, until="idle")


def test_a_result_is_waited_for_and_awaited(app, jobs):
    handle = jobs["double"].submit(21)
    assert handle.state() == "waiting"
    with pytest.raises(gristmill.ResultTimeout) as raised:
        handle.result(timeout=0.05)
    assert isinstance(raised.value, TimeoutError)
    with app.worker(1, jobs=["double"]):
        assert handle.result(timeout=20) == 42

        async def both():
            first = await jobs["double"].submit_async(1)
            return await asyncio.gather(first, jobs["double"].submit(2))

        assert asyncio.run(both()) == [2, 4]
    assert handle.state() == "completed"


def test_many_jobs_are_submitted_packed_and_read_in_order(app, jobs):
    submitted = jobs["double"].submit_many(number for number in range(2_500))
    assert len(submitted) == 2_500 and len(submitted.batches) == 3
    assert run(app, "double") == 2_500
    assert submitted[2_499].result() == 4_998
    assert submitted[-1] == submitted[2_499] and submitted[998:1_001][2].id == f"{submitted.batches[1][0]}:0"
    assert submitted.results(timeout=10) == [2 * number for number in range(2_500)]
    with pytest.raises(IndexError):
        submitted[2_500]


def test_arguments_become_payloads(app, jobs):
    handles = [jobs["add"].submit(1), jobs["add"].submit(1, 2), jobs["nothing"].submit()]
    many = jobs["add"].submit_many([(5, 6), {"left": 7}])
    with pytest.raises(TypeError):
        jobs["add"].submit()
    with pytest.raises(TypeError, match="several parameters"):
        jobs["add"].submit_many([3])
    run(app, "add", "nothing")
    assert [handle.result() for handle in handles] == [11, 3, "done"]
    assert many.results() == [11, 17]
    assert jobs["add"](1, right=2) == 3


def test_a_default_is_the_payload_where_none_is_given(app):
    handle = app.job(lambda number=5: number, name="default").submit()
    assert app.engine().payloads("default") == ["5"]
    run(app, "default")
    assert handle.result() == 5


def test_types_are_kept_both_ways(app, jobs):
    from pydantic import BaseModel

    class Model(BaseModel):
        pictures: list[int]

    picture = shop.Picture("a", 10, shop.Size.large)
    half = jobs["halve"].submit(picture)
    labelled = jobs["label"].submit(picture)
    model = jobs["double"].submit(Model(pictures=[1]))
    run(app, "halve", "label", "double")
    assert half.result() == shop.Picture("a", 5, shop.Size.large)
    assert labelled.result() == {"text": "a", "picture": picture}
    with pytest.raises(gristmill.JobFailed, match="TypeError"):
        model.result()


@pytest.mark.parametrize(
    "payload",
    [None, True, -1, 2**63, -(2**70), 1.5, 1e300, "", "ä\n\"\\\u2028", [1, [2]], (1, 2), {"a": {"b": None}}, {1: 2, None: 3, True: 4}],
)
def test_payloads_are_what_json_makes_of_them(app, jobs, payload):
    nothing = app.job(lambda payload: payload, name="same")
    handle = nothing.submit(payload)
    stored = app.engine().submit_many(nothing.common(), [payload], None)
    assert stored
    run(app, "same")
    assert handle.result() == json.loads(json.dumps(payload))


def test_what_json_cannot_hold_is_refused_with_its_type(app, jobs):
    loop = []
    loop.append(loop)
    refused = [(object(), "a object cannot"), (math.nan, "NaN"), ({(1,): 2}, "tuple"), (loop, "nests"), ("\ud800", "surrogate")]
    for payload, reason in refused:
        with pytest.raises((TypeError, ValueError), match=reason):
            jobs["double"].submit(payload)
    assert sum(app.counts().values()) == 0


def test_failures_tell_the_exception(app, jobs):
    handle = jobs["refuse_odd"].submit(3)
    run(app, "refuse_odd")
    with pytest.raises(gristmill.JobFailed, match="ValueError: 3 is odd") as raised:
        handle.result()
    failed = raised.value
    assert (failed.job, failed.state, failed.type, failed.message) == (handle.id, "dead", "ValueError", "3 is odd")
    assert "in refuse_odd" in failed.job_traceback
    import pickle

    assert str(pickle.loads(pickle.dumps(failed))) == str(failed)
    with pytest.raises(gristmill.JobFailed):
        asyncio.run(_await(handle))


async def _await(handle):
    return await handle


def test_a_job_has_three_attempts_by_default(app):
    job = app.job(lambda payload: gristmill.job().attempt, name="attempts")
    assert job.options["retry"]["attempts_max"] == 3
    assert app.batch(lambda payloads: payloads, name="batched").options["retry"]["attempts_max"] == 3


def test_retries_timeouts_and_crashes(app, jobs):
    third, never = jobs["succeed_on_third"].submit(0), jobs["fail_for_good"].submit(0)
    slow, dead = jobs["sleep_for_ever"].submit(0), jobs["die"].submit(0)
    run(app, "succeed_on_third", "fail_for_good", "sleep_for_ever", "die")
    assert third.result() == 3
    for handle, error_type in [(never, "Fail"), (slow, "timeout"), (dead, "crash|exit")]:
        with pytest.raises(gristmill.JobFailed) as raised:
            handle.result()
        assert raised.value.type in error_type.split("|"), raised.value


def test_a_job_knows_itself_and_its_output_is_its_log(app, jobs):
    handle = jobs["say"].submit("ä", tags={"customer": "x"})
    run(app, "say")
    assert handle.result() == [handle.id, "say", 1, {"customer": "x"}]
    assert handle.log().startswith("printed ä\n") and "logged" in handle.log()
    assert gristmill.job() is None
    with pytest.raises(RuntimeError):
        gristmill.spawn([1])


def test_delays_keys_and_prerequisites(app, jobs):
    double = jobs["double"]
    later = double.submit(1, delay="1h")
    assert later.state() == "scheduled"
    first = double.submit(2, key="k")
    assert double.submit(3, key="k") == first
    with pytest.raises(gristmill.StoreError, match="k"):
        double.submit(3, key="k", on_duplicate="reject")
    after = jobs["refuse_odd"].submit(4, after=first)
    cancelled = double.submit(5, after=[jobs["refuse_odd"].submit(1)])
    assert after.state() == "blocked"
    assert later.cancel() and not later.cancel()
    run(app, "double", "refuse_odd")
    assert after.result() == 4
    for handle in (later, cancelled):
        with pytest.raises(gristmill.JobFailed, match="cancelled"):
            handle.result()


def test_a_job_that_no_worker_starts_in_time_expires(app, jobs):
    handle = jobs["double"].submit(1, expires=0.001)
    kept = jobs["double"].submit(2, expires="1h")
    with pytest.raises(gristmill.JobFailed, match="expired"):
        handle.result(timeout=60)
    run(app, "double")
    assert kept.result() == 4


def test_asynchronous_jobs_share_a_process(app, jobs):
    submitted = jobs["meet"].submit_many(range(200))
    run(app, "meet")
    assert submitted.results() == list(range(200))


def test_options_are_checked(app):
    with pytest.raises(ValueError, match="retries=-1"):
        app.job(retries=-1)(lambda payload: payload)
    with pytest.raises(ValueError, match="'5 parsecs' is not a span"):
        app.job(timeout="5 parsecs")(lambda payload: payload)
    with pytest.raises(TypeError, match="have names"):
        app.job(lambda *payloads: payloads)
    app.job(name="one")(dataclasses.asdict)
    with pytest.raises(ValueError, match="already"):
        app.job(name="one")(json.dumps)
    with pytest.raises(ValueError, match="no jobs"):
        gristmill.App(app.store).work()
    with pytest.raises(gristmill.StoreError):
        gristmill.App("/nowhere/at/all.db").counts()
