"""Applications on a server: the program of the wheel serves a store, and agents of it run the jobs."""

import asyncio
import contextlib
import gc
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pytest
import shop

import gristmill
from gristmill._process import program_path
from gristmill._remote import connection
from gristmill._remote.engine import OPERATIONS


@contextlib.contextmanager
def serving(folder, *arguments):
    """The URL of a server on a store in that folder."""
    command = [program(), "serve", "--listen", "127.0.0.1:0", "--store", str(folder / "jobs.db"), "--mode", "server", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"listening on (http://\S+)", line)
        if found:
            break
    # What it says later must not fill the pipe.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def program():
    """The program of the wheel."""
    found = program_path()
    if found is None:
        pytest.skip("the package was not installed from a wheel")
    return found


def token(role, trust):
    """A new token of the trust in that folder."""
    command = [program(), "token", "create", "--role", role, "--group", "tests", "--trust", str(trust)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a server on a store of its own."""
    with serving(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def app(server, request):
    """The shop's jobs on the server, on queues of this test alone."""
    app = gristmill.App(server)
    shop.define(app)
    for job in app.jobs.values():
        job.queue = request.node.name[:60]
    yield app
    app.close()


def test_each_operation_is_one_of_the_description(server, tmp_path):
    """A store in this process has the operations of the HTTP API by the same names, except those about the fleet."""
    with urllib.request.urlopen(f"{server}/api/v1/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    described = {
        operation["operationId"]: (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    for name, (method, path) in OPERATIONS.items():
        described_method, described_path = described[name]
        assert (described_method, re.sub(r"\{\w+\}", "{}", described_path)) == (method, path), name
    own = gristmill.App(str(tmp_path / "jobs.db"))
    unknown = []
    for name in OPERATIONS:
        try:
            own.engine().carry_out(name, "1:0", '{"no_such_member": 1}')
        except gristmill.StoreError as error:
            if "needs a server" in str(error):
                unknown.append(name)
    own.close()
    assert unknown == ["workers"]


def test_jobs_are_submitted_run_and_awaited(app):
    one = app.jobs["double"].submit(21, tags={"customer": "7"}, timeout="10s")
    many = app.jobs["add"].submit_many(((number, 1) for number in range(2_500)), starmap=True)
    later = app.jobs["double"].submit(1, delay="1h", priority=5)
    same = [app.jobs["double"].submit(5, key="k").id for _ in range(2)]
    keyed = app.jobs["double"].submit_many([5, 6], key=lambda number: "k" if number == 5 else "l")
    assert keyed[0].id == same[0] != keyed[1].id
    after = app.jobs["double"].submit(6, after=one)
    assert one.state() == "waiting" and later.state() == "scheduled" and same[0] == same[1]
    assert after.state() == "blocked" and after.details().row.queue == app.jobs["double"].queue
    with pytest.raises(gristmill.ResultTimeout):
        one.result(timeout=0.05)
    assert app.counts(app.jobs["double"].queue)["waiting"] == 2_503
    with app.worker(1, jobs=["double", "add"]) as worker:
        assert one.result(timeout=60) == 42
        assert many.results(timeout=60) == [number + 1 for number in range(2_500)]
        assert many[-1].result() == 2_500

        async def both():
            submitted = [await app.jobs["double"].submit_async(number) for number in range(20)]
            return await asyncio.wait_for(asyncio.gather(*submitted, after), 60)

        assert asyncio.run(both()) == [*range(0, 40, 2), 12]
        assert later.cancel() and not later.cancel()
    assert worker.wait() > 2_500


def test_a_job_of_an_agent_reads_its_prerequisites_and_its_flow(app):
    numbers = app.jobs["double"].submit_many([1, 2])
    gathered = app.jobs["gathered"].submit(0, after=numbers)
    placed = app.jobs["placed"].submit(7)
    with app.worker(1, jobs=["double", "gathered", "placed", "place"]):
        assert gathered.result(timeout=60) == [2, 4]
        assert placed.result(timeout=60) == [placed.id, "placed", "place", "k"]


def test_a_server_that_goes_away_leaves_the_first_items_and_the_exception_has_them(tmp_path):
    with contextlib.ExitStack() as running:
        app = gristmill.App(running.enter_context(serving(tmp_path)))

        @app.job
        def length(text):
            return len(text)

        def items():
            for number in range(1_000):
                if number == 300:
                    running.close()
                yield f"{number} " + "x" * 50_000

        with pytest.raises(gristmill.SubmitFailed, match="the first [0-9]+ items are stored, as jobs 1:0 to ") as raised:
            length.submit_many(items())
        submitted = raised.value.submitted
        app.close()
    with gristmill.App(tmp_path / "jobs.db") as here:
        assert sum(here.counts().values()) == len(submitted) > 0
        assert here.details(submitted[-1].id).payload.startswith(f"{len(submitted) - 1} ")


def test_one_job_of_submit_many_is_found_whatever_shares_its_batch(app):
    alone = app.jobs["double"].submit_many([4])
    assert len(alone) == 1
    assert app.work(1, jobs=["double"], until="empty") == 1
    assert alone.results(timeout=60) == [8] and alone[0].result() == 8
    assert alone.prerequisites() == [alone[0].id]


def test_failures_logs_and_types_come_over_http(app):
    refused, said = app.jobs["refuse_odd"].submit(3), app.jobs["say"].submit("ä", tags={"customer": "x"})
    half = app.jobs["halve"].submit(shop.Picture("a", 8))
    app.work(1, jobs=["refuse_odd", "say", "halve"], until="empty")
    with pytest.raises(gristmill.JobFailed, match="ValueError: 3 is odd") as raised:
        refused.result(timeout=60)
    assert "in refuse_odd" in raised.value.job_traceback
    with pytest.raises(gristmill.JobFailed, match="3 is odd"):
        asyncio.run(_await(refused))
    assert said.result(timeout=60) == [said.id, "say", 1, {"customer": "x"}]
    assert said.log().startswith("printed ä\n")
    assert half.result(timeout=60) == shop.Picture("a", 4)


async def _await(handle):
    return await handle


@pytest.mark.parametrize("ordered", [True, False])
def test_a_map_runs_on_the_workers_of_the_server(app, ordered):
    with app.worker(1, jobs=["double"]):
        results = list(app.jobs["double"].map(range(3_000), ordered=ordered))
    expected = [2 * number for number in range(3_000)]
    assert (results if ordered else sorted(results)) == expected


def test_a_map_raises_or_returns_failures_and_cancels_the_rest(app):
    refuse = app.jobs["refuse_odd"]
    with app.worker(1, jobs=["refuse_odd"]):
        values = list(refuse.map([2, 3, 4], return_exceptions=True))
        assert [values[0], values[2]] == [2, 4] and isinstance(values[1], gristmill.JobFailed)
        with pytest.raises(gristmill.JobFailed, match="3 is odd"):
            list(refuse.map([2, 3]))
    given_up = refuse.map(iter(range(10_000)))
    with app.worker(1, jobs=["refuse_odd"]):
        assert next(given_up) == 0
    given_up.close()
    counts = app.counts(refuse.queue)
    assert counts["waiting"] == counts["running"] == 0


def test_what_needs_a_store_of_its_own_says_so(app):
    refusals = [
        (lambda: app.jobs["double"].map([1], name="n"), ValueError, "no resumable maps"),
        (lambda: app.jobs["double"].map([1], processes=2), ValueError, "its workers run the items"),
        (lambda: app.map(len, ["a"]), ValueError, "no job of"),
        (app.drain, ValueError, "until="),
        (app.executor, ValueError, "store of its own"),
        (lambda: app.forget("n"), ValueError, "no maps by name"),
        (lambda: app.work(1, until="idle"), ValueError, "until='idle'"),
        (lambda: app.engine().begin_run("n", ""), gristmill.StoreError, "`begin_run` needs a store of its own"),
    ]
    for refused, error, reason in refusals:
        with pytest.raises(error, match=reason):
            refused()


def test_refusals_name_the_remedy(app):
    with pytest.raises(gristmill.StoreError, match="batches and jobs by the ids"):
        app.jobs["double"].submit(1, after="nonsense")
    with pytest.raises(gristmill.StoreError, match="does not exist"):
        gristmill.Handle(app, 10**9, 0).result(timeout=1)
    with pytest.raises(gristmill.StoreError, match="does not exist"):
        asyncio.run(_await(gristmill.Handle(app, 10**9, 0)))
    loop = []
    loop.append(loop)
    for payload in (float("nan"), object(), loop):
        with pytest.raises((ValueError, TypeError)):
            app.jobs["double"].submit(payload)
    with pytest.raises(ValueError, match="nests too deep"):
        app.jobs["double"].submit(deep())


def deep():
    """A payload whose nesting Python's encoder refuses."""
    payload = []
    for _ in range(100_000):
        payload = [payload]
    return payload


def test_a_payload_that_nests_too_deep_is_refused_within_a_transaction_too():
    with pytest.raises(ValueError, match="nests too deep"):
        gristmill.App("postgresql:///none").job(shop.double.function).submit(deep(), connection=object())


def test_a_second_interrupt_ends_the_agents_at_once(server, tmp_path):
    import sys

    queue = "interrupted"
    (tmp_path / "held_shop.py").write_text(
        f"import gristmill, pathlib, time\napp = gristmill.App({server!r})\n"
        f"@app.job(queue={queue!r})\ndef hold(path):\n    pathlib.Path(path).touch()\n    time.sleep(600)\n"
    )
    begun = tmp_path / "begun"
    app = gristmill.App(server)
    handle = app.job(name="hold", queue=queue)(shop.double.function).submit(str(begun))
    command = [sys.executable, "-m", "gristmill", "worker", "held_shop:app", "-j", "1"]
    worker = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until(begun.exists)
    worker.send_signal(signal.SIGINT)
    assert "press Ctrl-C again" in worker.stderr.readline()
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 130
    # The agent has ended, too: its job is released when the lease ends.
    until(lambda: handle.state() in ("waiting", "scheduled"))
    assert handle.cancel()
    app.close()


def until(condition, patience_s=60):
    """Waits for a condition."""
    end = time.monotonic() + patience_s
    looks = threading.Event()
    while not condition():
        assert time.monotonic() < end, "the condition does not come about"
        looks.wait(0.05)


def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(connection, "ATTEMPTS_MAX", 2)
    with pytest.raises(gristmill.StoreError, match="http://127.0.0.1:1 cannot be reached"):
        gristmill.App("http://127.0.0.1:1").counts()


@pytest.mark.parametrize("place", ["https://", "https://user@host", "https://host:port", "https://host?query=1"])
def test_an_address_that_is_none_is_refused(place):
    with pytest.raises(ValueError, match="is not the address of a server"):
        gristmill.App(place).counts()


def test_a_token_is_sent_and_never_in_clear_text_to_others(monkeypatch):
    monkeypatch.setenv("GRISTMILL_TOKEN", "secret")
    with pytest.raises(ValueError, match="clear text"):
        gristmill.App("http://jobs.example").counts()
    with _answers([(200, b'{"jobs": 0, "states": {}}')]) as (url, requests):
        gristmill.App(url).counts()
    assert requests[0].headers["Authorization"] == "Bearer secret"
    monkeypatch.setenv("GRISTMILL_TOKEN", "two words")
    with pytest.raises(ValueError, match="one line of text"):
        gristmill.App("https://jobs.example").counts()


def test_a_refusal_that_did_nothing_is_repeated_and_a_lost_answer_is_not(monkeypatch):
    monkeypatch.setattr(connection, "PAUSE_FIRST_S", 0.0)
    stored = b'{"jobs": 1, "first": "7:3", "batches": [{"batch": 7, "first_position": 3, "count": 1}]}'
    stopping = b'{"code": "stopping", "error": "the server is stopping", "remedy": "retry"}'
    with _answers([(503, stopping), (503, stopping), (201, stored)]) as (url, requests):
        job = gristmill.App(url).job(shop.double.function)
        assert job.submit(1).id == "7:3" and len(requests) == 3
    unknown = b'{"code": "store", "error": "the connection broke during COMMIT", "remedy": "check the store"}'
    with _answers([(503, unknown), (201, stored)]) as (url, requests):
        with pytest.raises(gristmill.StoreError, match="during COMMIT: check the store"):
            gristmill.App(url).job(shop.double.function).submit(1)
        assert len(requests) == 1
    with _answers([(None, b""), (201, stored)]) as (url, requests):
        with pytest.raises(gristmill.StoreError, match="may or may not be stored"):
            gristmill.App(url).job(shop.double.function).submit(1)
        assert len(requests) == 1


class _answers:
    """A server on loopback that gives these answers, one a request; of status None, it hangs up."""

    def __init__(self, answers):
        requests = self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append(self)
                status, body = answers[len(requests) - 1]
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}", self.requests

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_events_of_a_server_are_listened_to_and_resumed(app):
    with app.events(timeout=30) as events:
        handle = app.jobs["double"].submit(1)
        seen = next(event for event in events if event.batch == handle.batch)
    assert (seen.type, seen.kind, handle.id in seen.jobs) == ("submitted", "double", True)
    handle.cancel()
    with app.events(after=seen.cursor, timeout=30) as events:
        again = next(event for event in events if event.batch == handle.batch)
    assert again.type == "cancelled"


def test_events_that_nobody_closed_end_with_their_last_name(app):
    events = app.events()
    stream = events._native
    assert not stream._closed.is_set()
    del events
    gc.collect()
    assert stream._closed.is_set()


def test_tokens_have_roles(tmp_path, monkeypatch):
    trust = tmp_path / "trust"
    of_submit, of_agent = token("submit", trust), token("agent", trust)
    with serving(tmp_path, "--trust", str(trust)) as url:
        app = shop.define(gristmill.App(url))
        with pytest.raises(gristmill.StoreError, match="token"):
            app.jobs["double"].submit(1)
        app.close()
        monkeypatch.setenv("GRISTMILL_TOKEN", of_submit)
        handle = app.jobs["double"].submit(4)
        with pytest.raises(gristmill.StoreError, match="does not allow"):
            app.controls()
        with pytest.raises(gristmill.WorkerError, match="an agent ended: .*does not allow"):
            app.work(1, jobs=["double"], until="empty")
        monkeypatch.setenv("AGENT_TOKEN", of_agent)
        assert app.work(1, jobs=["double"], until="empty") == 1
        assert handle.result(timeout=60) == 8
        app.close()


def test_a_fork_has_connections_of_its_own(app):
    double = app.jobs["double"]
    before = double.submit(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, double.submit(2).id.encode())
        finally:
            os._exit(0)
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    of_child = os.read(read, 100).decode()
    assert gristmill.Handle(app, *map(int, of_child.split(":"))).state() == before.state() == "waiting"


def test_the_command_line_works_for_a_server(app, server, tmp_path):
    import sys

    (tmp_path / "remote_shop.py").write_text(
        f"import gristmill\napp = gristmill.App({server!r})\n"
        "@app.job(queue='command')\ndef triple(number):\n    return 3 * number\n"
    )
    handle = gristmill.App(server).job(name="triple", queue="command")(shop.double.function).submit(3)
    command = [sys.executable, "-m", "gristmill", "worker", "remote_shop:app", "-j", "1"]
    worker = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert handle.result(timeout=60) == 9
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "finishing running jobs" in errors
