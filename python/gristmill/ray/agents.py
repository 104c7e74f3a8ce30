"""Agents as actors of a Ray cluster; their number follows the backlog."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from .._app import App
from .._errors import GristmillError, WorkerError
from .._job import Job
from .._operations.requests import accepted, ask
from .._process import stop_import
from .._remote.agents import AgentPlan, RemoteWorker, agent_token, plans, queues_of
from .._remote.connection import Connection

# Ray's types are partial: its objects are of any type here.
ray: Any = importlib.import_module("ray")
ray_exceptions: Any = importlib.import_module("ray.exceptions")

# How often the actors and the backlog are looked at. Seconds.
LOOK_S = 1.0
# An actor that gave no answer in so many looks is lost with its node.
SILENT_LOOKS_MAX = 6
# How long agents are kept that the backlog does not ask for. Seconds.
IDLE_S = 30.0
# Agents that ended by themselves one after the other, before no further one is started; and the pauses between. Seconds.
FAILURES_MAX, FAILURE_PAUSE_S, FAILURE_PAUSE_S_MAX = 5, 1.0, 30.0
# How long running jobs may go on when their agent is not needed any more, and when the interpreter ends. Seconds.
END_S, EXIT_PATIENCE_S = 3_600.0, 10.0
# Agents of one call, and combinations of jobs and queues, each of which has a backlog of its own.
AGENTS_MAX, BACKLOGS_MAX = 1_000, 64

_serving: set[Agents] = set()


def serve_agents(
    app: App,
    *,
    num_gpus: float = 0,
    num_cpus: float = 1,
    min: int = 0,
    max: int = 8,
    jobs_per_agent: int = 1_000,
    concurrency: int | None = None,
    queues: Iterable[str] | None = None,
    jobs: Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Agents:
    """Runs the jobs of an application on the cluster that this process is connected to (`ray.init()` connects it otherwise).

    Each agent is a Ray actor with `num_gpus`, `num_cpus` and `resources`. There is one for every `jobs_per_agent` due or
    running jobs, at least `min` and at most `max`; Ray's autoscaler adds nodes for those that find no place.
    `concurrency`: processes of an agent, for each job; its processors by default. `queues`: those of the jobs by default.
    `jobs`: the names of the jobs that the agents run; all by default. `runtime_env`: of the actors, as Ray has it.

    The agents run until `stop`, the end of a `with` block, or the end of this process. Their token (`AGENT_TOKEN`) is that of
    this process; `GRISTMILL_TOKEN` reads the backlog.
    """
    stop_import("serve_agents(…)")
    if not app.is_server:
        raise ValueError(f"agents work for a server, and {app!r} is none: give the application the URL of a `gristmill serve`")
    if not 0 <= min <= max <= AGENTS_MAX or max == 0:
        raise ValueError(f"min={min}, max={max}: give 0 <= min <= max, and max from 1 to {AGENTS_MAX}")
    if jobs_per_agent < 1:
        raise ValueError(f"jobs_per_agent={jobs_per_agent}: give a number from 1")
    chosen = list(app.jobs.values()) if jobs is None else [app.jobs[kind] for kind in jobs]
    queues = queues_of(chosen, queues)
    if len(chosen) * len(queues) > BACKLOGS_MAX:
        raise ValueError(
            f"{len(chosen)} jobs on {len(queues)} queues are over {BACKLOGS_MAX} backlogs: give fewer of them by jobs= and queues=,"
            " in several calls"
        )
    processes = concurrency if concurrency is not None else int(num_cpus) or 1
    actor_options: dict[str, Any] = {"num_gpus": num_gpus, "num_cpus": num_cpus, "max_restarts": 0}
    if resources:
        actor_options["resources"] = dict(resources)
    if runtime_env:
        actor_options["runtime_env"] = dict(runtime_env)
    if not ray.is_initialized():
        ray.init()
    return Agents(app, chosen, queues, processes, (min, max, jobs_per_agent), actor_options)


class AgentActor:
    """An actor that runs an agent for each group of jobs with the same options."""

    def __init__(self) -> None:
        self._worker: RemoteWorker | None = None

    def begin(self, base_url: str, token: str | None, planned: list[AgentPlan]) -> str:
        """Starts the agents; returns the id of the node."""
        here = [os.path.abspath(path) for path in sys.path]
        placed: list[AgentPlan] = []
        for plan in planned:
            functions = [
                {**function, "path": [*here, *(path for path in function["path"] if path not in here)]}
                for function in plan.functions
            ]
            placed.append(AgentPlan(plan.options, functions))
        self._worker = RemoteWorker.begin(App(base_url), placed, token, is_on_leash=True)
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def look(self) -> str | None:
        """How an agent ended without being asked to; None while all run."""
        return None if self._worker is None else self._worker.failure()

    def end(self, timeout: float) -> bool:
        """Makes the agents finish running jobs; reports whether they did."""
        return self._worker is None or self._worker.stop(timeout)


class _Agent:
    """The controller's view of an actor."""

    def __init__(self, actor: Any, name: str, answer: Any) -> None:
        self.actor = actor
        self.name = name
        # The answer that is waited for.
        self.answer = answer
        # The node that it began on.
        self.node: str | None = None
        self.silent_looks = 0


