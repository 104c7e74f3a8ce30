"""How a worker's process finds a function.

* A function, or a job, of a module is imported there by its name.
* All others travel as code with the values that they refer to, as those are at the call: functions of the main script, of a
  notebook or of the interactive prompt, lambdas and local functions, `functools.partial`, methods and callable objects. The main
  script itself is not read again. A lambda or a local function of a module uses the module's own values, which are imported.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pickle
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._job import Job

# What finds a job's function in a worker's process: `_process.load` reads it.
Description = dict[str, Any]


def describe_job(job: Job[..., Any]) -> Description:
    """The data with which a worker's process finds a job: its function, and its finalizer."""
    description = _description(job.name)
    place = place_of_job(job)
    if place is None and _is_plain(job):
        place = place_of(job.function)
    if place is not None:
        return {**description, "place": place}
    return _packed(description, job, job.function)


def describe(function: Any, name: str) -> Description:
    """The data with which a worker's process finds a function that is not a job."""
    description = _description(name)
    place = place_of(function)
    if place is not None:
        return {**description, "place": place}
    return _packed(description, function, function)


def _description(name: str) -> Description:
    return {"name": name, "path": [os.path.abspath(folder) for folder in sys.path], "settings": _settings()}


def _packed(description: Description, what: Any, function: Any) -> Description:
    from ._packing import pack

    description["pickled"] = pack(what, str(getattr(function, "__qualname__", description["name"])))
    # A function may read the arguments of its script.
    description["arguments"] = sys.argv
    logging = _logging()
    if logging is not None:
        description["logging"] = logging
    return description


def _is_plain(job: Job[..., Any]) -> bool:
    from ._job import Job

    return type(job) is Job and job.finalizer is None


def place_of(function: Any) -> tuple[str, str] | None:
    """The module and the name from which a function can be imported; None if it cannot."""
    owner = getattr(function, "__objclass__", None)
    # Methods of built-in types have their class alone.
    module: str | None = getattr(function, "__module__", None) or getattr(owner, "__module__", None)
    qualname: str | None = getattr(function, "__qualname__", None)
    if module is None or qualname is None or module == "__main__" or isinstance(function, functools.partial):
        return None
    found = _found(module, qualname)
    is_found = found is function or (inspect.ismethod(found) and found == function)
    return (module, qualname) if is_found or getattr(found, "function", None) is function else None


def place_of_job(job: Job[..., Any]) -> tuple[str, str] | None:
    """The module, and the name of the function there, with which a worker's process finds a job; None where it finds none."""
    module: str | None = getattr(job.function, "__module__", None)
    qualname: str = getattr(job.function, "__qualname__", "")
    if module is None or module == "__main__":
        return None
    for known in jobs_of(module, qualname):
        if known.name == job.name and known.function is job.function:
            return module, qualname
    return None


def jobs_of(module: str, qualname: str) -> Iterator[Job[..., Any]]:
    """The jobs in a module: first under this name, then under others, then those of its applications."""
    from ._app import App
    from ._job import is_job

    found = _found(module, qualname)
    if is_job(found):
        yield found
    values: list[Any] = list(vars(sys.modules.get(module, sys)).values())
    for value in values:
        if is_job(value):
            yield value
        elif isinstance(value, App):
            yield from value.jobs.values()


def _found(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


# --- what the main script sets for its whole process ---


def _settings() -> dict[str, Any]:
    """Settings of a program that change the values of its functions, if they are not Python's defaults."""
    settings: dict[str, Any] = {}
    if sys.getrecursionlimit() != 1_000:
        settings["recursion"] = sys.getrecursionlimit()
    decimal = sys.modules.get("decimal")
    if decimal is not None and repr(decimal.getcontext()) != repr(decimal.Context()):
        settings["decimal"] = decimal.getcontext()
    return settings


def _logging() -> dict[str, Any] | None:
    """The level and format of a program's logs, if it has set them."""
    logging = sys.modules.get("logging")
    if logging is None or not logging.root.handlers or logging.root.level == logging.WARNING:
        return None
    formatter = logging.root.handlers[0].formatter
    return {"level": logging.root.level, "format": getattr(formatter, "_fmt", None)}


def apply_settings(description: Description) -> None:
    """Makes the same settings in a worker's process."""
    settings = description["settings"]
    if "recursion" in settings:
        sys.setrecursionlimit(settings["recursion"])
    if "decimal" in settings:
        import decimal

        decimal.setcontext(settings["decimal"])
        # For further threads.
        decimal.DefaultContext = settings["decimal"].copy()
    if "arguments" in description:
        sys.argv[:] = description["arguments"]
    if "logging" in description:
        import logging

        logging.basicConfig(**description["logging"])


# --- scripts ---


def write_script(folder: str, description: Description) -> str:
    """Writes the script of a worker's processes into the folder."""
    with tempfile.NamedTemporaryFile("wb", prefix="gristmill_job_", suffix=".pickle", dir=folder, delete=False) as data:
        pickle.dump(description, data)
    # The fork server imports what stands before the first other statement once, not in each process. The same in all scripts, so
    # that they share it.
    modules = "gristmill._app, gristmill._process, gristmill._packing"
    # On a line of its own, which no traceback shows.
    text = f"import {modules}\n_path = {json.dumps(data.name)}\nmain, finalize = gristmill._process.load_job(_path)\n"
    path = data.name.removesuffix(".pickle") + ".py"
    with open(path, "x", encoding="utf-8") as script:
        script.write(text)
    return path
