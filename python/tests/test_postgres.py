"""The same on PostgreSQL."""

import pathlib
import sys
import tempfile

import pytest
import shop

import gristmill

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "postgres"))

import server


@pytest.fixture(scope="module")
def postgres():
    if not (server.PROGRAMS / "initdb").exists():
        pytest.skip(f"there is no PostgreSQL in {server.PROGRAMS}")
    with tempfile.TemporaryDirectory() as folder:
        # The server runs as a user of its own.
        pathlib.Path(folder).chmod(0o755)
        with server.Postgres(pathlib.Path(folder) / "server") as postgres:
            yield postgres


@pytest.fixture
def app(postgres):
    app = gristmill.App(postgres.new_database())
    yield shop.define(app)
    app.close()


def test_jobs_run(app):
    handle, many = app.jobs["double"].submit(4), app.jobs["double"].submit_many(range(1_500))
    assert app.drain() == 1_501
    assert handle.result() == 8
    assert many.results() == [2 * number for number in range(1_500)]


def test_a_map_is_resumed_by_its_name(app):
    double = shop.double.function
    expected = [2 * number for number in range(2_000)]
    results = app.map(double, range(2_000), name="doubles")
    assert [next(results) for _ in range(10)] == expected[:10]
    with pytest.raises(RuntimeError, match="runs in another process"):
        next(iter(gristmill.App(app.store).map(double, range(2_000), name="doubles")))
    results.close()
    assert list(app.map(double, range(2_000), name="doubles")) == expected


def test_a_store_that_cannot_be_reached_is_named_without_its_password(postgres):
    place = "postgresql://postgres:secret@127.0.0.1:1/nowhere"
    app = gristmill.App(place)
    assert "secret" not in repr(app)
    with pytest.raises(gristmill.StoreError) as raised:
        app.counts()
    assert "secret" not in str(raised.value)
