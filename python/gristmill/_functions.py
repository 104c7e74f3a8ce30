"""How a worker's process finds a function.

* A function of a module is imported there by its name.
* For a function of the main script, the script is read there up to its first call that gives work to workers; so it needs no
  `if __name__ == "__main__"`. A function that stands below that call, or refers to what does, travels as its code.
* A lambda or a local function travels as its code, with the values of its closure; the module around it is imported.
* A `functools.partial`, a bound method or another callable object travels with what it holds.
* A function of a notebook, of `python -c` or of the interactive prompt travels as its code with whatever it refers to:
  modules, other functions, classes (as source) and values that `pickle` takes.
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import json
import marshal
import os
import pickle
import sys
import tempfile
import textwrap
import types
from typing import TYPE_CHECKING, Any, cast

from ._main_script import names_read
from ._process import MAIN

if TYPE_CHECKING:
    from ._job import Job


def describe_job(job: Job[..., Any]) -> dict[str, Any]:
    """What a worker's process needs to find a job's function, and what runs when its children have ended."""
    description = describe(job.function, job.name, job.batch_options())
    if job.finalizer is not None and "pickled" in description:
        # A job that is imported has its own.
        description["finalizer"] = describe(job.finalizer, f"{job.name}.finalize", None)
    return description


def describe(function: Any, name: str, batch: dict[str, Any] | None) -> dict[str, Any]:
    """What `_process.load` needs to find a function."""
    target = _target(function)
    qualname = getattr(target, "__qualname__", type(target).__qualname__)
    description: dict[str, Any] = {"name": name, "qualname": qualname, "path": [os.path.abspath(p) for p in sys.path]}
    if batch is not None:
        description["batch"] = batch
    # Methods of built-in types have their class alone.
    owner = getattr(target, "__objclass__", None)
    module = getattr(target, "__module__", None) or getattr(owner, "__module__", None) or "__main__"
    is_whole = False
    names: set[str] | None = None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        if spec is not None and not _is_tool(spec.name):
            description["module"] = spec.name
        elif path and os.path.isfile(path) and "get_ipython" not in vars(main):
            description["main"] = os.path.abspath(path)
            # A script may read its arguments at the top.
            description["arguments"] = sys.argv[1:]
            names = names_read(path)
        else:
            is_whole = True
    else:
        description["module"] = module
    is_elsewhere = inspect.isfunction(target) and target.__globals__ is not vars(sys.modules.get(module, sys))
    if not is_whole and (is_elsewhere or ("<" not in qualname and not _is_found(description, target))):
        # Made by exec or typed into a doctest: its module does not have it, or not its globals.
        is_whole = True
        description.pop("module", None)
        description.pop("main", None)
        description.pop("arguments", None)
    pack = _Pack(module, is_whole, names)
    if is_whole or "<" in qualname or target is not function or pack.is_late(target):
        description["pickled"] = base64.b64encode(pickle.dumps(pack.function(name, function))).decode()
    return description


def _target(function: Any) -> Any:
    """The function or class whose name and module a callable has: that of a `partial`, or of a method's or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if inspect.ismethod(function) or (inspect.isbuiltin(function) and not inspect.ismodule(owner)):
        return function if owner is None or isinstance(owner, type) else cast(Any, type(owner))
    is_named = inspect.isroutine(function) or isinstance(function, type) or hasattr(function, "__qualname__")
    return function if is_named else type(function)


def _is_found(description: dict[str, Any], function: Any) -> bool:
    """Whether the function, or the job that it became, stands in its module."""
    from ._app import App
    from ._job import Job

    module = sys.modules.get(getattr(function, "__module__", None) or description.get("module") or "__main__")
    found: Any = module
    for name in description["qualname"].split("."):
        found = getattr(found, name, None)
    if found is not None:
        return True
    for value in list(vars(module).values()) if module is not None else []:
        if isinstance(value, Job) and (value.function is function or value.finalizer is function):
            return True
        if isinstance(value, App) and any(function in (job.function, job.finalizer) for job in value.jobs.values()):
            return True
    return False


def _is_tool(module: str) -> bool:
    """Whether a main module only runs other code: its functions are typed or exec'ed ones."""
    return module.partition(".")[0] in ("IPython", "ipykernel", "ipykernel_launcher", "pdb", "code")


