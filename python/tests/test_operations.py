"""Schedules, limits, pauses, listings, history, statistics, events: on a file, by the operations of the API."""

import asyncio
import datetime

import pytest
import shop

import gristmill


@pytest.fixture
def jobs(app):
    shop.define(app)
    return app.jobs


def test_jobs_are_found_by_their_conditions(app, jobs):
    for customer in ("7", "8"):
        jobs["double"].submit_many(range(1_200), tags={"customer": customer})
    jobs["refuse_odd"].submit(1, key="k-1", group="acme")
    app.work(1, jobs=["refuse_odd"], until="idle")
    # More than one page.
    assert sum(1 for _ in app.find(job=jobs["double"])) == 2_400
    assert len(list(app.find(tags={"customer": "7"}, limit=1_100))) == 1_100
    assert app.counts(tags={"customer": "7"})["waiting"] == 1_200
    assert app.counts(tags={"customer": None})["waiting"] == 2_400
    assert list(app.tag_values("customer")) == [("7", 1_200), ("8", 1_200)]
    [dead] = app.find(states="dead", key_prefix="k-", group="acme")
    assert (dead.kind, dead.attempt, dead.error) == ("refuse_odd", 1, "1 is odd")
    assert datetime.datetime.now(datetime.timezone.utc) - dead.finished_at < datetime.timedelta(minutes=5)
    newest = list(app.find(newest=True, limit=2))
    assert newest[0] == dead and newest[1].kind == "double"
    assert list(app.find(since=dead.submitted_at + datetime.timedelta(hours=1))) == []
    urgent = jobs["double"].submit(1, priority=5)
    following = list(app.find(next=True, limit=3))
    assert [row.id for row in following][0] == urgent.id and following[1].id.endswith(":0")
    assert list(app.find(next=True, job=jobs["refuse_odd"])) == []
    with pytest.raises(gristmill.StoreError, match="no condition but"):
        list(app.find(next=True, group="acme"))
    details = app.details(dead.id)
    assert (details.payload, details.key, details.failures[0].type) == (1, "k-1", "ValueError")
    assert app.details("99999:0") is None
    with pytest.raises(TypeError, match="colour"):
        app.find(colour="red")
    with pytest.raises(gristmill.StoreError, match="not a state|state"):
        list(app.find(states="running?"))
    with pytest.raises(ValueError, match="comma"):
        app.find(tags={"customer": "7,8"})


def test_jobs_are_changed_by_id_and_by_conditions(app, jobs):
    handles = list(jobs["double"].submit_many(range(4)))
    assert app.pause_jobs("look", handles[0], handles[1]) == 2
    assert handles[0].state() == "paused"
    assert app.resume_jobs("look", handles[0]) == 1 and app.resume_jobs(None, states="paused") == 1
    assert app.prioritise(9, job="double") == 4 and handles[0].details().row.priority == 9
    assert app.cancel(handles[0]) == 1 and app.cancel(handles[0]) == 0
    assert app.cancel(job=jobs["double"]) == 3
    assert app.retry(states=["cancelled"]) == 4
    jobs["refuse_odd"].submit(1)
    app.work(1, jobs=["refuse_odd"], until="idle")
    assert app.discard(states="dead") == 1
    with pytest.raises(gristmill.StoreError, match="would select all jobs"):
        app.cancel()
    with pytest.raises(ValueError, match="either jobs or conditions"):
        app.cancel(handles[0], job="double")


def test_schedules_are_put_changed_and_deleted(app, jobs):
    put = app.schedule("nightly", jobs["add"], 1, 2, cron="30 4 * * *", time_zone="Europe/Berlin", tags={"by": "clock"})
    assert (put.kind, put.payload, put.is_paused) == ("add", {"left": 1, "right": 2}, False)
    assert put.next_at > datetime.datetime.now(datetime.timezone.utc)
    app.schedule("hourly", jobs["double"], 3, every="1h", overlap="skip")
    assert [schedule.name for schedule in app.schedules()] == ["hourly", "nightly"]
    assert app.pause_schedule("nightly").is_paused and not app.resume_schedule("nightly").is_paused
    triggered = app.trigger_schedule("nightly")
    assert triggered.fired == 1
    [job] = app.find(tags={"by": "clock"})
    assert job.id == triggered.last_job
    app.work(1, jobs=["add"], until="idle")
    assert app.details(job.id).value == 3
    assert app.delete_schedule("nightly") and not app.delete_schedule("nightly")
    assert app.find_schedule("nightly") is None
    with pytest.raises(ValueError, match="either cron= or every="):
        app.schedule("never", jobs["double"], 1)
    with pytest.raises(ValueError, match=r"takes no time_zone=.*@daily"):
        app.schedule("daily", jobs["double"], 1, every="1d", time_zone="Europe/Berlin")
    with pytest.raises(gristmill.StoreError, match="cron"):
        app.schedule("wrong", jobs["double"], 1, cron="every day")


