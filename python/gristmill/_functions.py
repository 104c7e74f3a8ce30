"""How a worker's process finds a function.

* A function of a module is imported there by its name.
* For a function of the main script, the script is read there up to its first call that gives work to workers; so it needs no
  `if __name__ == "__main__"`.
* A lambda or a local function travels as its code, with the values of its closure; the module around it is imported.
* A function of a notebook, of `python -c` or of the interactive prompt travels as its code with whatever it refers to:
  modules, other functions, classes (as source) and values that `pickle` takes.
"""

from __future__ import annotations

import base64
import inspect
import json
import marshal
import os
import pickle
import sys
import tempfile
import types
from typing import Any

from ._process import MAIN


def describe(function: Any, name: str, batch: dict[str, Any] | None) -> dict[str, Any]:
    """What `_process.load` needs to find a function."""
    qualname = getattr(function, "__qualname__", type(function).__qualname__)
    description: dict[str, Any] = {"name": name, "qualname": qualname, "path": [os.path.abspath(p) for p in sys.path]}
    if batch is not None:
        description["batch"] = batch
    # Methods of built-in types have their class alone.
    owner = getattr(function, "__objclass__", None)
    module = getattr(function, "__module__", None) or getattr(owner, "__module__", None) or "__main__"
    is_whole = False
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        if spec is not None and not _is_tool(spec.name):
            description["module"] = spec.name
        elif path and os.path.isfile(path) and "get_ipython" not in vars(main):
            description["main"] = os.path.abspath(path)
        else:
            is_whole = True
    else:
        description["module"] = module
    if not is_whole and "<" not in qualname and not _is_found(description, function):
        # Made by exec or typed into a doctest: its module does not have it.
        is_whole = True
        description.pop("module", None)
        description.pop("main", None)
    if is_whole or "<" in qualname:
        if not inspect.isfunction(function):
            raise TypeError(f"{qualname} is not a function of a module: define it at the top of a module or script")
        description["pickled"] = base64.b64encode(pickle.dumps(_Pack(module, is_whole).function(function))).decode()
    return description


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
        if isinstance(value, Job) and value.function is function:
            return True
        if isinstance(value, App) and any(job.function is function for job in value.jobs.values()):
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
        f"main = gristmill._process.load(__import__('json').loads({json.dumps(json.dumps(description))}))\n"
    )
    with tempfile.NamedTemporaryFile(
        "w", prefix="gristmill_job_", suffix=".py", dir=folder, delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    return file.name


class _Pack:
    """Packs a function as data that pickle takes."""

    def __init__(self, module: str, is_whole: bool) -> None:
        # Whose functions and classes the worker's process cannot import, if the globals travel.
        self.module = module
        # Whether the globals travel, too.
        self.is_whole = is_whole
        self.packed: dict[str, tuple[str, Any]] = {}

    def function(self, function: types.FunctionType) -> dict[str, Any]:
        parts = self.parts(function)
        return {"function": parts, "globals": self.packed}

    def parts(self, function: types.FunctionType) -> dict[str, Any]:
        cells: dict[str, tuple[str, Any]] = {}
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            cells[variable] = self.value(variable, cell.cell_contents)
        if self.is_whole:
            for name in _names(function.__code__):
                if name in function.__globals__ and name not in self.packed:
                    # First a mark: functions may refer to each other.
                    self.packed[name] = ("pickle", None)
                    self.packed[name] = self.value(name, function.__globals__[name])
        annotations: dict[str, tuple[str, Any]] = {}
        for name, annotation in function.__annotations__.items():
            if isinstance(annotation, type) and annotation.__module__ == self.module and self.is_whole:
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

    def value(self, name: str, value: Any) -> tuple[str, Any]:
        from ._app import App
        from ._job import Job

        if isinstance(value, Job):
            value = value.function
        if isinstance(value, App):
            return "pickle", pickle.dumps(None)
        if inspect.ismodule(value):
            return "module", value.__name__
        is_ours = getattr(value, "__module__", None) == self.module
        is_local = "<" in getattr(value, "__qualname__", "")
        if inspect.isfunction(value) and ((is_ours and self.is_whole) or is_local):
            return "function", self.parts(value)
        if isinstance(value, type) and is_ours and self.is_whole:
            try:
                return "source", inspect.cleandoc(inspect.getsource(value))
            except (OSError, TypeError) as error:
                raise TypeError(
                    f"the class {name} was typed in, and its source is not known ({error}): define it in a module"
                ) from None
        try:
            return "pickle", pickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"the function refers to `{name}`, a {type(value).__qualname__} that cannot travel to a worker's process ({error}):"
                " make it inside the function, or define the function in a module"
            ) from error


def _names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.extend(_names(constant))
    return names


def restore(description: dict[str, Any], module: Any) -> Any:
    """The function that `describe` packed. Its globals are those of the module, if it has one."""
    packed = pickle.loads(base64.b64decode(description["pickled"]))
    if module is None:
        module = types.ModuleType(MAIN)
        sys.modules[MAIN] = module
    namespace = module.__dict__
    # Sources last: base classes and decorators of a class may be any of the others.
    for name, part in sorted(packed["globals"].items(), key=lambda item: item[1][0] == "source"):
        namespace[name] = _restore_value(part, namespace, name)
    return _restore_function(packed["function"], namespace)


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
    return None if data is None else pickle.loads(data)


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
