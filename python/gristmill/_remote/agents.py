"""Workers for a server: the program in the wheel runs the jobs of an application as an agent."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._errors import WorkerError
from .._functions import describe_job, write_script
from .._process import program_path
from .._work import run_until_signal
from . import leash
from .connection import TOKEN_VARIABLE

if TYPE_CHECKING:
    from .._app import App
    from .._job import Job

# A token of the role `agent`; without it, the token of the application is used.
AGENT_TOKEN_VARIABLE = "AGENT_TOKEN"
# Jobs that an agent claims and reports at once.
BATCH_JOBS = 1_000
# Bytes of an agent's last words that an error repeats.
WORDS_BYTES_MAX = 2_000
# How long agents may take to finish their jobs when the interpreter ends. Seconds.
EXIT_PATIENCE_S = 10.0


class AgentPlan(NamedTuple):
    """The plan of an agent: its command-line options, and how its processes find the functions."""

    options: list[str]
    functions: list[dict[str, Any]]


def plans(
    jobs: list[Job[..., Any]], concurrency: int | None, queues: Iterable[str] | None, until: str, name: str | None
) -> list[AgentPlan]:
    """The plans of agents, one for each group of jobs with the same options."""
    if not jobs:
        raise ValueError("the application has no jobs to run: define one with @app.job before the worker starts")
    if until not in ("stopped", "empty"):
        raise ValueError(f'until={until!r}: a worker of a server ends by itself only when nothing is left to run: until="empty"')
    queues = queues_of(jobs, queues)
    found: list[AgentPlan] = []
    for (processes, at_once, threads), alike in _alike(jobs, concurrency).items():
        options = ["-j", str(processes), "--concurrency", str(at_once), "--threads", str(threads)]
        options += [word for queue in queues for word in ("--queue", queue)]
        options += ["--drain"] if until == "empty" else []
        options += ["--name", name] if name else []
        options += [word for job in alike for word in ("--kind", job.name)]
        found.append(AgentPlan(options, [describe_job(job) for job in alike]))
    return found


def queues_of(jobs: Iterable[Job[..., Any]], queues: Iterable[str] | None) -> list[str]:
    """These queues; by default those of the jobs."""
    return sorted({job.queue for job in jobs} if queues is None else set(queues))


def agent_token() -> str | None:
    """The token of this process's agents."""
    return os.environ.get(AGENT_TOKEN_VARIABLE) or os.environ.get(TOKEN_VARIABLE) or None


# Until their ends were waited for.
_running: set[RemoteWorker] = set()


