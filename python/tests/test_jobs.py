"""Submitting, results, types, retries."""

import asyncio
import dataclasses
import datetime
import decimal
import json
import math
import re

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
    many = jobs["add"].submit_many([(5, 6), {"left": 7}], starmap=True)
    with pytest.raises(TypeError):
        jobs["add"].submit()
    with pytest.raises(TypeError, match="too many positional arguments"):
        jobs["nothing"].submit(1)
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
    stored = []
    app.engine().submit_many(nothing.common(), [payload], None, stored)
    assert len(stored) == 1
    run(app, "same")
    assert handle.result() == json.loads(json.dumps(payload))


def test_what_json_cannot_hold_is_refused_with_its_type(app, jobs):
    loop = []
    loop.append(loop)
    refused = [(object(), "type object cannot"), (math.nan, "NaN"), ({(1,): 2}, "tuple"), (loop, "nests"), ("\ud800", "surrogate")]
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


def test_a_failure_that_nobody_catches_shows_the_line_of_the_job(run_python):
    ended = run_python(
        """
        import gristmill
        app = gristmill.App("jobs.db")
        def invert(number):
            return 1 / number
        list(app.map(invert, [0]))
        """,
        check=False,
    )
    assert "return 1 / number" in ended.stderr
    assert ended.stderr.endswith("JobFailed: job 1:0 ended as dead: ZeroDivisionError: division by zero\n")


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


def test_many_are_submitted_once_by_their_keys(app, jobs):
    double = jobs["double"]
    first = double.submit_many([1, 2, 3], key=str)
    # Two of them are stored; the handles of their items are those of the stored jobs.
    again = double.submit_many([3, 4, 1, 5], key=str)
    assert (again[0], again[2]) == (first[2], first[0])
    assert len({handle.id for handle in [*first, *again]}) == 5
    later = double.submit(7, after=again)
    many = double.submit_many(range(12_000), key=lambda number: f"many {number}")
    assert len(many) == len(set(many)) == 12_000 and len(many.batches) <= 12
    app.drain()
    assert (first.results(), again.results(), later.result()) == ([2, 4, 6], [6, 8, 2, 10], 14)
    assert many.results() == [2 * number for number in range(12_000)]
    once = double.submit_many([1], key=str, unique_for="1h")
    assert double.submit_many([1], key=str, unique_for="1h")[0] == once[0]
    with pytest.raises(TypeError, match="item 1: its key"):
        double.submit_many(["a", "b"], key=lambda item: item if item == "a" else 7)
    with pytest.raises(ValueError, match="on_duplicate= and unique_for="):
        double.submit_many([1], unique_for="1h")


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


def test_arguments_can_be_named(app, jobs):
    add = jobs["add"]
    handles = [add.submit(left=1, right=2), add.submit(1, right=3), jobs["double"].submit(number=4)]
    run(app, "add", "double")
    assert [handle.result() for handle in handles] == [3, 4, 8]
    assert asyncio.run(_submitted_with_names(add)) == [{"left": 5, "right": 6}]
    with pytest.raises(TypeError, match=r"the arguments \(1, left=2\) do not fit .* multiple values"):
        add.submit(1, left=2)


async def _submitted_with_names(add):
    return [(await add.submit_async(left=5, right=6)).details().payload]


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (lambda job, app: job.submit(1, retrys=2), TypeError, "has no option retrys=: did you mean retries="),
        (lambda job, app: job.submit_many([1], key="a"), TypeError, "give a function of the item"),
        (lambda job, app: job.submit(1, on_duplicate="reject"), ValueError, "give key=, too"),
        (lambda job, app: job.submit(1, key="a", on_duplicate="drop"), ValueError, "give one of 'skip'"),
        (lambda job, app: job.submit(1, key=5), TypeError, "give text, such as '5'"),
        (lambda job, app: job.submit(1, priority=10**6), ValueError, "whole number from -32768 to 32,767"),
        (lambda job, app: job.submit(1, retries="3"), TypeError, "whole number from 0"),
        (lambda job, app: job.submit(1, timeout=0), ValueError, "no attempt could end in time"),
        (lambda job, app: job.submit(1, delay=1e300), ValueError, "more than 1,000 years"),
        (lambda job, app: job.submit(1, delay=datetime.datetime.now()), TypeError, "is a datetime, and not a span"),
        (lambda job, app: job.submit(1, tags=["a"]), TypeError, "give a dict of names and values"),
        (lambda job, app: job.submit(1, tags={1: "a"}), TypeError, "a tag's name is 1"),
        (lambda job, app: list(job.map([1], processes=0)), ValueError, "processes=0"),
        (lambda job, app: list(app.map(abs, [1], proceses=2)), TypeError, "did you mean processes="),
        (lambda job, app: app.job(threads=0)(abs), ValueError, "threads=0"),
        (lambda job, app: app.job(backoff="slow")(abs), ValueError, "give one of 'jitter'"),
        (lambda job, app: app.batch(key="text")(abs), TypeError, "give a function of a payload"),
        (lambda job, app: app.worker(0), ValueError, "concurrency=0"),
        (lambda job, app: app.work(jobs="triple"), ValueError, "the application has no job 'triple'; it has "),
        (lambda job, app: list(app.find(state="dead")), TypeError, "did you mean states="),
        (lambda job, app: app.cancel(kind="double"), TypeError, "has no option kind="),
        (lambda job, app: list(app.find(job=5)), TypeError, "give a job of the application"),
        (lambda job, app: app.pause("x", jobs="double"), TypeError, "did you mean job="),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(app, jobs, call, error, reason):
    with pytest.raises(error, match=re.escape(reason)):
        call(jobs["double"], app)
    assert sum(app.counts().values()) == 0