def write_script(folder: str, description: dict[str, Any]) -> str:
    """The script of a worker's processes, in that folder."""
    # The fork server imports what stands before the first other statement once, not in each process.
    text = (
        "import gristmill._app, gristmill._process\n"
        # On a line of its own, which no traceback shows.
        f"_description = {json.dumps(json.dumps(description))}\n"
        "main, finalize = gristmill._process.load_job(_description)\n"
    )
    with tempfile.NamedTemporaryFile(
        "w", prefix="gristmill_job_", suffix=".py", dir=folder, delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    return file.name


class _Pack:
    """Packs a function as data that pickle takes."""

    def __init__(self, module: str, is_whole: bool, names: set[str] | None) -> None:
        # Whose functions and classes the worker's process cannot import, if the globals travel.
        self.module = module
        # Whether all globals travel, too; else those of a main script that are not among the names that a worker's process reads.
        self.is_whole = is_whole
        self.names = names
        self.packed: dict[str, tuple[str, Any]] = {}

    def function(self, name: str, function: Any) -> dict[str, Any]:
        return {"function": self.value(name, function, is_itself=True), "globals": self.packed}

    def travels(self, name: str) -> bool:
        """Whether a global of this name is packed."""
        return self.is_whole or (self.names is not None and name not in self.names)

    def travels_from(self, module: str, qualname: str) -> bool:
        """Whether a function that stands there is packed."""
        return module == self.module and self.travels(qualname.partition(".")[0])

    def is_late(self, function: Any) -> bool:
        """Whether a worker's process reads the main script only to a line above the function, or above a value that it needs."""
        if self.names is None:
            return False
        if function.__qualname__.partition(".")[0] not in self.names:
            return True
        if not inspect.isfunction(function):
            return False
        return any(name in function.__globals__ and self.travels(name) for name in _names(function.__code__))

    def parts(self, function: types.FunctionType) -> dict[str, Any]:
        cells: dict[str, tuple[str, Any]] = {}
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            cells[variable] = self.value(variable, cell.cell_contents)
        for name in _names(function.__code__) if function.__module__ == self.module else ():
            if name in function.__globals__ and name not in self.packed and self.travels(name):
                # First a mark: functions may refer to each other.
                self.packed[name] = ("pickle", None)
                self.packed[name] = self.value(name, function.__globals__[name])
        annotations: dict[str, tuple[str, Any]] = {}
        for name, annotation in function.__annotations__.items():
            is_ours = isinstance(annotation, type) and annotation.__module__ == self.module
            if is_ours and self.travels(annotation.__name__):
                if annotation.__name__ not in self.packed:
                    self.packed[annotation.__name__] = self.value(annotation.__name__, annotation)
                annotation = annotation.__name__
            annotations[name] = self.value(name, annotation)
        return {
            "code": marshal.dumps(function.__code__),
            "name": function.__qualname__,
            "defaults": [self.value("a default", value) for value in function.__defaults__ or ()],
            "kwdefaults": {name: self.value(name, value) for name, value in (function.__kwdefaults__ or {}).items()},
            "cells": cells,
            "annotations": annotations,
        }

    def value(self, name: str, value: Any, is_itself: bool = False) -> tuple[str, Any]:
        from ._app import App
        from ._job import Job

        place = _job_place(value)
        if place is not None and not self.travels_from(*place):
            return "job", (*place, isinstance(value, Job))
        if type(value) is Job:
            job = cast("Job[..., Any]", value)
            return "defined", (self.value(name, job.function), job.name, job.queue, job.options)
        if isinstance(value, Job):
            value = cast("Job[..., Any]", value).function
        if isinstance(value, App):
            return "pickle", pickle.dumps(None)
        if inspect.ismodule(value):
            return "module", value.__name__
        if isinstance(value, functools.partial):
            arguments = [self.value(name, argument) for argument in value.args]
            named = {key: self.value(name, argument) for key, argument in value.keywords.items()}
            return "partial", (self.value(name, value.func), arguments, named)
        owner = getattr(value, "__self__", None)
        if inspect.ismethod(value) and not isinstance(owner, type):
            return "method", (self.value(name, owner), value.__name__)
        is_ours = getattr(value, "__module__", None) == self.module
        kind = cast(Any, type(value))
        is_here = is_ours and (is_itself or self.travels(getattr(value, "__name__", kind.__name__)))
        is_local = "<" in getattr(value, "__qualname__", "")
        if inspect.isfunction(value) and (is_here or is_local):
            return "function", self.parts(value)
        if isinstance(value, type) and is_here:
            return self.source(name, value)
        if kind.__module__ == self.module and self.travels(kind.__name__):
            # Its class is made in the worker's process first.
            if kind.__name__ not in self.packed:
                self.packed[kind.__name__] = self.source(kind.__name__, kind)
            return "instance", self.pickled(name, value)
        return "pickle", self.pickled(name, value)

    def source(self, name: str, kind: type) -> tuple[str, Any]:
        try:
            return "source", textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError) as error:
            raise TypeError(
                f"the class {name} was typed in, and its source is not known ({error}): define it in a module"
            ) from None

    def pickled(self, name: str, value: Any) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"the function refers to `{name}`, a {type(value).__qualname__} that cannot travel to a worker's process ({error}):"
                " make it inside the function, or define the function in a module"
            ) from error


