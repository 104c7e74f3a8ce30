"""Functions and classes as data, with the values that they refer to: cloudpickle, with what it lacks.

* Jobs of modules travel by their places.
* A local function of a module keeps the globals of its module, which is imported.
* Annotations that are text are resolved here, where their names have values.
* Cached functions and properties, and generic functions of `functools`.
* What cannot travel is named.
* Processes that a function spawns with `multiprocessing` find the functions and classes of the main script, too.
"""

# cloudpickle has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
import pickle
import sys
import types
import typing
import weakref
from collections.abc import Iterator
from typing import Any, cast

import cloudpickle

_cloudpickle: Any = cloudpickle.cloudpickle


def pack(value: Any, name: str) -> bytes:
    """Packs a function, a job or another callable object, with the functions and classes of the main script that it needs."""
    try:
        return _dumps(value)
    except Exception as error:
        found = _culprit(value, set())
        if found is None:
            raise TypeError(f"the function {name} cannot travel to a worker's process: {error}") from error
        name, kind, reason = found
        raise TypeError(
            f"the function refers to `{name}`, a {kind} that cannot travel to a worker's process ({reason}):"
            " make it inside the function, or define both in a module, which each process imports"
        ) from error


def _dumps(value: Any) -> bytes:
    with io.BytesIO() as file:
        pickler = _Pickler(file)
        pickler.dump(value)
        # Of one memory, so that they are the same objects.
        pickler.dump(pickler.named)
        return file.getvalue()


def restore(data: bytes) -> Any:
    """Unpacks the data of `pack`. Its functions and classes are also in `__main__`, where `pickle` looks for them."""
    unpickler = pickle.Unpickler(io.BytesIO(data))
    value, named = unpickler.load(), unpickler.load()
    main = sys.modules["__main__"]
    if not hasattr(main, "_gristmill_process"):
        own, main = main, _Main("__main__")
        # The code of this process stays as it is.
        vars(main)["_gristmill_process"] = own
        sys.modules["__main__"] = main
    vars(main).update(named)
    return value


class _Main(types.ModuleType):
    """The replacement of the main script in a worker's process."""

    @property
    def __file__(self) -> str:  # type: ignore[override]
        """A file from which a process that `multiprocessing` spawns reads this module. For all others, it does not exist."""
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if not caller.f_globals.get("__name__", "").endswith(".spawn"):
            raise AttributeError("the main script is not read in a worker's process: it has no __file__ there")
        return _written_main(vars(self))


# Files that were written for processes that a function spawned, the latest last, by the hash of what they hold.
_main_files: dict[bytes, str] = {}
# How many of them are kept. A process that was spawned reads its own at once.
_MAIN_FILES_MAX = 64


def _written_main(members: dict[str, Any]) -> str:
    import hashlib
    import tempfile

    from ._process import folder

    own = {name: value for name, value in members.items() if name != "_gristmill_process" and not name.startswith("__")}
    try:
        data = _dumps(own)
    except Exception as error:
        culprits = (_culprit(value, set()) for value in own.values())
        name, kind, reason = next(filter(None, culprits), ("__main__", "module", error))
        raise TypeError(
            f"a process that multiprocessing spawns cannot have `{name}`, a {kind} that the functions of the main script refer to"
            f" ({reason}): make it inside the function, define both in a module, or use multiprocessing.get_context('fork')"
        ) from error
    key = hashlib.sha256(data).digest()
    if key not in _main_files:
        with tempfile.NamedTemporaryFile("wb", prefix="gristmill_main_", suffix=".pickle", dir=folder, delete=False) as file:
            file.write(data)
        script = file.name.removesuffix(".pickle") + ".py"
        with open(script, "x", encoding="utf-8") as text:
            text.write(f"import gristmill._packing\nglobals().update(gristmill._packing.read_main({file.name!r}))\n")
        while len(_main_files) >= _MAIN_FILES_MAX:
            eldest = _main_files.pop(next(iter(_main_files)))
            os.remove(eldest)
            os.remove(eldest.removesuffix(".py") + ".pickle")
        _main_files[key] = script
    return _main_files[key]


def read_main(path: str) -> dict[str, Any]:
    """The functions and classes of a main script, in a process that a function spawned."""
    with open(path, "rb") as file:
        members: dict[str, Any] = pickle.load(file)
    return members


