"""The example applications of joblib, FastAPI and Django."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

import gristmill

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def joblib(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return pytest.importorskip("joblib")


def test_joblib_runs_its_parts_as_jobs(joblib, tmp_path):
    import joblib_squares

    store = str(tmp_path / "jobs.db")
    assert joblib_squares.main(store) == [number * number for number in range(100)]
    rows = gristmill.App(store).history()
    assert [row.kind for row in rows] == ["gristmill.joblib.call"] and rows[0].completed > 0


def test_joblib_raises_what_a_part_raised_and_goes_on(joblib, app):
    import joblib_squares
    from gristmill.integrations.joblib import register

    register(app)
    with joblib.parallel_config("gristmill", n_jobs=2):
        with pytest.raises(ValueError, match="-1 is negative"):
            joblib.Parallel()(joblib.delayed(joblib_squares.square)(number) for number in [1, -1, 2])
        offset = 3
        generated = joblib.Parallel(return_as="generator")(joblib.delayed(lambda n: n + offset)(n) for n in range(5))
        assert list(generated) == [3, 4, 5, 6, 7]


def test_joblib_sends_short_tasks_in_groups(joblib, app):
    from gristmill.integrations.joblib import register

    register(app)
    with joblib.parallel_config("gristmill", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(1_000)) == list(range(1_000))
    assert app.counts()["completed"] < 500


def test_joblib_needs_an_application(joblib, monkeypatch):
    module = importlib.import_module("gristmill.integrations.joblib")
    monkeypatch.setattr(module, "_default", None)
    with pytest.raises(ValueError, match="register"):
        module.GristmillBackend()


def test_joblib_runs_and_reads_only_its_own_pickles(joblib, app):
    module = importlib.import_module("gristmill.integrations.joblib")
    secret = os.urandom(32)
    answer = module.call_signed(secret, _call(module, secret))
    assert module.outcome_of(secret, answer) == 5
    with pytest.raises(gristmill.Fail, match="did not submit it"):
        module.call_signed(os.urandom(32), _call(module, secret))
    with pytest.raises(RuntimeError, match="not read"):
        module.outcome_of(os.urandom(32), answer)


def _call(module, secret):
    calls = module._pickled(lambda: 5)
    return {"calls": calls, "signature": module.signature(secret, calls)}


def test_fastapi_submits_and_reads_results(tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from fastapi.testclient import TestClient

    monkeypatch.setenv("SHOP_STORE", str(tmp_path / "jobs.db"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    shop = importlib.import_module("fastapi_shop")
    with TestClient(shop.api) as client:
        assert client.get("/shrunk", params={"width": 640}).json() == 320
        job = client.post("/pictures", params={"width": 100}).json()["job"]
        assert gristmill.Handle(shop.app, *map(int, job.split(":"))).result(timeout=60) == 50
        assert client.get(f"/pictures/{job}").json() == {"state": "completed", "width": 50}
        assert client.get("/pictures/99999:0").status_code == 404
    # The store was closed with the web application, and its worker ended.
    from gristmill._work import running

    assert shop.app._engine is None and running(shop.app) == []


def test_fastapi_without_the_lifespan_says_so():
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from gristmill.integrations.fastapi import Application

    api = FastAPI()

    @api.get("/")
    def index(jobs: Application) -> int:
        return 1

    with pytest.raises(RuntimeError, match="lifespan"):
        TestClient(api).get("/")


DJANGO = """
    import datetime, os, sys, uuid
    import django
    django.setup()
    from django.utils import timezone
    import tasks
    try:
        from django.tasks.exceptions import TaskResultDoesNotExist
    except ImportError:
        from django_tasks.exceptions import TaskResultDoesNotExist

    added, sent, refused = tasks.add.enqueue(1, right=2), tasks.send.enqueue("a@b"), tasks.send.enqueue("nobody")
    replied = tasks.reply.enqueue("hi")
    later = tasks.add.using(run_after=timezone.now() + datetime.timedelta(hours=1)).enqueue(1)
    assert (added.status, added.id) == ("READY", "1:0"), added
    try:
        added.return_value
    except ValueError:
        pass
    from worker import app
    assert app.work(1, queues=["default", "mail"], until="idle") == 3
    for result in (added, sent, refused, replied, later):
        result.refresh()
    assert [added.return_value, sent.return_value, replied.return_value] == [3, ["a@b", 1], "HI"]
    assert added.started_at <= added.finished_at and added.attempts == 1 and sent.kwargs == {} and sent.args == ["a@b"]
    assert (refused.status, refused.errors[0].exception_class, refused.attempts) == ("FAILED", ValueError, 2), refused
    assert "nobody is no address" in refused.errors[0].traceback
    assert (later.status, later.is_finished) == ("READY", False)
    for unknown in ("9999:0", "nonsense", str(uuid.uuid4())):
        try:
            tasks.add.get_result(unknown)
        except TaskResultDoesNotExist:
            continue
        raise AssertionError(unknown)
    print("ok")
"""


def test_django_runs_tasks_as_jobs(tmp_path):
    pytest.importorskip("django")
    if importlib.util.find_spec("django_tasks") is None and importlib.util.find_spec("django.tasks") is None:
        pytest.skip("neither Django 6 nor django-tasks is installed")
    import textwrap

    environment = dict(os.environ, DJANGO_SETTINGS_MODULE="settings", SITE_STORE=str(tmp_path / "jobs.db"))
    environment["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES / "django_site"), environment.get("PYTHONPATH", "")])
    (tmp_path / "check.py").write_text(textwrap.dedent(DJANGO))
    command = [sys.executable, "check.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("ok\n", 0), ended.stderr


def test_joblib_runs_functions_and_classes_of_a_main_script_and_their_maps(run_python):
    pytest.importorskip("joblib")
    ended = run_python(
        """
        import gristmill, joblib
        from gristmill.integrations.joblib import register
        app = gristmill.App("jobs.db")
        register(app)
        factor = 1
        class Point:
            def __init__(self, x):
                self.x = x
        def times(x):
            return Point(factor * x)
        def nested(x):
            return sum(app.map(abs, range(x), processes=1))
        factor = 7
        with joblib.parallel_config("gristmill", n_jobs=2):
            print([point.x for point in joblib.Parallel()(joblib.delayed(times)(n) for n in range(3))])
            print(joblib.Parallel()(joblib.delayed(nested)(n) for n in (2, 3)))
        """
    )
    assert ended.stdout == "[0, 7, 14]\n[1, 3]\n"