def _job_place(value: Any) -> tuple[str, str] | None:
    """The module and the name of a job that stands there, of a job or of its function, whose name there stands for the job."""
    from ._job import Job

    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "<none>")
    if module is None or "<" in qualname:
        return None
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    is_job = isinstance(found, Job) and (value is found or value is found.function)
    return (module, qualname) if is_job else None


def _names(code: types.CodeType) -> list[str]:
    """The globals that code refers to."""
    import dis

    found = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.extend(_names(constant))
    return found


def restore(description: dict[str, Any], module: Any) -> Any:
    """The function that `describe` packed. Its globals are those of the module, if it has one."""
    packed = pickle.loads(base64.b64decode(description["pickled"]))
    if module is None:
        module = types.ModuleType(MAIN)
        sys.modules[MAIN] = module
    namespace = module.__dict__
    # Base classes and decorators of a class may be any of the others; the instances need their classes.
    later = {"source": 1, "instance": 2}
    for name, part in sorted(packed["globals"].items(), key=lambda item: later.get(item[1][0], 0)):
        namespace[name] = _restore_value(part, namespace, name)
    return _restore_value(packed["function"], namespace, description["qualname"])


def _restore_value(part: tuple[str, Any], namespace: dict[str, Any], name: str) -> Any:
    kind, data = part
    if kind == "module":
        import importlib

        return importlib.import_module(data)
    if kind == "function":
        return _restore_function(data, namespace)
    if kind == "source":
        exec(compile(data, f"<{name}>", "exec", dont_inherit=True), namespace)
        return namespace[name]
    if kind == "defined":
        from ._job import Job

        # Without the application, which stays where it is: it can be called, and be the kind of spawned children.
        job: Job[..., Any] = Job(cast(Any, None), _restore_value(data[0], namespace, name), *data[1:])
        return job
    if kind == "job":
        import importlib

        module_name, qualname, is_itself = data
        is_main = module_name == "__main__" and MAIN in sys.modules
        found: Any = sys.modules[MAIN] if is_main else importlib.import_module(module_name)
        for part_of_name in qualname.split("."):
            found = getattr(found, part_of_name)
        return found if is_itself else found.function
    if kind == "partial":
        function, arguments, named = data
        bound = {key: _restore_value(argument, namespace, key) for key, argument in named.items()}
        return functools.partial(
            _restore_value(function, namespace, name), *(_restore_value(part, namespace, name) for part in arguments), **bound
        )
    if kind == "method":
        return getattr(_restore_value(data[0], namespace, name), data[1])
    return None if data is None else _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """Finds the classes and functions of the main script, which has another name in a worker's process."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(MAIN if module_name == "__main__" and MAIN in sys.modules else module_name, global_name)


def _restore_function(parts: dict[str, Any], namespace: dict[str, Any]) -> Any:
    code = marshal.loads(parts["code"])
    values = {name: _restore_value(part, namespace, name) for name, part in parts["cells"].items()}
    closure = tuple(types.CellType(values[name]) for name in code.co_freevars)
    defaults = tuple(_restore_value(part, namespace, "a default") for part in parts["defaults"])
    function = types.FunctionType(code, namespace, code.co_name, defaults, closure)
    function.__kwdefaults__ = {name: _restore_value(part, namespace, name) for name, part in parts["kwdefaults"].items()}
    function.__annotations__ = {name: _restore_value(part, namespace, name) for name, part in parts["annotations"].items()}
    function.__qualname__ = parts["name"]
    return function
