"""The operations of an application on its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .._errors import ForkRefused, NotFound
from .._options import check_names
from .._process import stop_import
from .requests import ask, moment_ms, pages, without_none

if TYPE_CHECKING:
    from .._handle import Handle
    from .._job import Job
    from .._native import Engine
    from .._options import Span
    from .events import Events
    from .records import Control, FlowKind, FlowRow, FlowStep, HistoryRow, JobDetails, JobRow, Schedule

Moment = datetime | float
# Events that one request sends.
EVENTS_PER_REQUEST = 1_000
# Flows of one page of a listing: the limit of the operation.
FLOWS_PER_PAGE = 200
Tags = Mapping[str, str | None]


class Operations:
    """The operations of an application on its store beside submitting and running jobs. On a server, the token's role decides.

    In the examples, `app` has an empty store and a job `double`.
    """

    def engine(self) -> Engine:
        """The engine of this process."""
        raise NotImplementedError

    # --- jobs ---

    def find(
        self, *, newest: bool = False, next: bool = False, limit: int | None = None, **conditions: Any
    ) -> Iterator[JobRow]:
        """The jobs that match, by id, read a page at a time; with `newest`, the latest `limit` (100), the latest first.

        With `next`, the waiting jobs that workers would get next, in the order of claims, up to `limit` (100), whatever the size of
        their payloads; `job` and `queue` are the only conditions.

        Conditions: `states` (a state or several), `job` (a job or the name of its kind), `queue`, `group`, `batch`, `tags`
        (a dict; None stands for any value), `since` and `until` (the submit; datetimes or seconds since 1970), `key`,
        `key_prefix`, `parent`.

        >>> jobs = double.submit_many(range(3), tags={"customer": "7"})
        >>> [row.id for row in app.find(states="waiting", job=double, tags={"customer": "7"})]
        ['1:0', '1:1', '1:2']
        >>> [row.id for row in app.find(newest=True, limit=1)]
        ['1:2']
        >>> urgent = double.submit(1, priority=5)
        >>> [row.id for row in app.find(next=True, limit=2)]
        ['2:0', '1:0']
        """
        from .records import JobRow

        check_names("app.find(…)", conditions, (*CONDITIONS, "newest", "next", "limit"))
        query = as_query(conditions_of(**conditions))
        if newest or next:
            order = {name: True for name, wanted in (("newest", newest), ("next", next)) if wanted}
            listed = ask(self.engine(), "jobs", {**query, **order, "limit": limit})["jobs"]
            return map(JobRow.of, listed)
        return map(JobRow.of, pages(self.engine(), "jobs", "jobs", query, limit))

    def details(self, job: str | Handle[Any]) -> JobDetails | None:
        """Everything that is known of one job; None where there is no such job.

        >>> handle = double.submit(21)
        >>> app.drain(), app.details(handle).value, app.details("99:0")
        (1, 42, None)
        """
        from .records import JobDetails

        view = ask(self.engine(), "job", subject=str(job), is_optional=True)
        return None if view is None else JobDetails.of(view)

    def tag_values(self, tag: str) -> Iterator[tuple[str, int]]:
        """The values of a tag of all stored jobs, each with its number of jobs.

        >>> jobs = double.submit_many(range(3), tags={"customer": "7"})
        >>> list(app.tag_values("customer"))
        [('7', 3)]
        """
        rows = pages(self.engine(), "tag_values", "values", {}, None, tag)
        return ((row["value"], row["jobs"]) for row in rows)

    def cancel(self, *jobs: str | Handle[Any], **conditions: Any) -> int:
        """Cancels jobs that have not ended: these, or those that match (as `find` has it). How many that were.

        >>> handle = double.submit(1)
        >>> jobs = double.submit_many(range(3), tags={"customer": "7"})
        >>> app.cancel(handle), app.cancel(tags={"customer": "7"})
        (1, 3)
        """
        return self._change("cancel", jobs, conditions)

    def retry(self, *jobs: str | Handle[Any], **conditions: Any) -> int:
        """Lets dead, cancelled or expired jobs run again, with all their attempts. How many that were.

        >>> handle = double.submit(1)
        >>> handle.cancel(), app.retry(handle), handle.state()
        (True, 1, 'waiting')
        """
        return self._change("retry", jobs, conditions)

    def discard(self, *jobs: str | Handle[Any], **conditions: Any) -> int:
        """Ends dead jobs as cancelled: they no longer count as dead. How many that were.

        >>> handle = double.submit(None, retries=0)
        >>> app.drain(), handle.state()
        (0, 'dead')
        >>> app.discard(states="dead"), handle.state()
        (1, 'cancelled')
        """
        return self._change("discard", jobs, conditions)

    def prioritise(self, priority: int, *jobs: str | Handle[Any], **conditions: Any) -> int:
        """Gives jobs that have not ended another priority. How many that were.

        >>> handle = double.submit(1)
        >>> app.prioritise(10, handle), app.details(handle).row.priority
        (1, 10)
        """
        return self._change("prioritise", jobs, conditions, priority=priority)

    def pause_jobs(
        self, reason: str, *jobs: str | Handle[Any], until_moment: Moment | None = None, **conditions: Any
    ) -> int:
        """Pauses jobs that have not ended, until they are resumed by the same reason. How many that were.

        >>> handle = double.submit(1)
        >>> app.pause_jobs("holiday", handle), app.drain(), handle.state()
        (1, 0, 'paused')
        """
        return self._change("pause_jobs", jobs, conditions, reason=reason, until=moment_ms(until_moment))

    def resume_jobs(self, reason: str | None, *jobs: str | Handle[Any], **conditions: Any) -> int:
        """Ends the jobs' pauses of this reason, or all their own. How many jobs that were.

        >>> handle = double.submit(1)
        >>> app.pause_jobs("holiday", handle), app.resume_jobs("holiday", handle), handle.state()
        (1, 1, 'waiting')
        """
        return self._change("resume_jobs", jobs, conditions, reason=reason)

    def send_events(self, events: Iterable[tuple[str | Handle[Any], str, Any]], *, kind: str | None = None) -> list[str]:
        """Sends events to flows: tuples of the flow, the name and the value. A flow is a handle, an id ("42:7"), or "key=" and its
        deduplication key; `kind` is needed where several open jobs have a key. A thousand events are one transaction.

        What became of each: "delivered", "kept" until the flow awaits it, or not sent because the flow has "ended", is "unknown",
        or has too many kept events ("full").

        >>> app.send_events([("key=order-17", "paid", {"by": "Ada"}), ("99:0", "paid", None)])
        ['unknown', 'unknown']
        """
        import itertools

        stop_import("app.send_events(…)")
        receipts: list[str] = []
        waiting = iter(events)
        while portion := list(itertools.islice(waiting, EVENTS_PER_REQUEST)):
            body: list[dict[str, Any]] = []
            for flow, name, value in portion:
                named = str(flow)
                address = without_none({"key": named[4:], "kind": kind}) if named[:4] == "key=" else {"job": named}
                body.append({**address, "name": name, "value": value})
            told = ask(self.engine(), "send_events", {"events": body})["events"]
            receipts.extend(event["receipt"] for event in told)
        return receipts

    def fork_flows(
        self,
        from_step: str | int,
        *flows: str | Handle[Any],
        step_key: str | None = None,
        version: str | None = None,
        **conditions: Any,
    ) -> list[tuple[str, str | ForkRefused]]:
        """Forks flows that have ended: these, or those that match (as `find` has it), at most 10,000. A fork is a new instance
        with the outcomes of all steps that the flow began before `from_step`, which is the name of a step or its number in
        `gristmill flow show`; this step and what follows run again. `version`: that of the new instances.

        The ids of the flows, each with that of its fork, or with the reason why there is none.

        >>> app.fork_flows("embed", "99:0")
        [('99:0', ForkRefused('flow 99:0 is not forked: it does not exist'))]
        """
        stop_import("app.fork_flows(…)")
        check_names("app.fork_flows(…)", conditions, CONDITIONS)
        named = [str(flow) for flow in flows]
        if named and conditions or not (named or conditions):
            raise ValueError("give either flows or conditions")
        body = without_none({"from": from_step, "step_key": step_key, "version": version})
        if named:
            body["jobs"] = named
        else:
            body["filter"] = conditions_of(**conditions)
        told = ask(self.engine(), "fork_flows", body)["flows"]
        forks: list[tuple[str, str | ForkRefused]] = []
        for one in told:
            fork: str | None = one.get("fork")
            refused = ForkRefused(f"flow {one['flow']} is not forked: {one.get('error')}")
            forks.append((one["flow"], refused if fork is None else fork))
        return forks

    def flows(
        self,
        flow: str | None = None,
        *,
        states: str | Iterable[str] | None = None,
        queue: str | None = None,
        no_worker: bool = False,
        limit: int | None = None,
    ) -> Iterator[FlowRow]:
        """The flows of a name or a kind ("document", "document@3"), by id, read a page at a time, each with what it waits for.
        `no_worker`: only flows of kinds that no registered worker serves.

        >>> @app.flow
        ... async def wait(flow) -> str:
        ...     return await flow.event("go")
        >>> handle, ran = wait.submit(), app.drain()
        >>> [(row.name, row.job.state, row.awaited[0].event) for row in app.flows("wait")]
        [('wait', 'blocked', 'go')]
        """
        from .records import FlowRow

        query = as_query(without_none({**conditions_of(states=states, queue=queue), "flow": flow, "no_worker": no_worker or None}))
        return map(FlowRow.of, pages(self.engine(), "flows", "flows", query, limit, page_rows_max=FLOWS_PER_PAGE))

    def flow_kinds(self, flow: str | None = None, *, queue: str | None = None, no_worker: bool = False) -> list[FlowKind]:
        """The number of flows by name, version, queue and state. A flow is counted once one of its kind has waited.

        >>> @app.flow(version="3")
        ... async def wait(flow) -> str:
        ...     return await flow.event("go")
        >>> handle, ran = wait.submit(), app.drain()
        >>> [(kind.name, kind.version, kind.states["blocked"]) for kind in app.flow_kinds()]
        [('wait', '3', 1)]
        """
        from .records import FlowKind

        query = {"flow": flow, "queue": queue, "no_worker": no_worker or None}
        return [FlowKind.of(kind) for kind in ask(self.engine(), "flow_kinds", query)["kinds"]]

    def steps(self, flow: str | Handle[Any], *, limit: int | None = None) -> Iterator[FlowStep]:
        """The steps of a flow, in the order in which it asked for them, read a page at a time. A map is one step.

        >>> @app.flow
        ... async def twice(flow, number: int) -> int:
        ...     return await flow.step(double, await flow.step(double, number))
        >>> handle, ran = twice.submit(1), app.drain()
        >>> [(step.number, step.name, step.state) for step in app.steps(handle)]
        [(0, 'double', 'completed'), (1, 'double', 'completed')]
        """
        from .records import FlowStep

        return map(FlowStep.of, pages(self.engine(), "steps", "steps", {}, limit, str(flow), place="from"))

    def _change(self, what: str, jobs: Iterable[Any], conditions: dict[str, Any], **members: Any) -> int:
        stop_import(f"app.{what}(…)")
        check_names(f"a call that changes jobs ({what})", conditions, CONDITIONS)
        named = [str(job) for job in jobs]
        if named and conditions:
            raise ValueError("give either jobs or conditions")
        body = without_none(members)
        if named:
            body["jobs"] = named
        else:
            body["filter"] = conditions_of(**conditions)
        changed: int = ask(self.engine(), what, body)["changed"]
        return changed

    # --- schedules ---

    def schedule(
        self,
        name: str,
        job: Job[..., Any],
        *arguments: Any,
        cron: str | None = None,
        time_zone: str | None = None,
        every: Span | None = None,
        catch_up: str = "one",
        overlap: str = "allow",
        tags: Mapping[str, str] | None = None,
    ) -> Schedule:
        """Submits the job by a cron expression ("30 4 * * mon-fri", "@daily") or at a fixed interval, from now on, while any
        process has the store open (a worker, a server, or this one). `time_zone` is the expression's, "UTC" by default.

        Put again under the same name, a schedule is changed; with the same rule it stays due as it was, so a program may put
        its schedules at each start. `catch_up`: the action for moments that passed while no process ran: "one" job for all,
        "all" or "skip". `overlap`: the action while the last job has not ended: "allow", "skip" or "replace" it.

        >>> schedule = app.schedule("nightly", double, 21, cron="30 4 * * *", time_zone="Europe/Berlin")
        >>> schedule.payload, schedule.rule["cron"]["expression"]
        (21, '30 4 * * *')
        >>> app.schedule("often", double, 21, every="5m").rule
        {'every': {'interval_ms': 300000}}
        """
        import json

        from .._spans import milliseconds
        from .records import Schedule

        stop_import(f"schedule({name!r}, …)")
        if (cron is None) == (every is None):
            raise ValueError(f"schedule {name!r}: give either cron= or every=")
        if every is not None and time_zone is not None:
            raise ValueError(
                f"schedule {name!r}: every= is elapsed time and takes no time_zone=; for each day of the calendar, give "
                'cron="@daily"'
            )
        rule: dict[str, Any] = {"cron": {"expression": cron, "time_zone": time_zone or "UTC"}}
        if every is not None:
            rule = {"every": {"interval_ms": milliseconds(every)}}
        common = job.common(tags=tags)
        body = {
            **json.loads(common["options"]),
            **without_none({"expires_after_ms": common["expires_ms"]}),
            "rule": rule,
            "kind": common["kind"],
            "queue": common["queue"],
            "payload": job.shape.payload(arguments),
            "tags": dict(common["tags"]),
            "catch_up": catch_up,
            "overlap": overlap,
        }
        return Schedule.of(ask(self.engine(), "put_schedule", body, name))

    def schedules(self) -> Iterator[Schedule]:
        """All schedules, by name.

        >>> schedule = app.schedule("nightly", double, 21, cron="@daily")
        >>> [schedule.name for schedule in app.schedules()]
        ['nightly']
        """
        from .records import Schedule
        from .requests import PAGE_ROWS

        after = None
        while True:
            page = ask(self.engine(), "schedules", {"after": after, "limit": PAGE_ROWS})["schedules"]
            yield from map(Schedule.of, page)
            if len(page) < PAGE_ROWS:
                return
            after = page[-1]["schedule"]

    def find_schedule(self, name: str) -> Schedule | None:
        """The schedule of this name.

        >>> app.find_schedule("nightly") is None
        True
        """
        from .records import Schedule

        view = ask(self.engine(), "schedule", subject=name, is_optional=True)
        return None if view is None else Schedule.of(view)

    def pause_schedule(self, name: str, until: Moment | None = None) -> Schedule:
        """Lets a schedule submit nothing, until it is resumed or that moment has come.

        >>> schedule = app.schedule("nightly", double, 21, cron="@daily")
        >>> app.pause_schedule("nightly").is_paused, app.resume_schedule("nightly").is_paused
        (True, False)
        """
        return self._change_schedule(name, "pause", without_none({"until": moment_ms(until)}))

    def resume_schedule(self, name: str) -> Schedule:
        """Ends the pause of a schedule. Moments that passed meanwhile are skipped.

        >>> schedule = app.schedule("nightly", double, 21, cron="@daily")
        >>> app.resume_schedule("nightly").is_paused
        False
        """
        return self._change_schedule(name, "resume")

    def trigger_schedule(self, name: str) -> Schedule:
        """Submits the job of a schedule now.

        >>> schedule = app.schedule("nightly", double, 21, cron="@daily")
        >>> app.trigger_schedule("nightly").fired, app.drain()
        (1, 1)
        """
        return self._change_schedule(name, "trigger")

    def delete_schedule(self, name: str) -> bool:
        """Deletes a schedule; whether there was one. Its jobs stay.

        >>> schedule = app.schedule("nightly", double, 21, cron="@daily")
        >>> app.delete_schedule("nightly"), app.delete_schedule("nightly")
        (True, False)
        """
        try:
            ask(self.engine(), "delete_schedule", subject=name)
        except NotFound:
            return False
        return True

    def _change_schedule(self, name: str, change: str, body: dict[str, Any] | None = None) -> Schedule:
        from .records import Schedule

        stop_import(f"app.{change}_schedule(…)")
        return Schedule.of(ask(self.engine(), f"{change}_schedule", body, name))

    # --- pauses, limits, shares ---

    def pause(self, reason: str, until: Moment | None = None, **scope: Any) -> None:
        """Lets workers claim no jobs of a scope: `queue`, `job` (or its kind's name) and `group`; all jobs without any.

        Pauses of several reasons stack. Running jobs go on. The pause ends at the moment `until`, or by `resume`.

        >>> handle = double.submit(1)
        >>> app.pause("holiday", job=double)
        >>> app.drain(), app.resume("holiday", job=double), app.drain()
        (0, True, 1)
        """
        self._put_control({"pause": without_none({"reason": reason, "until": moment_ms(until)})}, scope)

    def resume(self, reason: str, **scope: Any) -> bool:
        """Ends the pause of this reason and exactly this scope; whether there was one.

        >>> app.resume("holiday")
        False
        """
        check_names("app.resume(…)", scope, SCOPE)
        return self._lift({"effects": ["pause"], "reason": reason, "scope": scope_of(**scope)}) > 0

    def limit(
        self,
        running: int | None = None,
        *,
        rate: int | None = None,
        per: Span = 1.0,
        burst: int | None = None,
        **scope: Any,
    ) -> None:
        """Limits how many jobs of a scope run at once (`running`), or how many begin in a time (`rate` of them `per` second or
        other span, `burst` at once). With `each_group=True`, each group has a limit of its own.

        >>> app.limit(2, job=double)
        >>> app.limit(rate=100, per="1m", queue="mail", each_group=True)
        >>> [control.effect for control in app.controls()]
        ['concurrency', 'rate']
        """
        from .._spans import milliseconds

        if (running is None) == (rate is None):
            raise ValueError("give either running= or rate=")
        if running is not None:
            effect: dict[str, Any] = {"concurrency": {"jobs_max": running}}
        else:
            effect = {"rate": {"jobs": rate, "period_ms": milliseconds(per), "burst": burst or rate}}
        self._put_control(effect, scope)

    def share(self, weight: int = 1, minimum: int = 0, **scope: Any) -> None:
        """Gives a queue or a group a share of the claims in proportion to others; while fewer than `minimum` of its jobs run,
        it comes first.

        >>> app.share(weight=3, queue="default")
        >>> app.controls()[0].values["weight"]
        3
        """
        self._put_control({"share": {"weight": weight, "jobs_min": minimum}}, scope)

    def lift(self, *effects: str, reason: str | None = None, **scope: Any) -> int:
        """Lifts limits, pauses and shares: those of these effects ("pause", "concurrency", "rate", "share", "aging"), of this
        reason and, where one is given, of exactly this scope. How many that were.

        >>> app.limit(2, job=double)
        >>> app.lift("concurrency", job=double), app.controls()
        (1, [])
        """
        check_names("app.lift(…)", scope, (*SCOPE, "reason"))
        request = without_none({"effects": list(effects) or None, "reason": reason})
        if scope:
            request["scope"] = scope_of(**scope)
        return self._lift(request)

    def controls(self) -> list[Control]:
        """All pauses, limits, shares and agings, by age.

        >>> app.pause("holiday", queue="mail")
        >>> [(control.effect, control.queue) for control in app.controls()]
        [('pause', 'mail')]
        """
        from .records import Control

        return [Control.of(view) for view in ask(self.engine(), "controls")["controls"]]

    def _put_control(self, effect: dict[str, Any], scope: dict[str, Any]) -> None:
        stop_import("a pause or a limit")
        check_names("a pause, a limit or a share", scope, SCOPE)
        ask(self.engine(), "put_controls", {"controls": [{"scope": scope_of(**scope), "effect": effect}]})

    def _lift(self, request: dict[str, Any]) -> int:
        lifted: int = ask(self.engine(), "lift_controls", request)["lifted"]
        return lifted

    # --- watching ---

    def events(self, after: str | None = None, timeout: float | None = None) -> Events:
        """Events of all processes that use the store, in commit order: from now on, or after the `cursor` of an event. They are
        kept for an hour after the last listener.

        >>> events = app.events(timeout=10)
        >>> handle = double.submit(1)
        >>> next(events).type
        'submitted'
        >>> events.close()
        """
        from .events import Events

        return Events(self.engine().events(after), timeout)

    def history(
        self,
        *,
        job: Job[..., Any] | str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        by: str = "all",
    ) -> list[HistoryRow]:
        """How many jobs ended, how, and how long they took, by kind and queue: of all time, or of each "hour" or "day" (UTC), the
        latest first.

        >>> jobs = double.submit_many(range(3))
        >>> app.drain(), [(row.kind, row.completed) for row in app.history()]
        (3, [('double', 3)])
        """
        from .records import HistoryRow

        query = {"kind": kind_of(job), "queue": queue, "since": moment_ms(since), "until": moment_ms(until), "by": by}
        return [HistoryRow.of(row) for row in ask(self.engine(), "history", query)["rows"]]

    def backlog(self, *, job: Job[..., Any] | str | None = None, queue: str | None = None) -> dict[str, Any]:
        """The work that is left for workers, of a job, a queue, both or all: the numbers of jobs `due`, `running`, `jobs` (both
        together), `held_back` and `later`, and `oldest_due_seconds`, as `GET /backlog` has them.

        >>> jobs = double.submit_many(range(3))
        >>> app.backlog(job=double)["due"]
        3
        """
        backlog: dict[str, Any] = ask(self.engine(), "backlog", {"kind": kind_of(job), "queue": queue})
        return backlog

    def stats(self) -> dict[str, Any]:
        """Totals of the store: `queues` (jobs by queue, kind and state), `hops` (batches by hop), `workers`, `batches`,
        `failures`, `size_bytes` and others, as `GET /stats` has them.

        >>> jobs = double.submit_many(range(3))
        >>> app.stats()["batches"]
        1
        """
        stats: dict[str, Any] = ask(self.engine(), "stats")
        return stats


def kind_of(job: Any) -> str | None:
    """The kind of a job, or the name itself."""
    if job is None or isinstance(job, str):
        return job
    if not isinstance(getattr(job, "name", None), str):
        raise TypeError(f"job={job!r}: give a job of the application, or the name of its kind")
    name: str = job.name
    return name


# Conditions on jobs, and parts of the scope of a pause or a limit.
CONDITIONS = ("states", "job", "queue", "group", "batch", "tags", "since", "until", "key", "key_prefix", "parent")
SCOPE = ("queue", "job", "group", "each_group")


def scope_of(queue: str | None = None, job: Any = None, group: str | None = None, each_group: bool = False) -> dict[str, Any]:
    """The scope of a pause or a limit."""
    scope = without_none({"queue": queue, "kind": kind_of(job), "group": group})
    return {**scope, "each_group": True} if each_group else scope


def conditions_of(
    states: str | Iterable[str] | None = None,
    job: Any = None,
    queue: str | None = None,
    group: str | None = None,
    batch: int | None = None,
    tags: Tags | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    key: str | None = None,
    key_prefix: str | None = None,
    parent: Any = None,
) -> dict[str, Any]:
    """Conditions on jobs, in the form of the API's filters."""
    return without_none(
        {
            "states": [states] if isinstance(states, str) else None if states is None else list(states),
            "kind": kind_of(job),
            "queue": queue,
            "group": group,
            "batch": batch,
            "tags": None if tags is None else [name if value is None else f"{name}={value}" for name, value in tags.items()],
            "since": moment_ms(since),
            "until": moment_ms(until),
            "key": key,
            "key_prefix": key_prefix,
            "parent": None if parent is None else str(parent),
        }
    )


def as_query(conditions: dict[str, Any]) -> dict[str, Any]:
    """The conditions as parameters, with lists separated by commas."""
    for name in ("states", "tags"):
        listed = conditions.get(name)
        if listed is not None:
            if any("," in value for value in listed):
                raise ValueError(f"{name} with a comma cannot be asked for: {listed}")
            conditions[name] = ",".join(listed)
    return conditions
