"""Submits in transactions of connections to the store's PostgreSQL database."""

import asyncio
import sqlite3

import pytest
import shop
from test_postgres import postgres  # noqa: F401: a fixture

import gristmill


@pytest.fixture
def app(postgres):  # noqa: F811
    app = gristmill.App(postgres.new_database())
    app.counts()
    yield shop.define(app)
    app.close()


def check(app, handle):
    """The job runs with its payload and options."""
    assert handle.state() == "waiting"
    assert handle.details().tags == {"customer": "7"} and handle.details().row.priority == 3
    app.drain()
    assert handle.result() == 42


OPTIONS = {"tags": {"customer": "7"}, "priority": 3, "timeout": "10s"}


def test_psycopg_commits_and_rolls_back_jobs_with_its_rows(app):
    psycopg = pytest.importorskip("psycopg")
    from psycopg.rows import dict_row

    double = app.jobs["double"]
    with psycopg.connect(app.store, row_factory=dict_row) as connection:
        connection.execute("CREATE TABLE picture (id bigint)")
        lost = double.submit(1, connection=connection)
        connection.rollback()
        assert app.details(lost) is None and app.counts()["waiting"] == 0
        kept = double.submit(21, connection=connection, **OPTIONS)
        assert app.details(kept) is None
        connection.commit()
    check(app, kept)


def test_psycopg_submits_many_keys_delays_and_prerequisites(app):
    psycopg = pytest.importorskip("psycopg")
    double = app.jobs["double"]
    with psycopg.connect(app.store) as connection:
        many = double.submit_many(range(12_000), connection=connection)
        first = double.submit("ä\u2028", key="k", connection=connection)
        assert double.submit(2, key="k", connection=connection) == first
        later = double.submit(1, delay="1h", connection=connection)
        after = double.submit(2, after=first, connection=connection)
        alone = double.submit_many([5], connection=connection)
    assert len(many) == 12_000 and app.counts()["waiting"] == 12_002
    assert (later.state(), after.state()) == ("scheduled", "blocked")
    assert first.details().payload == "ä\u2028" and many[11_999].details().payload == 11_999
    assert alone[0].details().payload == 5
    with psycopg.connect(app.store) as connection, pytest.raises(ValueError, match="cached="):
        double.submit(1, cached="1h", connection=connection)


def test_sqlalchemy_submits_with_its_session(app):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(app.store.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        lost = app.jobs["double"].submit(1, connection=session)
        session.rollback()
        kept = app.jobs["double"].submit(21, connection=session, **OPTIONS)
        session.commit()
    with engine.begin() as connection:
        assert app.jobs["double"].submit(1, connection=connection, delay="1h").id
    engine.dispose()
    assert app.details(lost) is None
    check(app, kept)


def test_asyncpg_submits_in_its_transaction(app):
    asyncpg = pytest.importorskip("asyncpg")

    async def run():
        connection = await asyncpg.connect(app.store)
        transaction = connection.transaction()
        await transaction.start()
        lost = await app.jobs["double"].submit_async(1, connection=connection)
        await transaction.rollback()
        async with connection.transaction():
            kept = await app.jobs["double"].submit_async(21, connection=connection, **OPTIONS)
        with pytest.raises(TypeError, match="await submit_async"):
            app.jobs["double"].submit(1, connection=connection)
        await connection.close()
        return lost, kept

    lost, kept = asyncio.run(run())
    assert app.details(lost) is None
    check(app, kept)


def test_asynchronous_connections_of_psycopg_and_sqlalchemy_submit(app):
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("asyncpg")
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def run():
        async with await psycopg.AsyncConnection.connect(app.store) as connection:
            first = await app.jobs["double"].submit_async(21, connection=connection, **OPTIONS)
        engine = create_async_engine(app.store.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.begin() as connection:
            second = await app.jobs["double"].submit_async(4, connection=connection, key="k")
        await engine.dispose()
        return first, second

    first, second = asyncio.run(run())
    check(app, first)
    assert second.result() == 8


def test_connections_that_cannot_serve_are_refused(app, tmp_path):
    double = app.jobs["double"]
    with pytest.raises(TypeError, match="connect to its database"):
        double.submit(1, connection=sqlite3.connect(tmp_path / "other.db"))
    with pytest.raises(TypeError, match="is a object"):
        double.submit(1, connection=object())
    of_server = gristmill.App("http://127.0.0.1:1").job(shop.double.function)
    with pytest.raises(TypeError, match="needs a store in PostgreSQL"):
        of_server.submit(1, connection=object())
