"""Gristmill as a backend of Django's tasks (Django 6, or the package django-tasks on older versions).

    # settings.py
    TASKS = {
        "default": {
            "BACKEND": "gristmill.integrations.django.GristmillBackend",
            "OPTIONS": {"store": BASE_DIR / "jobs.db", "retries": 2},
        }
    }

    # worker.py, for `gristmill worker worker:app`
    from gristmill.integrations.django import application

    app = application()

`OPTIONS` may have `durable` and the options of `gristmill.App.job`, such as `retries`, `timeout` and `processes`.
"""

# Django has no types.
# pyright: reportMissingTypeStubs=false, reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false

from __future__ import annotations

import builtins
from datetime import datetime, timezone
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.db import close_old_connections
from django.utils.module_loading import import_string

try:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
except ImportError:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

from .. import job as running_job
from .._app import App

_STATUSES = {
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
    "expired": TaskResultStatus.FAILED,
}


def application(alias: str = "default") -> App:
    """The application of a backend in the settings, for its workers. Sets up Django if needed."""
    _set_up()
    backend = task_backends[alias]
    if not isinstance(backend, GristmillBackend):
        raise TypeError(f"TASKS[{alias!r}] is no GristmillBackend: name the alias of one")
    return backend.app


def run_task(payload: dict[str, Any]) -> Any:
    """One task, in a worker's process."""
    _set_up()
    task = import_string(payload["task"])
    arguments = list(payload["args"])
    if task.takes_context:
        arguments.insert(0, TaskContext(task_result=_result_of_running(task, payload)))
    close_old_connections()
    try:
        return task.call(*arguments, **payload["kwargs"])
    finally:
        close_old_connections()


class GristmillBackend(BaseTaskBackend):  # type: ignore[misc, unused-ignore]
    """A backend whose tasks are jobs of a store."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        self.app = App(options.pop("store", "gristmill.db"), durable=options.pop("durable", True))
        self.kind = f"django.{alias}"
        # A worker without --queue serves the queue of this job.
        self.app.job(name=self.kind, **options)(run_task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submits a task."""
        self.validate_task(task)
        payload = {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}
        job = self.app.jobs[self.kind]
        now = datetime.now(timezone.utc)
        delay_s = None if task.run_after is None else max(0.0, (_aware(task.run_after) - now).total_seconds())
        handle = job.submit(payload, queue=task.queue_name, priority=task.priority, delay=delay_s)
        result = _result(task, handle.id, TaskResultStatus.READY, payload, enqueued_at=now)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The state of a task, with its value once it has completed."""
        found = self.app.details(result_id) if _is_job(result_id) else None
        if found is None or found.row.kind != self.kind:
            raise TaskResultDoesNotExist(result_id)
        row = found.row
        task = import_string(found.payload["task"])
        status = _STATUSES.get(row.state, TaskResultStatus.READY)
        began_at = row.claimed_at
        if began_at is None and row.finished_at is not None and found.duration_s is not None:
            began_at = datetime.fromtimestamp(row.finished_at.timestamp() - found.duration_s, timezone.utc)
        has_begun = status != TaskResultStatus.READY and row.attempt > 0
        result = _result(
            task,
            result_id,
            status,
            found.payload,
            enqueued_at=row.submitted_at,
            started_at=began_at,
            last_attempted_at=began_at,
            finished_at=row.finished_at,
            errors=[_error(failure.type, failure.traceback or failure.message) for failure in found.failures],
            worker_ids=[found.worker or ""] * (row.attempt if has_begun else len(found.failures)),
        )
        if status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", found.value)
        return result


def _result(task: Any, id: str, status: Any, payload: dict[str, Any], **members: Any) -> Any:
    times = dict.fromkeys(("enqueued_at", "started_at", "last_attempted_at", "finished_at"))
    return TaskResult(
        task=task,
        id=id,
        status=status,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=task.backend,
        **{**times, "errors": [], "worker_ids": [], **members},
    )


def _result_of_running(task: Any, payload: dict[str, Any]) -> Any:
    job = running_job()
    now = datetime.now(timezone.utc)
    worker_ids = [""] * (job.attempt if job else 1)
    running = TaskResultStatus.RUNNING
    return _result(task, job.id if job else "", running, payload, started_at=now, last_attempted_at=now, worker_ids=worker_ids)


def _error(name: str, trace: str) -> Any:
    # Only the name of the class is stored.
    found = getattr(builtins, name, None)
    is_builtin = isinstance(found, type) and issubclass(found, BaseException)
    path = f"builtins.{name}" if is_builtin else "gristmill.JobFailed"
    return TaskError(exception_class_path=path, traceback=trace)


def _aware(moment: datetime) -> datetime:
    """A moment with its time zone; one without a time zone is local."""
    return moment.astimezone(timezone.utc)


def _is_job(text: str) -> bool:
    batch, _, position = text.partition(":")
    return batch.isdecimal() and position.isdecimal() and len(text) <= 30


def _set_up() -> None:
    if settings.configured and apps.ready:
        return
    django.setup()
