"""Output of mapped functions in their processes, shown here as `multiprocessing` shows it."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from .._native import Printed

# Whoever writes holds it, so that texts keep their order. A standard output of somebody's own may run a map itself.
_lock = threading.RLock()


def _renew() -> None:
    global _lock
    _lock = threading.RLock()


# In a fork, a thread that held it is not there.
os.register_at_fork(after_in_child=_renew)


def show(printed: Printed) -> None:
    """Writes what there is to standard output and standard error. It is called before the result of the function is given, and
    from another thread meanwhile."""
    with _lock:
        texts, missing_bytes = printed.take()
        for is_error, text in texts:
            _write(sys.stderr if is_error else sys.stdout, text)
        if missing_bytes:
            _write(sys.stderr, f"gristmill: {missing_bytes} bytes that functions printed came too fast to be shown\n")


def _write(stream: Any, text: str) -> None:
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()
    except Exception:
        # A closed pipe, or none: what the program itself prints meets it, too. No map fails by what its function prints.
        pass
