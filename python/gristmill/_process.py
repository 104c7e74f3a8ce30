"""The side of a worker's process: finds the function of a job by its description, and knows when a module is imported there.

The runtime offers what a job can say (`job`, `progress`, `spawn`, `done`) as the module `_gristmill_process`.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from ._main_script import note_work

# The name that the main script's module has in a worker's process.
MAIN = "__gristmill_main__"

# What is imported by a worker's process at the moment: MAIN, a module's name, or None.
_importing: str | None = None


class _ImportEnds(BaseException):
    """Ends the import of a main script at the line that gives work to workers: all that its functions need stands above."""


def program_path() -> str | None:
    """The program that the wheel carries; None where this installation has none."""
    import os

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "gristmill")
    return program if os.access(program, os.X_OK) else None


def stop_import(call: str) -> None:
    """Called by whatever gives work to workers. A worker's process that imports a module must not do so."""
    if _importing is None:
        note_work()
        return
    if _importing == MAIN:
        raise _ImportEnds
    raise RuntimeError(
        f"{call} runs while a worker imports the module {_importing}, and would run again in each of its processes:"
        ' put it into a function, or below `if __name__ == "__main__":`'
    )


def offered() -> Any:
    """What the runtime offers to the job of this process; None outside of one."""
    return sys.modules.get("_gristmill_process")


def load_job(text: str) -> tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any] | None]:
    """What a worker's process runs: the function of one payload, and the one that is called when a job's children have ended."""
    import json

    from ._job import Job, finalizing

    description = json.loads(text)
    found = _find(description)
    if isinstance(found, Job):
        return found.entry(), found.finalizing()
    main = _calling(found, description)
    if "finalizer" not in description:
        return main, None
    from ._items.shape import Shape

    return main, finalizing(_find(description["finalizer"]), Shape(found).arguments_of)


def load(description: dict[str, Any]) -> Callable[[Any], Any]:
    """The function of one payload that a worker's process runs."""
    return _calling(_find(description), description)


def _calling(found: Any, description: dict[str, Any]) -> Callable[[Any], Any]:
    from ._items.shape import Shape
    from ._job import Job

    if isinstance(found, Job):
        return found.entry()
    batch = description.get("batch")
    if batch is not None:
        from ._batch import Batcher, BatchJob

        return Batcher.over(found, batch["size"], batch["wait_s"], None, BatchJob.shape_of(found)).main
    return Shape(found).calling(found)


def _to_plain(value: Any) -> Any:
    from ._values import to_plain

    return to_plain(value)


def _find(description: dict[str, Any]) -> Any:
    sys.path[:] = description["path"]
    runtime = offered()
    if runtime is not None:
        runtime.to_plain = _to_plain
    if "pickled" in description:
        from ._functions import restore

        return restore(description, _module_of(description))
    module = _module_of(description)
    from ._app import App
    from ._job import is_job

    found: Any = module
    for name in description["qualname"].split("."):
        found = getattr(found, name, None)
    known = found if is_job(found) else None
    if known is not None and known.name == description["name"]:
        return known
    # A job that stands under another name, or whose function does.
    values: list[Any] = list(module.__dict__.values())
    for value in values:
        if is_job(value) and value.name == description["name"]:
            return value
        if isinstance(value, App) and description["name"] in value.jobs:
            return value.jobs[description["name"]]
    if callable(found):
        return found if known is None else known.function
    raise AttributeError(
        f"{description.get('module') or description.get('main')} has no {description['qualname']} when a worker imports it:"
        " define it at the top of the module, before anything is submitted"
    )


def _module_of(description: dict[str, Any]) -> Any:
    global _importing
    before = _importing
    try:
        if "main" in description:
            _importing = MAIN
            sys.argv = [description["main"], *description.get("arguments", ())]
            return _main_module(description["main"], description.get("main_text"))
        if "module" in description:
            import importlib

            _importing = description["module"]
            return importlib.import_module(description["module"])
        return None
    finally:
        _importing = before


def _main_module(path: str, text: str | None) -> Any:
    """The main script up to its end, or to the line that gives work to workers. One of another machine came as its text."""
    import os
    import types

    module = types.ModuleType(MAIN)
    module.__file__ = path
    sys.modules[MAIN] = module
    if text is None or os.path.isfile(path):
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    else:
        code = compile(text, path, "exec", dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except _ImportEnds:
        pass
    return module
