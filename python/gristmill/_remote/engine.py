"""The operations of a server, with the names and types that the native engine has for a store."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, urlencode

from .._errors import StoreError
from .._items.portions import encoded, portions
from .._operations.requests import PAGE_ROWS, accepted, ask
from .connection import Connection
from .events import RemoteEvents
from .watching import Watcher

# How long a wait for the end of a batch may take; each further one is twice as long. Seconds.
WAIT_FIRST_S, WAIT_S_MAX = 0.1, 2.0
# How much longer than its wait a request may take. Seconds.
WAIT_SLACK_S = 30.0

# The method and path of each operation; {} stands for what it is about.
OPERATIONS = {
    "jobs": ("GET", "/jobs"),
    "count_jobs": ("GET", "/jobs/count"),
    "job": ("GET", "/jobs/{}"),
    "tag_values": ("GET", "/tags/{}"),
    "cancel": ("POST", "/jobs/cancel"),
    "retry": ("POST", "/jobs/retry"),
    "discard": ("POST", "/jobs/discard"),
    "prioritise": ("POST", "/jobs/prioritise"),
    "pause_jobs": ("POST", "/jobs/pause"),
    "resume_jobs": ("POST", "/jobs/resume"),
    "send_events": ("POST", "/jobs/events"),
    "fork_flows": ("POST", "/jobs/fork"),
    "flows": ("GET", "/flows"),
    "flow_kinds": ("GET", "/flows/kinds"),
    "steps": ("GET", "/jobs/{}/steps"),
    "flow_memos": ("POST", "/jobs/memos"),
    "schedules": ("GET", "/schedules"),
    "schedule": ("GET", "/schedules/{}"),
    "put_schedule": ("PUT", "/schedules/{}"),
    "pause_schedule": ("POST", "/schedules/{}/pause"),
    "resume_schedule": ("POST", "/schedules/{}/resume"),
    "trigger_schedule": ("POST", "/schedules/{}/trigger"),
    "delete_schedule": ("DELETE", "/schedules/{}"),
    "controls": ("GET", "/controls"),
    "put_controls": ("PUT", "/controls"),
    "lift_controls": ("POST", "/controls/lift"),
    "history": ("GET", "/history"),
    "backlog": ("GET", "/backlog"),
    "stats": ("GET", "/stats"),
    "workers": ("GET", "/workers"),
}

FINAL = ("completed", "dead", "cancelled", "expired")


class RemoteEngine:
    """A server."""

    def __init__(self, base_url: str, token: str | None = None) -> None:
        self.connection = Connection(base_url, token)
        self._watcher = Watcher(self)

    def close(self) -> None:
        self._watcher.close()
        self.connection.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "connection":
            raise AttributeError(name)
        raise StoreError(
            f"`{name}` needs a store of its own: the HTTP API of {self.connection.base_url} does not have it; open the server's"
            " file or PostgreSQL database for that"
        )

    # --- operations ---

    def carry_out(self, operation: str, subject: str, request: str) -> str:
        method, path = OPERATIONS[operation]
        target = path.format(quote(subject, safe=""))
        given = json.loads(request)
        if given and method == "GET":
            words = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in given.items()}
            target = f"{target}?{urlencode(words)}"
        body = request.encode() if method in ("POST", "PUT") else None
        return accepted(*self.connection.send(method, target, body)).decode() or "{}"

    def events(self, after: str | None = None) -> RemoteEvents:
        return RemoteEvents(self.connection, after)

    # --- submitting ---

    def submit_one(self, common: dict[str, Any], payload: Any, to_plain: Callable[[Any], Any]) -> tuple[int, int]:
        submitted = self._submit(common, f'"payload":{encoded(payload, to_plain)}')
        return _numbers(submitted["first"])

    def submit_keyed(self, common: dict[str, Any], payloads: list[str], keys: list[str], unique: str) -> list[tuple[int, int]]:
        """Submits payloads that are JSON with their deduplication keys, in one request. The id of each job."""
        keyed = f'"payloads":[{",".join(payloads)}],"keys":{json.dumps(keys)},"unique":{unique}'
        return [_numbers(id) for id in self._submit(common, keyed)["ids"]]

    def submit_many(
        self,
        common: dict[str, Any],
        payloads: Iterable[Any],
        to_plain: Callable[[Any], Any],
        stored: list[tuple[int, ...]],
    ) -> None:
        for portion in portions(payloads, to_plain):
            stored.extend(self.submit_encoded(common, portion))

    def submit_encoded(self, common: dict[str, Any], payloads: list[str]) -> list[tuple[int, ...]]:
        """Submits payloads that are JSON, in one request: batches with their numbers of jobs; of a single job, which may
        share its batch with jobs of other submits, also its position."""
        batches = self._submit(common, f'"payloads":[{",".join(payloads)}]')["batches"]
        if len(payloads) == 1:
            return [(batches[0]["batch"], 1, batches[0]["first_position"])]
        return [(batch["batch"], batch["count"]) for batch in batches]

    def _submit(self, common: dict[str, Any], payloads: str) -> Any:
        options = json.loads(common["options"])
        options.update(kind=common["kind"], queue=common["queue"])
        if common["delay_ms"] is not None:
            options["delay_ms"] = common["delay_ms"]
        if common["expires_ms"] is not None:
            options["expires_at"] = int(time.time() * 1000) + common["expires_ms"]
        if common["tags"]:
            options["tags"] = dict(common["tags"])
        if common["after"]:
            options["after"] = common["after"]
        body = f"{json.dumps(options)[:-1]},{payloads}}}".encode()
        return json.loads(accepted(*self.connection.send("POST", "/jobs", body)))

    # --- results ---

    def job(self, batch: int, position: int) -> dict[str, Any] | None:
        """All data of a job; None where there is no such job."""
        found: dict[str, Any] | None = ask(self, "job", subject=f"{batch}:{position}", is_optional=True)
        return found

    def wait_job(self, batch: int, position: int, timeout: float | None = None) -> Any:
        until = None if timeout is None else time.monotonic() + timeout
        wait_s = WAIT_FIRST_S
        while True:
            job = self.job(batch, position)
            if job is None:
                raise StoreError(f"job {batch}:{position} does not exist, or was pruned")
            if job["state"] in FINAL:
                return ended(job)
            left_s = wait_s if until is None else min(wait_s, until - time.monotonic())
            if left_s <= 0:
                return None
            self.wait_batch(batch, left_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    def wait_batch(self, batch: int, wait_s: float) -> None:
        """Waits until all jobs of a batch have ended, or so many seconds."""
        # The answer to HEAD carries none of their values.
        target = f"/results?batches={batch}&wait_ms={max(1, int(wait_s * 1000))}"
        self.connection.send("HEAD", target, answer_s=wait_s + WAIT_SLACK_S)

    def watch_job(self, batch: int, position: int, told: Callable[..., object]) -> None:
        self._watcher.watch(batch, position, told)

    def job_state(self, batch: int, position: int) -> str | None:
        job = self.job(batch, position)
        return None if job is None else job["state"]

    def job_log(self, batch: int, position: int) -> str | None:
        job = self.job(batch, position) or {}
        log: str | None = job.get("log")
        if log is None and job.get("failures"):
            log = job["failures"][-1].get("log")
        return log

    def outcome_lines(self, batches: Iterable[int], wait_s: float = 0.0) -> list[dict[str, Any]]:
        """The outcomes of the ended jobs of these batches; with a wait, once all have ended, or after so long."""
        listed = ",".join(map(str, batches))
        target = f"/results?batches={listed}&wait_ms={int(wait_s * 1000)}"
        answer = accepted(*self.connection.send("GET", target, answer_s=wait_s + WAIT_SLACK_S))
        return [json.loads(line) for line in answer.splitlines()]

    def outcomes(self, batch: int) -> list[tuple[Any, ...]]:
        return pieces(self.outcome_lines([batch]))

    # --- asking and changing ---

    def counts(self, queue: str | None = None, batch: int | None = None) -> dict[str, int]:
        counts: dict[str, int] = ask(self, "count_jobs", {"queue": queue, "batch": batch})["states"]
        return counts

    def payloads(self, kind: str) -> list[str]:
        listed = ask(self, "jobs", {"limit": PAGE_ROWS, "kind": kind})["jobs"]
        found = [self.job(*_numbers(row["job"])) for row in listed]
        return [json.dumps(job["payload"]) for job in found if job is not None]

    def cancel_jobs(self, jobs: list[tuple[int, int]]) -> int:
        names = [f"{batch}:{position}" for batch, position in jobs]
        changed: int = ask(self, "cancel", {"jobs": names})["changed"]
        return changed

    def send_event(self, batch: int, position: int, name: str, value: str) -> bool:
        body = f'{{"name":{json.dumps(name)},"value":{value}}}'.encode()
        status, answer = self.request("POST", f"/jobs/{batch}:{position}/events", body)
        if status == 409 and json.loads(answer).get("code") == "flow_ended":
            return False
        accepted(status, answer)
        return True

    def cancel_batch(self, batch: int) -> None:
        """Cancels what has not ended of a batch."""
        ask(self, "cancel", {"filter": {"batch": batch}})


def ended(job: dict[str, Any]) -> tuple[str, str | None, tuple[str, str, str | None] | None]:
    """How a job ended, as the native engine tells it: its state, its value as JSON and its last error."""
    failures = job.get("failures")
    if job["state"] == "completed":
        return job["state"], json.dumps(job.get("value")), None
    return job["state"], None, _error(failures[-1]) if failures else None


def pieces(lines: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Lines of outcomes as the pieces that the native engine has, with values that are parsed."""
    found: list[tuple[Any, ...]] = []
    by_outcome = itertools.groupby(lines, lambda line: (_numbers(line["job"])[0], line["state"] == "completed"))
    for (batch, is_completed), group in by_outcome:
        places = [(_numbers(line["job"])[1], line) for line in group]
        if is_completed:
            ranges: list[tuple[int, int]] = []
            for position, _ in places:
                if ranges and ranges[-1][1] == position:
                    ranges[-1] = (ranges[-1][0], position + 1)
                else:
                    ranges.append((position, position + 1))
            found.append(("values", batch, ranges, [line["value"] for _, line in places]))
        else:
            failed = [(position, line["state"], _error(line.get("error"))) for position, line in places]
            found.append(("failed", batch, failed))
    return found


def _error(error: dict[str, Any] | None) -> tuple[str, str, str | None] | None:
    return None if error is None else (error["type"], error["message"], error.get("traceback"))


def _numbers(job: str) -> tuple[int, int]:
    batch, _, position = job.partition(":")
    return int(batch), int(position)