class RemoteWorker:
    """Agents of this process for jobs of a server. They stop at the end of a `with` block."""

    def __init__(self, app: App, folder: str, agents: list[subprocess.Popen[str]]) -> None:
        self.app = app
        self._folder = folder
        self._agents = agents
        self._is_stopping = False
        self._completed: int | None = None
        self.process_id = os.getpid()
        _running.add(self)

    @staticmethod
    def start(
        app: App,
        jobs: list[Job[..., Any]],
        concurrency: int | None,
        queues: Iterable[str] | None,
        until: str,
        name: str | None,
    ) -> RemoteWorker:
        """Starts an agent for each group of jobs with the same options."""
        return RemoteWorker.begin(app, plans(jobs, concurrency, queues, until, name), agent_token())

    @staticmethod
    def begin(app: App, planned: list[AgentPlan], token: str | None, is_on_leash: bool = False) -> RemoteWorker:
        """Starts these agents. On a leash, they end with the thread that started them, however it ends."""
        program = program_path()
        if program is None:
            raise WorkerError("this installation has no program `gristmill`, which runs a server's jobs: install the wheel")
        before = [sys.executable, "-IS", leash.__file__, str(os.getpid())] if is_on_leash else []
        folder = tempfile.mkdtemp(prefix="gristmill-")
        worker = RemoteWorker(app, folder, [])
        try:
            for plan in planned:
                command = [program, "agent", "--base-url", app.store, "--batch", str(BATCH_JOBS), "--json", "--quiet"]
                command += [*plan.options, "--", *(write_script(folder, function) for function in plan.functions)]
                worker._agents.append(_begin([*before, *command], folder, len(worker._agents), token))
        except BaseException:
            worker.stop(0)
            raise
        return worker

    def ask_to_stop(self) -> None:
        """Makes them claim no more jobs. Running jobs continue."""
        self._is_stopping = True
        for agent in self._agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGINT)

    def stop(self, timeout: float | None = None) -> bool:
        """Claims no more jobs, and waits for the running ones; reports whether they ended within `timeout` seconds."""
        self.ask_to_stop()
        return self.wait(timeout) is not None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for the end of the agents. Returns the number of completed jobs; None after `timeout` seconds."""
        if self._completed is not None:
            return self._completed
        until = None if timeout is None else time.monotonic() + timeout
        completed = 0
        for number, agent in enumerate(self._agents):
            try:
                agent.wait(None if until is None else max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            totals = _totals(os.path.join(self._folder, f"totals-{number}"))
            if totals is None and not self._is_stopping:
                raise WorkerError(self._end_of(number))
            completed += 0 if totals is None else totals["completed"]
        self._completed = completed
        self._forget()
        return completed

    def failure(self) -> str | None:
        """How an agent ended without being asked to; None while all run."""
        ended = [number for number, agent in enumerate(self._agents) if agent.poll() is not None]
        return self._end_of(ended[0]) if ended and not self._is_stopping else None

    def _end_of(self, number: int) -> str:
        return f"an agent ended: {_last_words(os.path.join(self._folder, f'words-{number}'))}"

    def __enter__(self) -> RemoteWorker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def run_until_signal(self) -> int:
        """Waits for the end of the agents, and stops them at SIGINT (Ctrl-C) or SIGTERM; a second one does not wait."""
        return run_until_signal(self)

    def give_up(self) -> None:
        """Ends the agents at once. Other workers get their jobs when the lease ends."""
        self._is_stopping = True
        for agent in self._agents:
            agent.kill()
        self._forget()

    def _forget(self) -> None:
        _running.discard(self)
        shutil.rmtree(self._folder, ignore_errors=True)


def running(app: App | None = None) -> list[RemoteWorker]:
    """The running agents of this process, of one application or of all."""
    ours = [worker for worker in list(_running) if worker.process_id == os.getpid()]
    return [worker for worker in ours if app is None or worker.app is app]


@atexit.register
def _end_all() -> None:
    for worker in running():
        worker.stop(EXIT_PATIENCE_S)


def _alike(jobs: list[Job[..., Any]], concurrency: int | None) -> dict[tuple[int, int, int], list[Job[..., Any]]]:
    """Groups the jobs by the processes, asynchronous jobs and threads of each process: an agent has one value of each."""
    processes = concurrency or os.cpu_count() or 1
    groups: dict[tuple[int, int, int], list[Job[..., Any]]] = {}
    for job in jobs:
        at_once = job.concurrency if job.is_asynchronous() else 1
        groups.setdefault((job.processes or processes, at_once, job.threads), []).append(job)
    return groups


def _begin(command: list[str], folder: str, number: int, token: str | None) -> subprocess.Popen[str]:
    environment = dict(os.environ, GRISTMILL_PYTHON=sys.executable)
    if token:
        environment[AGENT_TOKEN_VARIABLE] = token
    with (
        open(os.path.join(folder, f"totals-{number}"), "w") as totals,
        open(os.path.join(folder, f"words-{number}"), "w") as words,
    ):
        # A session of its own: Ctrl-C at the terminal reaches it through this process alone.
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=totals, stderr=words, text=True, start_new_session=True
        )


def _totals(path: str) -> dict[str, int] | None:
    with open(path) as file:
        lines = file.read().splitlines()
    try:
        totals: dict[str, int] = json.loads(lines[-1])
        return totals
    except (IndexError, ValueError):
        return None


def _last_words(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()[-WORDS_BYTES_MAX:].strip() or "without a word"
