"""Submits in transactions of connections of `sqlite3` to the store's own file."""

import os
import sqlite3
import subprocess
import sys

import pytest
import shop
from test_remote import program, until

import gristmill

OPTIONS = {"tags": {"customer": "7"}, "priority": 3, "timeout": "10s"}


@pytest.fixture
def app(tmp_path):
    """The jobs on a store in a file, which has a table of the caller's, too. This process does not have it open."""
    app = shop.define(gristmill.App(tmp_path / "jobs.db"))
    with app:
        app.counts()
    with connected(app) as connection:
        connection.execute("CREATE TABLE picture (id INTEGER PRIMARY KEY)")
    connection.close()
    yield app
    app.close()


def connected(app, **options):
    return sqlite3.connect(app.store, timeout=30, **options)


def pictures(app):
    """The number of the caller's rows."""
    connection = connected(app)
    [(count,)] = connection.execute("SELECT count(*) FROM picture")
    connection.close()
    return count


def check_file(app):
    """The command line finds no damage: sums, indexes and packed rows are those of the store's own submits."""
    app.close()
    ended = subprocess.run([program(), "check", app.store], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_jobs_are_committed_and_rolled_back_with_rows(app):
    double = app.jobs["double"]
    connection = connected(app)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    for _ in range(2):
        # The module begins a transaction before the first change, and so does a submit.
        lost = double.submit(1, connection=connection)
        connection.execute("INSERT INTO picture VALUES (1)")
        connection.rollback()
    kept = double.submit(21, connection=connection, **OPTIONS)
    connection.execute("INSERT INTO picture VALUES (2)")
    connection.commit()
    connection.close()
    assert lost.id == kept.id and pictures(app) == 1 and sum(app.counts().values()) == 1
    assert kept.state() == "waiting" and kept.details().tags == {"customer": "7"} and kept.details().row.priority == 3
    assert app.drain() == 1 and kept.result() == 42
    check_file(app)


def test_a_large_submit_is_one_transaction(app):
    double = app.jobs["double"]
    connection = connected(app, isolation_level=None)
    with pytest.raises(ValueError, match="BEGIN IMMEDIATE"):
        double.submit(1, connection=connection)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO picture VALUES (1)")
    many = double.submit_many((["ä\u2028" * 20, number] for number in range(30_000)), connection=connection)
    # The iterable fails in its third portion: the transaction is as before.
    with pytest.raises(ZeroDivisionError):
        double.submit_many((1 / (2_500 - number) for number in range(5_000)), connection=connection)
    more = double.submit_many([number for number, in connection.execute("SELECT id FROM picture")], connection=connection)
    connection.execute("COMMIT")
    connection.close()
    assert len(many) == 30_000 and len(more) == 1 and app.counts()["waiting"] == 30_001
    assert many[29_999].details().payload == ["ä\u2028" * 20, 29_999]
    assert app.drain() == 30_001 and more[0].result() == 2
    check_file(app)


def test_jobs_wait_for_others_and_for_their_time(app):
    double, refuse = app.jobs["double"], app.jobs["refuse_odd"]
    ended, dead, open_ = double.submit(1), refuse.submit(1), double.submit(3, delay="1h")
    app.drain()
    app.close()
    connection = connected(app)
    with connection:
        first = double.submit(5, queue="elsewhere", connection=connection)
        jobs = [double.submit(7, after=after, connection=connection) for after in (ended, dead, open_, first)]
        later = double.submit(8, delay="1h", connection=connection)
    connection.close()
    assert [job.state() for job in jobs] == ["waiting", "cancelled", "blocked", "blocked"]
    assert later.state() == "scheduled"
    app.work(1, queues=["elsewhere", double.queue], until="idle")
    assert jobs[3].result() == 14 and jobs[2].state() == "blocked"
    app.close()
    connection = connected(app)
    with connection, pytest.raises(gristmill.StoreError, match="batch 999"):
        double.submit(1, after="999", connection=connection)
    connection.close()
    assert later.state() == "scheduled"
    check_file(app)


WRITER = """
import sqlite3, sys
import gristmill, shop

app = shop.define(gristmill.App(sys.argv[1]))
connection = sqlite3.connect(sys.argv[1], timeout=60)
for number in range(20):
    with connection:
        connection.execute("INSERT INTO picture DEFAULT VALUES")
        app.jobs["double"].submit_many(range(50), queue=f"queue-{number % 5}", connection=connection)
"""


def test_writers_in_many_processes_do_not_get_in_each_others_way(app, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", shop.__file__.rpartition("/")[0])
    command = [sys.executable, "-c", WRITER, app.store]
    with app.worker(1, queues=[f"queue-{number}" for number in range(5)]):
        writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        # The store's own submits and commits go on beside them.
        own = [app.jobs["double"].submit(number, queue="queue-0") for number in range(50)]
        for writer in writers:
            assert writer.wait(120) == 0, writer.stderr.read()
        assert [handle.result(timeout=60) for handle in own] == [2 * number for number in range(50)]
        until(lambda: app.counts()["completed"] == 2_050)
    counts = app.counts()
    app.close()
    assert pictures(app) == 40 and counts["completed"] == 2_050 == sum(counts.values())
    check_file(app)


@pytest.mark.parametrize("commits", [False, True])
def test_a_killed_process_leaves_all_or_nothing(app, commits, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", shop.__file__.rpartition("/")[0])
    source = f"""
import os, signal, sqlite3
import gristmill, shop

app = shop.define(gristmill.App({app.store!r}))
connection = sqlite3.connect(app.store, cached_statements=1)
# Pages go into the log before COMMIT.
connection.execute("PRAGMA cache_size = 10")
connection.execute("INSERT INTO picture VALUES (1)")
app.jobs["double"].submit_many(range(5_000), connection=connection)
if {commits}:
    connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", source]).returncode == -9
    assert pictures(app) == commits
    assert app.counts()["waiting"] == (5_000 if commits else 0)
    assert app.jobs["double"].submit(4).state() == "waiting"
    assert app.drain() == (5_001 if commits else 1)
    check_file(app)


def test_sqlalchemy_and_django_submit_over_sqlite(app):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    double = app.jobs["double"]
    engine = sqlalchemy.create_engine(f"sqlite:///{app.store}", poolclass=sqlalchemy.NullPool)
    with Session(engine) as session:
        lost = double.submit(1, connection=session)
        session.rollback()
        kept = double.submit(21, connection=session, **OPTIONS)
        session.execute(sqlalchemy.text("INSERT INTO picture VALUES (1)"))
        session.commit()
    with engine.connect() as connection:
        double.submit(2, connection=connection)
        connection.rollback()
    with engine.begin() as connection:
        many = double.submit_many([1, 2], connection=connection)
    assert lost.id == kept.id and pictures(app) == 1 and app.counts()["waiting"] == 3
    assert app.drain() == 3 and many.results() == [2, 4]
    app.close()

    source = f"""
import django
from django.conf import settings
settings.configure(DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {app.store!r}}}}})
django.setup()
from django.db import connection, transaction
import gristmill, shop
app = shop.define(gristmill.App({app.store!r}))
try:
    app.jobs["double"].submit(1, connection=connection)