class Agents:
    """Agents on a Ray cluster, whose number a thread of this process controls. They end with a `with` block."""

    def __init__(
        self,
        app: App,
        jobs: list[Job[..., Any]],
        queues: list[str],
        processes: int,
        sizes: tuple[int, int, int],
        actor_options: dict[str, Any],
    ) -> None:
        self._app = app
        self._jobs = jobs
        self._queues = queues
        self._sizes = sizes
        self._actor_class: Any = ray.remote(AgentActor).options(**actor_options)
        # Described once: a function that cannot travel is refused here.
        self._functions = plans(jobs, processes, queues, "stopped", None)
        self._token = agent_token()
        self._agents: list[_Agent] = []
        self._ending: list[tuple[_Agent, Any]] = []
        self._failures = 0
        self._start_after = 0.0
        self._too_many_since: float | None = None
        self._error: BaseException | None = None
        # What was said last of a backlog that cannot be read.
        self._told: str | None = None
        self._stopping = threading.Event()
        self._end_s = END_S
        self._thread = threading.Thread(target=self._control, name="gristmill-ray-agents", daemon=True)
        _serving.add(self)
        self._thread.start()

    @property
    def nodes(self) -> list[str]:
        """The ids of the nodes on which agents run, one for each agent."""
        return [agent.node for agent in list(self._agents) if agent.node is not None]

    @property
    def count(self) -> int:
        """The number of agents, including those that wait for a place on the cluster."""
        return len(self._agents)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until `stop` is called elsewhere; whether that is so after `timeout` seconds. Raises `WorkerError` where agents
        fail one after the other."""
        # In pieces, so that Ctrl-C interrupts it.
        until = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            left_s = LOOK_S if until is None else until - time.monotonic()
            if left_s <= 0:
                return False
            self._thread.join(left_s if left_s < LOOK_S else LOOK_S)
        if self._error is not None:
            raise WorkerError(f"the agents cannot go on: {self._error}") from self._error
        return True

    def stop(self, timeout: float = 60.0) -> bool:
        """Makes the agents finish running jobs, and ends them after `timeout` seconds; reports whether all finished by then."""
        self._end_s = timeout
        self._stopping.set()
        self._thread.join(timeout + LOOK_S * SILENT_LOOKS_MAX)
        _serving.discard(self)
        return not self._thread.is_alive() and not self._ending

    def __enter__(self) -> Agents:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    # --- the thread ---

    def _control(self) -> None:
        try:
            while True:
                self._look_at_agents()
                self._look_at_ending()
                self._size(self._backlog())
                if self._stopping.wait(LOOK_S):
                    break
        except Exception as error:
            self._error = error
        finally:
            self._end_all()

    def _look_at_agents(self) -> None:
        agents = list(self._agents)
        if not agents:
            return
        ready, _ = ray.wait([agent.answer for agent in agents], num_returns=len(agents), timeout=0)
        for agent in agents:
            if agent.answer not in ready:
                # One that waits for a place is not silent.
                agent.silent_looks += agent.node is not None
            else:
                self._take_answer(agent)
            if agent.silent_looks > SILENT_LOOKS_MAX:
                self._lose(agent)

    def _take_answer(self, agent: _Agent) -> None:
        try:
            answer: str | None = ray.get(agent.answer)
        except ray_exceptions.RayActorError as error:
            # Its node may only be slow to reach.
            if isinstance(error, ray_exceptions.ActorUnavailableError):
                agent.silent_looks += 1
                agent.answer = agent.actor.look.remote()
            elif agent.node is None:
                self._fail(agent, str(error))
            else:
                self._lose(agent)
            return
        except Exception as error:
            self._fail(agent, str(getattr(error, "cause", None) or error))
            return
        if agent.node is None:
            agent.node = answer
        elif answer is not None:
            self._fail(agent, answer)
            return
        else:
            self._failures = 0
        agent.silent_looks = 0
        agent.answer = agent.actor.look.remote()

    def _lose(self, agent: _Agent) -> None:
        """An actor ended, or its node: other agents get its jobs."""
        self._agents.remove(agent)
        _kill(agent)
        self._release(agent)

    def _fail(self, agent: _Agent, reason: str) -> None:
        """An agent ended by itself, or could not begin."""
        self._lose(agent)
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            raise WorkerError(f"{FAILURES_MAX} agents ended one after the other; the last one: {reason}")
        pause_s = FAILURE_PAUSE_S * 2 ** (self._failures - 1)
        self._start_after = time.monotonic() + (pause_s if pause_s < FAILURE_PAUSE_S_MAX else FAILURE_PAUSE_S_MAX)

    def _release(self, agent: _Agent) -> None:
        """Makes the server release the jobs of a lost agent now. If the tokens do not allow that, its lease ends them."""
        connection = Connection(self._app.store, self._token)
        try:
            for worker in ask(self._app.engine(), "workers")["workers"]:
                if worker["name"].endswith(f"/{agent.name}"):
                    accepted(*connection.send("DELETE", f"/workers/{worker['worker']}"))
        except GristmillError:
            pass
        finally:
            connection.close()

    def _look_at_ending(self) -> None:
        left: list[tuple[_Agent, Any]] = []
        for agent, ended in self._ending:
            if ray.wait([ended], timeout=0)[0]:
                _kill(agent)
            else:
                left.append((agent, ended))
        self._ending = left

    def _backlog(self) -> int | None:
        """The number of due and running jobs; None if the server does not answer."""
        try:
            backlogs = [self._app.backlog(job=job, queue=queue) for job in self._jobs for queue in self._queues]
        except GristmillError as error:
            if str(error) != self._told:
                self._told = str(error)
                print(f"gristmill: the number of agents stays, since the backlog cannot be read: {error}", file=sys.stderr)
            return None
        self._told = None
        jobs: int = sum(backlog["jobs"] for backlog in backlogs)
        return jobs

    def _size(self, backlog: int | None) -> None:
        """Starts or ends agents."""
        least, most, jobs_per_agent = self._sizes
        now = time.monotonic()
        if backlog is None:
            return
        wanted = sorted((least, -(-backlog // jobs_per_agent), most))[1]
        if wanted > len(self._agents) and now >= self._start_after:
            for _ in range(wanted - len(self._agents)):
                self._agents.append(self._start())
        if wanted >= len(self._agents):
            self._too_many_since = None
        elif self._too_many_since is None:
            self._too_many_since = now
        elif now - self._too_many_since >= IDLE_S:
            self._too_many_since = None
            # Those that found no place end first.
            agents = sorted(self._agents, key=lambda agent: agent.node is None)
            self._agents = agents[:wanted]
            for agent in agents[wanted:]:
                self._end(agent, END_S)

    def _start(self) -> _Agent:
        name = f"ray-{uuid.uuid4().hex[:12]}"
        actor = self._actor_class.remote()
        planned = [AgentPlan([*plan.options, "--name", name], plan.functions) for plan in self._functions]
        return _Agent(actor, name, actor.begin.remote(self._app.store, self._token, planned))

    def _end(self, agent: _Agent, end_s: float) -> None:
        if agent.node is None:
            _kill(agent)
        else:
            self._ending.append((agent, agent.actor.end.remote(end_s)))

    def _end_all(self) -> None:
        if not ray.is_initialized():
            # The connection to the cluster was closed, and its actors with it.
            return
        for agent in self._agents:
            self._end(agent, self._end_s)
        self._agents = []
        if self._ending:
            ray.wait([ended for _, ended in self._ending], num_returns=len(self._ending), timeout=self._end_s)
        self._look_at_ending()
        for agent, _ in self._ending:
            _kill(agent)


def _kill(agent: _Agent) -> None:
    # Its agents end with it.
    ray.kill(agent.actor)


@atexit.register
def _end_all() -> None:
    for agents in list(_serving):
        agents.stop(EXIT_PATIENCE_S)