def test_a_schedule_of_a_cached_job_runs_it_once(app):
    @app.job(cached="1h")
    def report(day: str) -> str:
        return f"report of {day}"

    app.schedule("reports", report, "monday", every="1h")
    first = app.trigger_schedule("reports").last_job
    assert app.work(1, jobs=["report"], until="idle") == 1
    second = app.trigger_schedule("reports").last_job
    assert second != first and app.details(second).row.state == "completed"
    assert app.details(second).value == "report of monday"
    assert app.work(1, jobs=["report"], until="idle") == 0


def test_the_backlog_counts_what_is_left(app, jobs):
    jobs["double"].submit_many(range(3))
    jobs["double"].submit(1, delay="1h")
    jobs["refuse_odd"].submit(1, queue="other")
    backlog = app.backlog(job=jobs["double"])
    assert (backlog["jobs"], backlog["due"], backlog["running"], backlog["later"]) == (3, 3, 0, 1)
    assert app.backlog()["jobs"] == 4 and app.backlog(queue="other")["jobs"] == 1


def test_a_pause_holds_jobs_until_it_is_resumed(app, jobs):
    handle = jobs["double"].submit(4)
    app.pause("deploy", job=jobs["double"])
    assert app.work(1, jobs=["double"], until="idle") == 0
    [control] = app.controls()
    assert (control.effect, control.values["reason"], control.kind) == ("pause", "deploy", "double")
    assert not app.resume("deploy") and app.resume("deploy", job="double")
    assert app.work(1, jobs=["double"], until="idle") == 1 and handle.result() == 8


def test_limits_and_shares_are_put_and_lifted(app, jobs):
    app.limit(0, queue="default")
    app.limit(rate=10, per="1m", group="acme")
    app.limit(2, job="double", each_group=True)
    app.share(3, minimum=1, queue="mail")
    handle = jobs["double"].submit(1)
    assert app.work(1, jobs=["double"], until="idle") == 0
    effects = {control.effect: control for control in app.controls()}
    assert effects["rate"].values == {"jobs": 10, "period_ms": 60_000, "burst": 10} and effects["rate"].group == "acme"
    assert effects["share"].values == {"weight": 3, "jobs_min": 1}
    assert app.lift("concurrency", queue="default") == 1
    assert app.work(1, jobs=["double"], until="idle") == 1 and handle.result() == 2
    assert app.lift("concurrency", "rate", "share") == 3 and app.controls() == []
    with pytest.raises(ValueError, match="either running= or rate="):
        app.limit(queue="default")
    with pytest.raises(gristmill.StoreError, match="would lift all"):
        app.lift()


def test_history_and_statistics_count_what_ended(app, jobs):
    jobs["double"].submit_many(range(10))
    jobs["refuse_odd"].submit(1)
    app.work(1, jobs=["double", "refuse_odd"], until="idle")
    rows = {row.kind: row for row in app.history()}
    assert (rows["double"].completed, rows["refuse_odd"].dead) == (10, 1)
    assert 0 <= rows["double"].p50_s <= rows["double"].p99_s and rows["refuse_odd"].p50_s is None
    [hour] = app.history(job=jobs["double"], by="hour")
    assert hour.since.minute == 0 and hour.completed == 10
    assert app.history(until=hour.since - datetime.timedelta(days=1)) == []
    stats = app.stats()
    assert stats["failures"] == 1 and stats["size_bytes"] > 0
    assert {row["kind"]: row["completed"] for row in stats["queues"]} == {"double": 10, "refuse_odd": 0}


def test_events_are_iterated_and_resumed(app, jobs):
    with app.events(timeout=20) as events:
        handle = jobs["double"].submit(1)
        app.work(1, jobs=["double"], until="idle")
        seen = []
        for event in events:
            seen.append(event)
            if event.type == "completed":
                break
    assert [event.type for event in seen if event.type != "progress"] == ["submitted", "completed"]
    assert all(event.jobs == [handle.id] for event in seen if event.batch is not None)
    assert [event.type for event in app.events(after=seen[0].cursor, timeout=0.1) if event.batch][:1] == ["completed"]
    assert app.events().take(0) is None
    with pytest.raises(ValueError, match="cursor"):
        app.events(after="yesterday")


def test_events_are_awaited(app, jobs):
    async def listen():
        events = app.events(timeout=20)
        handle = await jobs["double"].submit_async(1)
        async for event in events:
            return event, handle

    event, handle = asyncio.run(listen())
    assert (event.type, event.jobs) == ("submitted", [handle.id])

    async def give_up():
        return [event async for event in app.events(timeout=0)]

    assert asyncio.run(give_up()) == []
