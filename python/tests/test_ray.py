"""Agents and datasets on a Ray cluster of this machine: `make test-ray`."""

import os
import time

import cluster_jobs
import pytest
import shop
from test_remote import serving, token, until

import gristmill

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

import gristmill.ray  # noqa: E402
from gristmill.ray import agents as controller  # noqa: E402

# A place for one agent on a node.
PLACE = {"place": 1}
# The time in which the jobs of a lost node begin elsewhere.
RESCUE_S = 15


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node, which this process is connected to."""
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 2, "num_gpus": 1, "resources": PLACE})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def app(server, request):
    """The jobs on the server, on queues of this test alone."""
    app = shop.define(gristmill.App(server), cluster_jobs)
    for job in app.jobs.values():
        job.queue = request.node.name[:60]
    yield app
    app.close()


def test_a_killed_node_loses_no_job(app, cluster, tmp_path):
    hold = app.jobs["hold"]
    node = cluster.add_node(num_cpus=2, resources=PLACE)
    with gristmill.ray.serve_agents(app, min=2, max=2, resources=PLACE, jobs=["hold"]) as agents:
        until(lambda: len(set(agents.nodes)) == 2)
        held = hold.submit_many([str(tmp_path)] * 2)
        # Each agent has one process.
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        more = hold.submit_many([str(tmp_path)] * 2_000)
        cluster.remove_node(node, allow_graceful=False)
        killed_at = time.monotonic()
        until(lambda: len(agents.nodes) == 1)
        (tmp_path / "go").touch()
        processes = held.results(timeout=RESCUE_S)
        assert time.monotonic() - killed_at < RESCUE_S
        # The job of the killed node ran once more, in the process of the other node.
        assert len(set(processes)) == 1
        assert set(more.results(timeout=60)) == set(processes)
        counts = app.counts(hold.queue)
        assert counts["completed"] == 2_002 == sum(counts.values())
        # The lost agent is replaced: the new one waits for a place, and gets it on a new node.
        until(lambda: agents.count == 2)
        again = cluster.add_node(num_cpus=2, resources=PLACE)
        until(lambda: len(set(agents.nodes)) == 2)
    cluster.remove_node(again)
    assert agents.count == 0


def test_agents_come_and_go_with_the_backlog(app, cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(controller, "IDLE_S", 0.0)
    hold = app.jobs["hold"]
    with gristmill.ray.serve_agents(app, max=2, num_cpus=0.5, jobs_per_agent=10, jobs=["hold"], concurrency=1) as agents:
        assert not agents.wait(0.2) and agents.count == 0
        handles = hold.submit_many([str(tmp_path)] * 15)
        until(lambda: len(agents.nodes) == 2)
        (tmp_path / "go").touch()
        handles.results(timeout=60)
        until(lambda: agents.count == 0)
        hold.submit(str(tmp_path)).result(timeout=60)


def test_an_agent_has_the_gpus_of_its_actor(app, cluster):
    with gristmill.ray.serve_agents(app, num_gpus=1, min=1, max=1, jobs=["gpus"], concurrency=1):
        assert app.jobs["gpus"].submit(None).result(timeout=60) == "0"


def test_agents_that_fail_one_after_the_other_are_given_up(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(controller, "FAILURES_MAX", 2)
    monkeypatch.setattr(controller, "FAILURE_PAUSE_S", 0.0)
    trust = tmp_path / "trust"
    monkeypatch.setenv("GRISTMILL_TOKEN", token("submit", trust))
    with serving(tmp_path, "--trust", str(trust)) as url:
        app = shop.define(gristmill.App(url), cluster_jobs)
        agents = gristmill.ray.serve_agents(app, min=1, max=1, jobs=["add"])
        with pytest.raises(gristmill.WorkerError, match="2 agents ended one after the other.*does not allow"):
            agents.wait(timeout=60)
        assert agents.stop()
        monkeypatch.setenv("AGENT_TOKEN", token("agent", trust))
        with gristmill.ray.serve_agents(app, min=1, max=1, jobs=["add"]):
            assert app.jobs["add"].submit(1, 2).result(timeout=60) == 3
        app.close()


def test_rows_become_jobs_and_results_become_rows(app, cluster):
    rows = ray.data.from_items([{"left": number, "right": 1} for number in range(2_500)])
    submitted = gristmill.ray.submit_rows(app.jobs["add"], rows, tags={"by": "ray"})
    assert len(submitted) == 2_500 and app.counts(tags={"by": "ray"})["waiting"] == 2_500
    with pytest.raises(gristmill.ResultTimeout):
        gristmill.ray.read_results(app, submitted, timeout=0.1)
    app.work(1, jobs=["add"], until="empty")
    results = gristmill.ray.read_results(app, submitted, timeout=60).take_all()
    assert sorted(row["value"] for row in results) == list(range(1, 2_501))
    assert {row["job"] for row in results} == {handle.id for handle in submitted}
    some = gristmill.ray.read_results(app, [submitted[0].batch]).take_all()
    assert {row["job"] for row in some} <= {row["job"] for row in results}
    with pytest.raises(Exception, match="are not the parameters"):
        gristmill.ray.submit_rows(app.jobs["add"], ray.data.from_items([{"left": 1, "colour": 2}]))


def test_rows_with_keys_are_submitted_once_and_failures_are_told(app, cluster):
    rows = ray.data.from_items([{"id": f"k-{number}", "number": number} for number in range(40)])
    refuse = app.jobs["refuse_odd"]
    once, again = (gristmill.ray.submit_rows(refuse, rows, column="number", key="id") for _ in range(2))
    assert {handle.id for handle in once} == {handle.id for handle in again} and len(once) == 40
    app.work(1, jobs=["refuse_odd"], until="empty")
    with pytest.raises(Exception, match="is odd"):
        gristmill.ray.read_results(app, once, timeout=60).take_all()
    results = gristmill.ray.read_results(app, once, timeout=60, return_exceptions=True).take_all()
    assert sorted(row["value"] for row in results if row["state"] == "completed") == list(range(0, 40, 2))
    assert sorted(row["error"] for row in results if row["error"])[0] == "ValueError: 1 is odd"


def test_what_cannot_be_served_is_refused(app, server, tmp_path):
    of_file = shop.define(gristmill.App(tmp_path / "jobs.db"), cluster_jobs)
    many = gristmill.App(server)
    for number in range(65):
        many.job(name=f"job-{number}")(cluster_jobs.add.function)
    refusals = [
        (lambda: gristmill.ray.serve_agents(of_file), "the URL of a `gristmill serve`"),
        (lambda: gristmill.ray.serve_agents(app, min=3, max=2), "0 <= min <= max"),
        (lambda: gristmill.ray.serve_agents(app, jobs_per_agent=0), "from 1"),
        (lambda: gristmill.ray.serve_agents(many), "over 64 backlogs"),
        (lambda: gristmill.ray.submit_rows(of_file.jobs["add"], None), "a server's URL"),
        (lambda: gristmill.ray.read_results(of_file, [1]), "a server's URL"),
    ]
    for refused, reason in refusals:
        with pytest.raises(ValueError, match=reason):
            refused()
