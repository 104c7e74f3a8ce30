"""Drains of other queues, and of Gristmill, with the same job."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import gristmill

FOLDER = pathlib.Path(__file__).resolve().parent / "peers"
# The packages of each peer, by the name of its module.
PEERS = {
    "celery": ("Celery", ["celery[redis]==5.7.0"]),
    "dramatiq": ("Dramatiq", ["dramatiq[redis]==2.2.1"]),
    "taskiq": ("Taskiq", ["taskiq==0.13.0", "taskiq-redis==1.2.4"]),
    "rq": ("RQ", ["rq==2.12.0"]),
    "huey": ("Huey", ["huey[redis]==3.5.4"]),
    "arq": ("arq", ["arq==0.28.0"]),
    "taskito": ("taskito", ["taskito==0.22.0"]),
}
REDIS_PEERS = [name for name in PEERS if name != "taskito"]
# How long Redis may take to start, a peer to drain its jobs, and its workers to end. Seconds.
START_S, DRAIN_S, END_S = 30, 60, 10


class LeftOut(Exception):
    """A peer cannot be measured."""


@contextlib.contextmanager
def redis(settings):
    """The URL of a new Redis."""
    program = shutil.which("redis-server")
    if program is None:
        raise LeftOut("there is no redis-server: apt-get install redis-server")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--logfile", f"{folder}/log", *settings]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(lambda: _answers(port), START_S, "Redis does not start")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def file():
    """The place of a new file."""
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "jobs.db")


# Where the peers keep their jobs, with the peers that do.
PLACES = {
    "Redis with its default settings": (lambda: redis([]), REDIS_PEERS),
    "Redis with `appendfsync always`": (lambda: redis(["--appendonly", "yes", "--appendfsync", "always"]), REDIS_PEERS),
    "SQLite, not synced at COMMIT": (file, ["taskito"]),
}
# Those that do not wait for the disk.
FAST_PLACES = [title for title in PLACES if "always" not in title]


def _answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def _wait(condition, patience_s, problem):
    until = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > until:
            raise LeftOut(f"{problem} within {patience_s} s")
        time.sleep(0.01)


def interpreter(folder, name):
    """The interpreter of a virtual environment with a peer's packages."""
    place = pathlib.Path(folder) / name
    python, installed = place / "bin" / "python", place / "installed"
    packages = "\n".join(PEERS[name][1])
    if not installed.exists() or installed.read_text() != packages:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        ended = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS[name][1]], capture_output=True, text=True)
        if ended.returncode:
            raise LeftOut(f"it cannot be installed: {ended.stderr.strip()[-200:]}")
        installed.write_text(packages)
    return str(python)


def drain_peer(folder, name, place, jobs, processes, nap_s):
    """The moments at which a peer's jobs ended."""
    python = interpreter(folder, name)
    with tempfile.TemporaryDirectory() as temporary:
        moments = os.path.join(temporary, "moments")
        environment = dict(
            os.environ, BENCH_PLACE=place, BENCH_MOMENTS=moments, BENCH_NAP_S=str(nap_s), BENCH_PROCESSES=str(processes),
            PYTHONPATH=str(FOLDER),
            # Some start further processes by the first `python` of the path.
            PATH=os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)]),
        )
        enqueue = [python, str(FOLDER / "enqueue.py"), f"{name}_peer", str(jobs), str(processes)]
        ended = subprocess.run(enqueue, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=DRAIN_S)
        if ended.returncode:
            raise LeftOut(f"its jobs cannot be enqueued: {ended.stderr.strip()[-200:]}")
        words = open(os.path.join(temporary, "words"), "w+", encoding="utf-8")
        running = [
            subprocess.Popen(command, cwd=FOLDER, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                             start_new_session=True)
            for command in json.loads(ended.stdout.splitlines()[-1])
        ]
        try:
            size = jobs * 8
            _wait(lambda: os.path.exists(moments) and os.path.getsize(moments) >= size, DRAIN_S, "its jobs are not drained")
        except LeftOut as error:
            words.seek(0)
            raise LeftOut(f"{error}; its workers said: {words.read()[-200:]!r}") from error
        finally:
            _end(running)
            words.close()
        return _moments(moments, jobs)


def _end(running):
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)


def drain_ours(place, jobs, processes, nap_s):
    """The moments at which our jobs ended. The last one is when the worker had committed all outcomes and ended."""
    import work

    with tempfile.TemporaryDirectory() as temporary:
        moments = os.path.join(temporary, "moments")
        os.environ.update(BENCH_MOMENTS=moments, BENCH_NAP_S=str(nap_s))
        with gristmill.App(place) as app:
            app.job(work.job).submit_many(range(jobs))
            completed = app.work(processes, until="idle")
            assert completed == jobs, completed
        found = _moments(moments, jobs)
        if not nap_s:
            found[-1] = time.time()
        return found


def bare_times(jobs, processes, nap_s):
    """What `times_the_sum` gives for processes that run the same jobs in a loop, without a queue."""
    import work

    share = jobs // processes
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.update(BENCH_MOMENTS=os.path.join(temporary, "moments"), BENCH_NAP_S=str(nap_s))
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            return max(pool.map(work.seconds_of, [share] * processes, 1)) / (share * nap_s)


def _moments(path, jobs):
    import work

    found = work.moments(path)
    if len(found) < jobs:
        raise LeftOut(f"{len(found)} of {jobs} jobs ended")
    return found


def per_second(moments):
    """Jobs a second, from the end of the first one to the end of the last one."""
    return (len(moments) - 1) / (moments[-1] - moments[0])


def times_the_sum(moments, processes, nap_s):
    """From the begin of the first job to the end of the last one, over the sum of the naps divided by the processes."""
    return (moments[-1] - moments[0] + nap_s) / (len(moments) * nap_s / processes)
