"""The side of a worker's process: finds the function of a job by its description, and knows when a module is imported there.

The runtime offers what a job can say (`job`, `progress`, `spawn`, `done`) as the module `_gristmill_process`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ._functions import Description

# The module that a worker's process imports at the moment.
_importing: str | None = None

# Where the worker keeps the files of its processes, in such a process.
folder: str | None = None


def program_path() -> str | None:
    """The program in the wheel; None if this installation has none."""
    import os

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "gristmill")
    return program if os.access(program, os.X_OK) else None


def stop_import(call: str) -> None:
    """Called by every function that gives work to workers. A process that imports the program's modules must not do so."""
    where = None
    if _importing is not None:
        where = f"while a worker imports the module {_importing}"
    else:
        multiprocessing = sys.modules.get("multiprocessing.process")
        if multiprocessing is not None and getattr(multiprocessing.current_process(), "_inheriting", False):
            where = "while a process of multiprocessing reads the main script"
    if where is not None:
        raise RuntimeError(
            f"{call} runs {where}, and would run again in each such process:"
            ' put it into a function, or below `if __name__ == "__main__":`'
        )


def offered() -> Any:
    """The functions that the runtime offers to the job of this process; None outside of a job."""
    return sys.modules.get("_gristmill_process")


def load_job(path: str) -> tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any] | None]:
    """The functions that a worker's process runs: one for a payload, and one for the ended children of a job."""
    import os
    import pickle

    global folder
    folder = os.path.dirname(path)
    with open(path, "rb") as file:
        found = _find(pickle.load(file))
    from ._job import is_job

    return (found.entry(), found.finalizing()) if is_job(found) else (_calling(found), None)


def load(description: Description) -> Callable[[Any], Any]:
    """The function of a payload that a worker's process runs."""
    return _calling(_find(description))


def _calling(found: Any) -> Callable[[Any], Any]:
    from ._items.shape import Shape
    from ._job import is_job

    return found.entry() if is_job(found) else Shape(found).calling(found)


def _to_plain(value: Any) -> Any:
    from ._values import to_plain

    return to_plain(value)


def _plain_keys(value: Any) -> Any:
    from ._values import plain_keys

    return plain_keys(value)


def _find(description: Description) -> Any:
    """The job or function of a description."""
    from ._functions import apply_settings

    sys.path[:] = description["path"]
    runtime = offered()
    if runtime is not None:
        runtime.to_plain, runtime.plain_keys = _to_plain, _plain_keys
    apply_settings(description)
    if "pickled" in description:
        from ._packing import restore

        return restore(description["pickled"])
    module, qualname = description["place"]
    return _imported(module, qualname, description["name"])


def _imported(module: str, qualname: str, name: str) -> Any:
    """The job with this name in a module, or the function with the other name."""
    global _importing
    import importlib

    from ._functions import jobs_of
    from ._job import is_job

    _importing = module
    try:
        found: Any = importlib.import_module(module)
    finally:
        _importing = None
    for job in jobs_of(module, qualname):
        if job.name == name:
            return job
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if callable(found):
        return found.function if is_job(found) else found
    raise AttributeError(
        f"{module} has no {qualname} when a worker imports it: define it at the top of the module, before anything is submitted"
    )