def test_one_queue_or_job_is_given_without_a_list(app, jobs):
    jobs["double"].submit(1)
    assert app.work(1, jobs=jobs["double"], queues="default", until="idle") == 1


def test_waiting_takes_spans(app, jobs):
    handle = jobs["double"].submit(1)
    for timeout in ("1ms", datetime.timedelta(milliseconds=1), 0, -1):
        with pytest.raises(gristmill.ResultTimeout):
            handle.result(timeout=timeout)


def test_values_of_the_standard_library_and_numpy_are_kept(app):
    import numpy

    seconds = numpy.array(["2001-02-03T04:05:06"], dtype="datetime64[s]")
    values = [decimal.Decimal("1.10"), seconds, seconds.astype("datetime64[ns]"), seconds.astype("datetime64[ns]")[0], numpy.int64(3)]
    moment = "2001-02-03T04:05:06"
    assert list(app.map(shop.same, values)) == ["1.10", [moment], [moment], moment, 3]
    assert list(app.map(shop.double_price, [decimal.Decimal("1.10")])) == [decimal.Decimal("2.20")]
    with pytest.raises(TypeError, match="base64"):
        list(app.map(shop.same, [b"bytes"]))


def test_the_item_that_cannot_be_stored_is_named(app, jobs):
    items = [0.0] * 1_500 + [math.nan]
    with pytest.raises(TypeError, match="^item 1500: NaN in a payload"):
        jobs["double"].submit_many(items)
    with pytest.raises(TypeError, match="^item 1500: NaN in a payload"):
        list(jobs["double"].map(items))
    with pytest.raises(TypeError, match="^NaN in a payload"):
        jobs["double"].submit(math.nan)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("", "is no place of a store"),
        (":memory:", "gristmill.testing"),
        ("mysql://host/shop", "mysql://… is no place"),
        ("sqlite:///jobs.db", "is no place"),
    ],
)
def test_a_place_that_can_hold_no_store_is_refused(place, reason):
    with pytest.raises(ValueError, match=reason):
        gristmill.App(place)


def test_a_place_that_cannot_be_opened_is_explained(tmp_path):
    (tmp_path / "text.db").write_text("no database" * 1_000)
    for place, reason in [
        (tmp_path, "it is a folder; name a file in it"),
        (tmp_path / "none" / "jobs.db", "its folder does not exist; make the folder"),
        (tmp_path / "text.db", "it is not a SQLite database; choose another file$"),
        ("/proc/jobs.db", "its folder cannot be written; name a file elsewhere"),
    ]:
        with pytest.raises(gristmill.StoreError, match=reason):
            gristmill.App(place).counts()


def test_what_is_logged_has_its_level(app, jobs):
    handle = jobs["log_all"].submit(None)
    run(app, "log_all")
    assert handle.result() is None
    log = handle.log()
    assert "INFO:shop:begins" in log and "WARNING:shop:careful" in log and "printed" in log


def test_options_are_checked(app):
    with pytest.raises(ValueError, match="retries=-1"):
        app.job(retries=-1)(lambda payload: payload)
    with pytest.raises(ValueError, match="'5 parsecs' is not a span"):
        app.job(timeout="5 parsecs")(lambda payload: payload)
    app.job(name="one")(dataclasses.asdict)
    with pytest.raises(ValueError, match="already"):
        app.job(name="one")(json.dumps)
    with pytest.raises(ValueError, match="no jobs"):
        gristmill.App(app.store).work()
    with pytest.raises(gristmill.StoreError):
        gristmill.App("/nowhere/at/all.db").counts()


def test_the_package_says_its_version():
    import importlib.metadata

    assert gristmill.__version__ == importlib.metadata.version("gristmill")
