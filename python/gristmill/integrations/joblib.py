"""Gristmill as a backend of joblib, and so of scikit-learn: the parts of a `Parallel` call are jobs in warm processes.

    import gristmill, joblib
    from gristmill.integrations.joblib import register

    register(gristmill.App("jobs.db"))
    with joblib.parallel_config("gristmill", n_jobs=4):
        joblib.Parallel()(joblib.delayed(abs)(number) for number in range(-10, 0))
"""

# joblib has no types.
# pyright: reportMissingTypeStubs=false, reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any

import joblib
from joblib._parallel_backends import AutoBatchingMixin
from joblib.parallel import ParallelBackendBase

try:
    import cloudpickle
except ImportError:
    # joblib before 1.6 brings it along.
    from joblib.externals import cloudpickle

from .._app import App
from .._errors import Fail
from ..executor import JobExecutor

_default: App | None = None


def register(app: App) -> None:
    """Makes this application serve the backend "gristmill"."""
    global _default
    _default = app
    joblib.register_parallel_backend("gristmill", GristmillBackend)


def signature(secret: bytes, text: str) -> str:
    """The HMAC-SHA256 of a pickle, in hexadecimal."""
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def calling(secret: bytes) -> Callable[[dict[str, str]], str]:
    """The function of the backend's jobs. It is sent with the secret to the worker's processes, not through the store."""

    def call(payload: dict[str, str]) -> str:
        return call_signed(secret, payload)

    return call


def call_signed(secret: bytes, payload: dict[str, str]) -> str:
    """Runs some calls of a `Parallel`, in a worker's process. A pickle is code, so it must come from the backend itself."""
    if not hmac.compare_digest(signature(secret, payload["calls"]), payload["signature"]):
        raise Fail("the backend that runs this job did not submit it")
    calls = cloudpickle.loads(base64.b64decode(payload["calls"]))
    try:
        outcome = (True, calls())
    except Exception as error:
        # joblib raises it where the results are taken.
        outcome = (False, error)
    answer = _pickled(outcome)
    return f"{signature(secret, answer)}:{answer}"


class PickledExecutor(JobExecutor):
    """Runs pickled calls."""

    kind = "gristmill.joblib.call"

    def __init__(self, app: App, processes: int, secret: bytes) -> None:
        self._secret = secret
        super().__init__(app, processes)

    def _function(self) -> Callable[[Any], Any]:
        return calling(self._secret)

    def submit_calls(self, calls: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Submits calls as a pickle."""
        self._start()
        text = _pickled(calls)
        return self._begin({"calls": text, "signature": signature(self._secret, text)}, None)


def outcome_of(secret: bytes, answer: str) -> Any:
    """The value that the calls returned; raises the exception that they raised.

    A pickle is code: only the backend's own processes know the secret.
    """
    signed, _, text = answer.partition(":")
    if not hmac.compare_digest(signature(secret, text), signed):
        raise RuntimeError("a worker of another program ended this job: its value is not read")
    is_returned, value = cloudpickle.loads(base64.b64decode(text))
    if is_returned:
        return value
    raise value


def _pickled(value: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(value)).decode()


class GristmillBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """The backend "gristmill" of joblib. Short tasks travel in groups, as joblib's own backends send them."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, app: App | None = None, **options: Any) -> None:
        super().__init__(**options)
        found = app or _default
        if found is None:
            raise ValueError("no application: call gristmill.integrations.joblib.register(app) first")
        self._app = found
        self._executor: PickledExecutor | None = None
        self._secret = os.urandom(32)
        self._processes = 1

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The number of processes."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        processors: int = joblib.cpu_count()
        return n_jobs if n_jobs > 0 else max(processors + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Begins a `Parallel`: its number of processes."""
        self.parallel = parallel
        self._processes = self.effective_n_jobs(n_jobs)
        return self._processes

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> concurrent.futures.Future[Any]:
        """Submits some calls."""
        if self._executor is None:
            self._executor = PickledExecutor(self._app, self._processes, self._secret)
        future = self._executor.submit_calls(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: concurrent.futures.Future[Any]) -> Any:
        """The results of some calls; raises their exceptions."""
        return outcome_of(self._secret, out.result())

    def terminate(self) -> None:
        """Ends the processes."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancels the jobs that have not ended."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
