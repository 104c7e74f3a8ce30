"""The side of a worker's process that runs the calls of an executor.

The description of a function is code. It travels as a file in the folder of the worker, which only its user can write, and not
through the store, into which others may submit jobs. A job names the file.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

from .. import _process
from .._errors import Fail

# Functions that one process of an executor keeps ready.
FUNCTIONS_MAX = 1_000

# The length of a function's name, in hexadecimal.
NAME_LENGTH = 64

_functions: dict[str, Callable[[Any], Any]] = {}


def call(payload: dict[str, Any]) -> Any:
    """One call, in a worker's process."""
    name = payload["function"]
    function = _functions.get(name)
    return (_load(name) if function is None else function)(payload["payload"])


def path_of(folder: str, name: str) -> str:
    """The file of a function's description."""
    return os.path.join(folder, f"function-{name}.pickle")


def _load(name: Any) -> Callable[[Any], Any]:
    folder = _process.folder
    is_name = isinstance(name, str) and len(name) == NAME_LENGTH and set(name) <= set("0123456789abcdef")
    if folder is None or not is_name or not os.path.exists(path_of(folder, name)):
        raise Fail("the executor that runs this job did not submit it")
    with open(path_of(folder, name), "rb") as file:
        description = pickle.load(file)
    if len(_functions) >= FUNCTIONS_MAX:
        _functions.clear()
    function = _functions[name] = _process.load(description)
    return function