except ValueError as error:
    assert "transaction.atomic" in str(error)
with transaction.atomic():
    app.jobs["double"].submit(3, connection=connection)
    connection.cursor().execute("INSERT INTO picture VALUES (2)")
"""
    ended = subprocess.run(
        [sys.executable, "-c", source], cwd=shop.__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert pictures(app) == 2 and app.drain() == 1


def test_events_tell_of_them(app):
    events = app.events(timeout=30)
    source = f"""
import sqlite3, gristmill
connection = sqlite3.connect({app.store!r}, timeout=30)
with connection:
    gristmill.App({app.store!r}).job(name="double")(abs).submit(1, connection=connection)
"""
    # The listener keeps the store open here, so that another process submits.
    app.jobs["double"].submit(0)
    subprocess.run([sys.executable, "-c", source], check=True)
    found = [next(events) for _ in range(2)]
    assert [(event.type, event.jobs) for event in found] == [("submitted", ["1:0"]), ("submitted", ["2:0"])]


def test_a_clock_of_a_test_is_heeded(gristmill_app, gristmill_clock):
    shop.define(gristmill_app)
    double = gristmill_app.jobs["double"]
    connection = connected(gristmill_app)
    with connection:
        later = double.submit(1, delay="1h", connection=connection)
    connection.close()
    assert gristmill_app.drain() == 0 and later.details().row.submitted_at == gristmill_clock.now
    gristmill_clock.advance("1h")
    assert gristmill_app.drain() == 1


def test_an_eager_job_runs_at_once_within_a_transaction_too(gristmill_eager):
    shop.define(gristmill_eager)
    assert gristmill_eager.jobs["double"].submit(2, connection=sqlite3.connect(":memory:")).result() == 4


def test_two_libraries_of_sqlite_do_not_share_a_file(app, monkeypatch):
    double = app.jobs["double"]
    connection = connected(app)
    monkeypatch.setattr("gristmill._forks.CLOSING_S", 0.0)
    with connection:
        handle = double.submit(1, connection=connection)
    with pytest.raises(RuntimeError, match="close those connections"):
        handle.state()
    connection.close()
    assert handle.state() == "waiting"
    # Its submit is refused as long as the store is open.
    connection = sqlite3.connect(":memory:")
    with pytest.raises(RuntimeError, match="as a store"):
        double.submit(1, connection=connection)
    connection.close()


def test_what_cannot_serve_is_refused(app, tmp_path):
    double = app.jobs["double"]
    empty = gristmill.App(tmp_path / "empty.db").job(shop.double.function)
    sqlite3.connect(empty.app.store).execute("CREATE TABLE t (x)").connection.close()
    connection, other, memory = connected(app), sqlite3.connect(empty.app.store), sqlite3.connect(":memory:")
    server = gristmill.App("http://127.0.0.1:1").job(shop.double.function)
    refusals = [
        (TypeError, "is a object", lambda: double.submit(1, connection=object())),
        (ValueError, "connect to that file", lambda: double.submit(1, connection=other)),
        (ValueError, "no file", lambda: double.submit(1, connection=memory)),
        (ValueError, "UNIQUE", lambda: double.submit(1, key="k", connection=connection)),
        (ValueError, "cached=", lambda: double.submit(1, cached="1h", connection=connection)),
        (TypeError, "a server", lambda: server.submit(1, connection=connection)),
        (gristmill.StoreError, "has no store", lambda: empty.submit(1, connection=other)),
        (TypeError, "JSON", lambda: double.submit(object(), connection=connection)),
    ]
    for error, reason, refused in refusals:
        with pytest.raises(error, match=reason):
            refused()
    # Nobody waits for a transaction that a refused submit has begun.
    assert not any(opened.in_transaction for opened in (connection, other, memory))
    for opened in (connection, other, memory):
        opened.close()
    assert sum(app.counts().values()) == 0


def test_a_closed_store_leaves_its_file_to_others(tmp_path):
    """Where two copies of SQLite have one file open in a process, closing one loses the locks of both."""
    for number in range(50):
        path = tmp_path / f"{number}.db"
        with gristmill.App(path) as app:
            app.counts()
        opened = (os.path.realpath(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd"))
        assert not [name for name in opened if name.startswith(str(path))]
