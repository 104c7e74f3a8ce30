"""The command line, forks, signals, executors, fixtures."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import shop

import gristmill

HERE = os.path.dirname(os.path.abspath(__file__))


def command(*arguments, **options):
    environment = dict(os.environ, **options.pop("env", {}))
    program = [sys.executable, "-m", "gristmill", *arguments]
    return subprocess.Popen(
        program, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_the_command_line_runs_an_application_until_it_is_asked_to_stop(app):
    shop.define(app)
    handle = app.jobs["double"].submit(4)
    worker = command("worker", "shop:app", "-j", "1", "--job", "double", env={"SHOP_STORE": app.store})
    assert handle.result(timeout=60) == 8
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "finishing running jobs" in errors


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["worker", "nowhere:app"], "there is no module nowhere"),
        (["worker", "shop:double"], "shop:double is not a gristmill.App; name the variable that holds it; the module has shop:app"),
        (["worker", "shop.py:app"], "give its module, as in shop:app"),
        (["worker", "shop"], "shop is neither MODULE:APP, such as shop:app, nor a script, such as shop.py"),
        (["worker", "shop:app", "-j", "0"], "give a number from 1"),
        (["worker", "shop:app", "--job", "x"], "the application has no job 'x'"),
    ],
)
def test_the_command_line_names_what_is_wrong(arguments, reason):
    ended = command(*arguments)
    _, errors = ended.communicate(timeout=60)
    assert ended.returncode != 0 and reason in errors


def test_the_help_of_workers_names_applications():
    for arguments, words in [(["--help"], "gristmill worker MODULE:APP --help"), (["shop:app", "--help"], "--until-empty, --drain")]:
        output, _ = command("worker", *arguments).communicate(timeout=60)
        assert words in output


def test_the_program_of_the_wheel_reads_the_same_store(app):
    program = os.path.join(os.path.dirname(gristmill.__file__), "bin", "gristmill")
    if not os.path.exists(program):
        pytest.skip("the package was not installed from a wheel")
    shop.define(app)
    handle = app.jobs["double"].submit(4)
    shown = command("show", handle.id, "--store", app.store)
    output, errors = shown.communicate(timeout=60)
    assert shown.returncode == 0, errors
    assert "double" in output and "waiting" in output


def test_a_fork_opens_the_store_anew(app):
    shop.define(app)
    double = app.jobs["double"]
    before = double.submit(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = f"{double.submit(2).id} {before.state()}"
        except BaseException as error:
            answer = repr(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    answer = os.read(read, 1_000).decode()
    assert os.waitpid(child, 0)[1] == 0
    assert answer == f"{before.batch + 1}:0 waiting"
    # The parent goes on with its own.
    assert double.submit(3).batch == before.batch + 2


def test_multiprocessing_forks_submit(app):
    import multiprocessing

    shop.define(app)
    app.counts()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        ids = pool.map(_submit, [(app.store, number) for number in range(10)])
    assert len(set(ids)) == 10 and app.counts()["waiting"] == 10


def _submit(task):
    store, number = task
    app = gristmill.App(store, durable=False)
    shop.define(app)
    return app.jobs["double"].submit(number).id


def test_a_fork_beside_a_worker_refuses_the_same_file(app):
    shop.define(app)
    with app.worker(1, jobs=["double"]):
        child = os.fork()
        if child == 0:
            try:
                app.counts()
            except RuntimeError as error:
                os._exit(0 if "while its parent was at work" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert app.jobs["double"].submit(2).result(timeout=60) == 4


def test_an_iterable_that_forks_leaves_the_store_open(app):
    shop.define(app)

    def items():
        for number in range(3):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            yield number

    submitted = app.jobs["double"].submit_many(items())
    assert len(submitted) == 3 and app.counts()["waiting"] == 3


def test_gunicorn_forks_workers_that_submit(app, tmp_path):
    """With `--preload`, the master imports the application and opens the store before it forks."""
    (tmp_path / "site.py").write_text(
        "import os, gristmill\n"
        "jobs = gristmill.App(os.environ['STORE'], durable=False)\n"
        "@jobs.job\n"
        "def double(number: int) -> int:\n"
        "    return 2 * number\n"
        "double.submit(0)\n"
        "def web(environment, start_response):\n"
        "    handle = double.submit(int(environment['QUERY_STRING']))\n"
        "    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
        "    return [f'{os.getpid()} {handle.id}'.encode()]\n"
    )
    (tmp_path / "site.py").rename(tmp_path / "web_site.py")
    address = tmp_path / "socket"
    master = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"unix:{address}", "web_site:web"],
        cwd=tmp_path,
        env={**os.environ, "STORE": app.store},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in master.stderr:
            if "Listening at" in line:
                break
        answers = [_ask(str(address), number).split() for number in range(20)]
    finally:
        master.terminate()
        master.communicate(timeout=60)
    assert str(master.pid) not in {process for process, _ in answers}
    assert len({job for _, job in answers}) == 20
    assert app.counts()["waiting"] == 21


def _ask(address, number):
    import http.client
    import socket

    connection = http.client.HTTPConnection("site", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(address)
    connection.request("GET", f"/?{number}")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, text
    return text


def test_a_native_object_of_another_process_says_so(app):
    engine = app.engine()
    child = os.fork()
    if child == 0:
        try:
            engine.counts()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_blocking_call_leaves_other_threads_running(app):
    shop.define(app)
    handle = app.jobs["double"].submit(1)
    began = threading.Event()

    def wait():
        began.set()
        handle.result(timeout=60)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert began.wait(10)
    # Without the lock released, this would not be reached before the timeout.
    assert app.drain() == 1
    waiter.join(10)
    assert not waiter.is_alive()


def test_control_c_interrupts_a_wait(run_python):
    ended = run_python(
        """
        import gristmill, os, signal, threading
        app = gristmill.App("jobs.db")
        handle = app.job(lambda payload: payload).submit(1)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            handle.result()
        except KeyboardInterrupt:
            print("interrupted", handle.state())
        """
    )
    assert ended.stdout == "interrupted waiting\n"


def test_control_c_interrupts_an_await(run_python):
    ended = run_python(
        """
        import asyncio, gristmill, os, signal, threading
        app = gristmill.App("jobs.db")
        handle = app.job(lambda payload: payload).submit(1)
        async def main():
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            await handle
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", handle.state())
        """
    )
    assert ended.stdout == "interrupted waiting\n"


def test_control_c_interrupts_a_drain(run_python):
    ended = run_python(
        """
        import gristmill, os, signal
        app = gristmill.App("jobs.db")
        @app.job
        def interrupt(process):
            os.kill(process, signal.SIGINT)
        interrupt.submit(os.getpid())
        interrupt.submit(os.getpid(), after="1:0")
        try:
            app.drain()
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert ended.stdout == "interrupted\n"