class _Pickler(_cloudpickle.Pickler):  # type: ignore[misc]
    """Packs one value."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        # The functions and classes of the main script that travel.
        self.named: dict[str, Any] = {}

    def reducer_override(self, value: Any) -> Any:
        from ._functions import place_of, place_of_job
        from ._job import Job

        if isinstance(value, Job):
            job = cast("Job[..., Any]", value)
            place = place_of_job(job)
            return NotImplemented if place is None else (_job, (*place, job.name))
        if isinstance(value, functools._lru_cache_wrapper) and place_of(value) is None:  # pyright: ignore[reportPrivateUsage]
            cached = cast(Any, value)
            return _cached, (cached.__wrapped__, cached.cache_parameters())
        if type(value) is functools.cached_property:
            return _cached_property, (value.func, value.attrname)
        if type(value) is weakref.WeakKeyDictionary:
            return weakref.WeakKeyDictionary, ()
        if isinstance(value, types.FunctionType):
            return self._reduce_function(value)
        reduced = super().reducer_override(value)
        # Of a few built-in types, such as that of None, the tuple is shorter.
        if isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) > 2:
            self._note(value)
            # The arguments of the class's making, and the members that it gets then.
            members: dict[str, Any] = reduced[2][0]
            if "__annotations__" in members:
                members["__annotations__"] = _resolved(value, members["__annotations__"])
        return reduced

    def _reduce_function(self, function: types.FunctionType) -> Any:
        from ._functions import place_of

        place = place_of(function)
        if place is not None and _is_job_there(*place):
            # Its name there stands for the job.
            return _function_of_job, place
        reduced = super().reducer_override(function)
        if not isinstance(reduced, tuple):
            return reduced
        make, (code, namespace, *rest), (state, slots), *setters = reduced
        slots["__annotations__"] = _resolved(function, slots["__annotations__"])
        module = sys.modules.get(function.__module__ or "")
        if module is not None and function.__module__ != "__main__" and function.__globals__ is vars(module):
            namespace, slots["__globals__"] = _Globals(function.__module__), {}
        else:
            self._note(function)
        return make, (code, namespace, *rest), (state, slots), *setters

    def _note(self, value: Any) -> None:
        if value.__module__ == "__main__" and "." not in value.__qualname__ and "<" not in value.__qualname__:
            self.named[value.__qualname__] = value


class _Globals:
    """The globals of a module, which is imported."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __reduce__(self) -> Any:
        return _globals, (self.module,)


def _globals(module: str) -> dict[str, Any]:
    return vars(importlib.import_module(module))


def _job(module: str, qualname: str, name: str) -> Any:
    from ._functions import jobs_of

    importlib.import_module(module)
    return next(job for job in jobs_of(module, qualname) if job.name == name)


def _is_job_there(module: str, qualname: str) -> bool:
    from ._functions import jobs_of

    if module.startswith("cloudpickle."):
        # Each function refers to some of its functions, and it has no jobs.
        return False
    return any(getattr(job.function, "__qualname__", None) == qualname for job in jobs_of(module, qualname))


def _function_of_job(module: str, qualname: str) -> Any:
    from ._functions import jobs_of

    importlib.import_module(module)
    return next(job.function for job in jobs_of(module, qualname) if job.function.__qualname__ == qualname)


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _resolved(annotated: Any, annotations: dict[str, Any]) -> dict[str, Any]:
    """Annotations as values; unchanged if one of them cannot be resolved."""
    if all(isinstance(annotation, type) for annotation in annotations.values()):
        return annotations
    try:
        hints = typing.get_type_hints(annotated, include_extras=True)
    except Exception:
        return annotations
    return {name: hints.get(name, annotation) for name, annotation in annotations.items()}


# --- what cannot travel ---


def _culprit(value: Any, seen: set[int]) -> tuple[str, str, Exception] | None:
    """The name, the type and the fault of the first value that cannot be sent, among the values that a value refers to."""
    for name, part in _parts(value):
        if id(part) in seen:
            continue
        seen.add(id(part))
        try:
            _dumps(part)
        except Exception as error:
            return _culprit(part, seen) or (name, type(part).__qualname__, error)
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    from ._job import is_job

    if is_job(value):
        yield value.name, value.function
        yield value.name, value.finalizer
        return
    if isinstance(value, functools.partial):
        yield "the function of a partial", value.func
        yield from (("an argument of a partial", argument) for argument in value.args)
        yield from value.keywords.items()
        return
    if inspect.ismethod(value):
        yield "self", value.__self__
        return
    function = getattr(value, "__wrapped__", value)
    if inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        for code in _codes(function.__code__):
            yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
        yield from used.nonlocals.items()
        yield from (("a default", default) for default in function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
    elif isinstance(value, type):
        yield from list(vars(value).items())


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