def test_control_c_interrupts_a_submit_of_many(run_python):
    ended = run_python(
        """
        import gristmill, os, signal
        app = gristmill.App("jobs.db")
        def items():
            for number in range(10**9):
                if number == 5_000:
                    os.kill(os.getpid(), signal.SIGINT)
                yield number
        try:
            app.job(abs).submit_many(items())
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert ended.stdout == "interrupted\n"


def test_an_executor_runs_calls(app):
    with app.executor(1) as executor:
        futures = [executor.submit(shop.add.function, number, right=1) for number in range(5)]
        assert [future.result(timeout=60) for future in futures] == [1, 2, 3, 4, 5]
        assert list(executor.map(os.path.basename, ["a/b", "c"])) == ["b", "c"]
        assert executor.submit(shop.halve, shop.Picture("a", 8)).result(timeout=60) == shop.Picture("a", 4)
        failed = executor.submit(shop.refuse_odd, 1)
        assert isinstance(failed.exception(timeout=60), gristmill.JobFailed)
        done, _ = concurrent.futures.wait([*futures, failed])
        assert len(done) == 6
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(len, "x")


def test_calls_that_come_during_a_submit_are_stored_together(app):
    count = 2_000
    with app.executor(1) as executor:
        futures = [executor.submit(abs, -number) for number in range(count)]
        assert [future.result(timeout=60) for future in futures] == list(range(count))
    # Each submit waits for the disk at least once, and a call comes every few microseconds.
    assert len({future.place[0] for future in futures}) < count / 2


def test_a_call_that_cannot_be_sent_raises_at_once_and_others_go_on(app):
    with app.executor(1) as executor:
        with pytest.raises(TypeError, match="bytes"):
            executor.submit(len, b"no JSON")
        assert executor.submit(len, "x").result(timeout=60) == 1


def test_a_call_ends_as_cancelled_where_somebody_else_cancels_its_job(app):
    read, write = os.pipe()
    with app.executor(1) as executor:
        future = executor.submit(_read_line, f"/proc/{os.getpid()}/fd/{read}")
        until = time.monotonic() + 60
        while app.cancel(queue=executor._job.queue) == 0:
            assert time.monotonic() < until
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(timeout=60)
        os.write(write, b"go\n")
    os.close(read)
    os.close(write)


def test_open_calls_fail_when_their_application_is_closed(app):
    read, write = os.pipe()
    executor = app.executor(1)
    first = executor.submit(_read_line, f"/proc/{os.getpid()}/fd/{read}")
    waiting = executor.submit(abs, -1)
    # What has not begun stays in the store.
    executor._worker.ask_to_stop()
    os.write(write, b"go\n")
    app.close()
    assert first.exception(timeout=60) is None or isinstance(first.exception(), gristmill.WorkerError)
    with pytest.raises(gristmill.WorkerError, match="stopped before"):
        waiting.result(timeout=60)
    executor.shutdown()
    os.close(read)
    os.close(write)


def test_a_done_callback_may_submit_another_call(app):
    second = concurrent.futures.Future()
    with app.executor(1) as executor:
        executor.submit(abs, -1).add_done_callback(
            lambda first: executor.submit(abs, first.result() - 3).add_done_callback(lambda done: second.set_result(done.result()))
        )
        assert second.result(timeout=60) == 2


def test_a_done_callback_may_shut_the_executor_down(app):
    executor = app.executor(1)
    first, second = executor.submit(abs, -1), executor.submit(abs, -2)
    first.add_done_callback(lambda done: executor.shutdown())
    assert (first.result(timeout=60), second.result(timeout=60)) == (1, 2)


def test_an_executor_runs_only_what_it_has_submitted(app):
    with app.executor(1) as executor:
        assert executor.submit(shop.add.function, 1, right=2).result(timeout=60) == 3
        for function in ("0" * 64, "../" + "0" * 61):
            forged = executor._job.submit({"function": function, "payload": {}})
            with pytest.raises(gristmill.JobFailed, match="did not submit it"):
                forged.result(timeout=60)


def test_an_executor_cancels_what_has_not_begun(app):
    executor = app.executor(1)
    # The kernel wakes the first call when the test does; the others wait behind it.
    read, write = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{read}"
    first = executor.submit(_read_line, path)
    waiting = [executor.submit(abs, -number) for number in range(3)]
    assert waiting[0].cancel()
    executor.shutdown(wait=False, cancel_futures=True)
    os.write(write, b"go\n")
    assert concurrent.futures.wait([first, *waiting], timeout=60).not_done == set()
    assert all(future.cancelled() for future in waiting)
    os.close(read)
    os.close(write)


def _read_line(path):
    with open(path) as file:
        return file.readline()


class Gate:
    """Holds calls of `_read_line` until it opens: the kernel wakes them when the test writes."""

    def __init__(self):
        self._read, self._write = os.pipe()
        self.path = f"/proc/{os.getpid()}/fd/{self._read}"

    def open(self):
        os.write(self._write, b"go\n")

    @contextlib.contextmanager
    def for_calls_of(self, executor):
        """The executor, for which the gate opens even where the test fails: its end waits for the calls."""
        with executor:
            try:
                yield executor
            finally:
                self.open()

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        os.close(self._read)
        os.close(self._write)


class Instead:
    """An object with other functions in place of some."""

    def __init__(self, of, **others):
        self._of = of
        self.__dict__.update(others)

    def __getattr__(self, name):
        return getattr(self._of, name)


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end


def test_control_c_as_a_submit_returns_counts_the_call_once(app):
    with Gate() as gate, gate.for_calls_of(app.executor(1)) as executor:
        executor.submit(abs, -1).result(timeout=60)
        calls = executor._calls

        def push(*arguments):
            calls.push(*arguments)
            raise KeyboardInterrupt

        executor._calls = Instead(calls, push=push)
        with pytest.raises(KeyboardInterrupt):
            executor.submit(_read_line, gate.path)
        executor._calls = calls
        assert len(executor._open) == 1
    # The end waited for it.
    assert app.counts()["completed"] == 2


def test_a_callback_that_exits_keeps_no_other_future_from_its_end(app, caplog):
    with Gate() as gate, gate.for_calls_of(app.executor(1)) as executor:
        first = executor.submit(_read_line, gate.path)
        others = [executor.submit(abs, -number) for number in range(100)]
        for future in [first, others[0], others[50]]:
            future.add_done_callback(lambda done: sys.exit())
        gate.open()
        assert [future.result(timeout=60) for future in others] == list(range(100))
    assert caplog.text.count("SystemExit") == 3


def test_a_cancel_that_the_store_refuses_is_repeated(app, capfd):
    cancelled = []

    def cancel_jobs(jobs):
        cancelled.extend(jobs)
        if len(cancelled) == 1:
            raise gristmill.StoreError("not now")
        return engine.cancel_jobs(jobs)

    with Gate() as gate, Gate() as beginning, Gate() as teller, gate.for_calls_of(app.executor(1)) as executor:
        quick = executor.submit(_read_line, beginning.path)
        # The thread that is told waits, so that the next call is cancelled before it is known to be stored.
        quick.add_done_callback(lambda done: _read_line(teller.path))
        beginning.open()
        assert quick.result(timeout=60) == "go\n"
        first = executor.submit(_read_line, gate.path)
        engine = executor._engine
        executor._engine = Instead(engine, cancel_jobs=cancel_jobs)
        second = executor.submit(abs, -2)
        assert second.cancel()
        teller.open()
        concurrent.futures.wait([second], timeout=60)
        assert app.counts()["cancelled"] == 1
        gate.open()
        assert first.result(timeout=60) == "go\n"
    assert len(cancelled) == 2 and "not now" in capfd.readouterr().err


def test_slow_calls_do_not_hide_the_end_of_a_later_one(app, monkeypatch):
    monkeypatch.setattr("gristmill.executor.ASKED_BATCHES_MAX", 2)
    with Gate() as gate, gate.for_calls_of(app.executor(1)) as executor:
        futures = [executor.submit(_read_line, gate.path)]
        for number in range(3):
            until(lambda: futures[-1].place is not None)
            futures.append(executor.submit(abs, -number))
        until(lambda: futures[-1].place is not None)
        assert len({future.place[0] for future in futures}) == 4
        batch, position = futures[-1].place
        assert app.cancel(f"{batch}:{position}")
        with pytest.raises(concurrent.futures.CancelledError):
            futures[-1].result(timeout=60)


def test_a_shutdown_cancels_all_batches_at_once(app, monkeypatch):
    monkeypatch.setattr("gristmill.executor.ASKED_BATCHES_MAX", 1)
    looks = []
    with Gate() as gate:
        executor = app.executor(1)
        futures = [executor.submit(_read_line, gate.path)]
        for number in range(20):
            until(lambda: futures[-1].place is not None)
            futures.append(executor.submit(abs, -number))
        until(lambda: futures[-1].place is not None)
        calls = executor._calls
        executor._calls = Instead(calls, look=lambda: looks.append(calls.look()))
        executor.shutdown(wait=False, cancel_futures=True)
        assert concurrent.futures.wait(futures[1:], timeout=60).not_done == set()
        gate.open()
        executor.shutdown()
    assert len(looks) >= 20


def test_a_thread_that_was_told_once_waits_as_others_do(app):
    with Gate() as gate:
        executor = app.executor(1)
        future = executor.submit(_read_line, gate.path)
        executor._told([])
        gate.open()
        executor.shutdown()
        assert future.done()


def test_a_second_shutdown_waits_and_cancels(app):
    with Gate() as gate:
        executor = app.executor(1)
        first = executor.submit(_read_line, gate.path)
        second = executor.submit(abs, -1)
        executor.shutdown(wait=False)
        executor.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(concurrent.futures.CancelledError):
            second.result(timeout=60)
        gate.open()
        executor.shutdown()
        assert first.done() and executor._worker is None
        executor.shutdown()


def test_a_program_that_ends_without_a_shutdown_stores_its_calls(run_python, tmp_path):
    ended = run_python(
        """
        import gristmill
        app = gristmill.App("jobs.db")
        executor = app.executor(1)
        for number in range(3_000):
            executor.submit(abs, -number)
        """
    )
    assert ended.stderr == ""
    assert sum(gristmill.App(tmp_path / "jobs.db").counts().values()) == 3_000


def test_a_program_says_how_many_calls_were_not_stored(run_python):
    ended = run_python(
        """
        import gristmill, subprocess, sys
        from gristmill import _work
        _work.EXIT_PATIENCE_S = 0.2
        app = gristmill.App("jobs.db")
        executor = app.executor(1)
        executor.submit(abs, -1).result(timeout=60)
        # Another process holds the store until this one ends.
        holding = "import sqlite3; held = sqlite3.connect('jobs.db'); held.execute('begin immediate'); print(flush=True); input()"
        holder = subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        holder.stdout.readline()
        executor.submit(abs, -2)
        executor.submit(abs, -3)
        """
    )
    assert "2 calls of an executor" in ended.stderr


def test_an_executor_removes_descriptions_that_no_call_uses(app, monkeypatch):
    monkeypatch.setattr("gristmill.executor.DESCRIPTIONS_MAX", 0)
    with Gate() as gate, gate.for_calls_of(app.executor(2)) as executor:
        first = executor.submit(_read_line, gate.path)
        kept = f"function-{first.function}.pickle"
        folder = executor._worker.folder
        for function in [len, os.path.basename, len, os.path.dirname]:
            executor.submit(function, "A").result(timeout=60)
            until(lambda: [name for name in os.listdir(folder) if name.startswith("function-")] == [kept])
        until(lambda: executor._engine.job_state(*(first.place or (0, 0))) == "running")
        # Others may tidy the folder.
        os.remove(f"{folder}/{kept}")
    assert executor._uses == {}


def test_the_fork_of_a_program_does_not_wait_for_its_executor(app):
    with Gate() as gate, gate.for_calls_of(app.executor(1)) as executor:
        executor.submit(_read_line, gate.path)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            executor.shutdown()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_a_worker_stops_where_its_executor_cannot_begin(app, monkeypatch):
    from gristmill._work import LocalWorker

    stopped, stop = [], LocalWorker.stop
    monkeypatch.setattr(LocalWorker, "stop", lambda worker: stopped.append(stop(worker)))
    executor = app.executor(1)
    executor._job.common = lambda: {}
    with pytest.raises(KeyError):
        executor.submit(abs, -1)
    assert stopped == [True]
    executor.shutdown()


def test_the_fixture_is_an_empty_application(gristmill_app):
    @gristmill_app.job
    def triple(number: int) -> int:
        return 3 * number

    handle = triple.submit(3)
    assert gristmill_app.engine().payloads("triple") == ["3"]
    assert gristmill_app.drain() == 1
    assert handle.result() == 9


def test_scripts_find_the_package_and_the_job(app, tmp_path):
    """`import gristmill` in a script of `gristmill run`, with the package installed."""
    program = os.path.join(os.path.dirname(gristmill.__file__), "bin", "gristmill")
    if not os.path.exists(program):
        pytest.skip("the package was not installed from a wheel")
    (tmp_path / "script.py").write_text(
        "import gristmill\n"
        "def main(n):\n"
        "    if n > 1:\n        return gristmill.spawn([1, 1], memo=n)\n"
        "    gristmill.progress(1, 2)\n"
        "    return gristmill.job().kind\n"
        "def finalize(payload, memo, outcomes):\n"
        "    return [memo, [outcome['value'] for outcome in outcomes]]\n"
    )
    (tmp_path / "items.jsonl").write_text("1\n2\n")
    arguments = ["run", "script.py", "items.jsonl", "--values", "--python", sys.executable, "--store", "s.db"]
    ended = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ['"script:script.py"', '[2,["script:script.py","script:script.py"]]']
