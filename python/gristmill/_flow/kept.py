"""Instances of flows that a process keeps in memory while they wait, so that they go on without a replay.

The memo of a wake decides: an instance goes on if its payload and memo are exactly those that a replay would get.
An instance is kept only while its code is in no `with`, `finally` or the like, which would hold something for as long as it waits.

Needs nothing of the package: the runtime gives the same text to scripts. Python 3.8 and newer.
"""

from __future__ import annotations

import dis
import gc
import marshal
import os
import sys
import threading
import types
from typing import Any, Callable

# Instances that a process keeps, and bytes by which the process may grow since it began to keep some. The least recently run go.
INSTANCES_KEPT_MAX = 4_096
INSTANCES_KEPT_BYTES_MAX = 128 << 20
# Files that kept instances may have left open.
INSTANCES_KEPT_FILES_MAX = 64
# Instances between two looks at the bytes and files.
LOOK_EVERY_MAX = 16
# Runs after which instances are kept again, where most of the kept ones were ended before they went on.
RUNS_PASSED_OVER = 16 * INSTANCES_KEPT_MAX

# The thresholds of the garbage collector of Python up to 3.12, and of 3.13. Later ones look at few objects at a time.
COLLECTOR_DEFAULTS = [(700, 10, 10), (2000, 10, 10)]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Kept:
    """Runs the instances of one flow, and keeps those that wait."""

    def __init__(self, make: Callable[[list[Any], list[Any], str], Any]) -> None:
        # An instance of a memo, the outcomes of its children and its id.
        self.make = make
        # By id, each with its payload, the least recently run one first.
        self.instances: dict[str, tuple[Any, bytes]] = {}
        self.lock = threading.Lock()
        # At the last look, and at the first one or the last one that was too much.
        self.bytes = self.bytes_at_first = self.files_at_first = 0
        self.look_in = self.look_every = 1
        # Since the last look: instances that were ended to make room, and that went on.
        self.ended = self.resumed = 0
        # The next runs that keep no instance.
        self.passed_over = 0
        _collect_seldom()

    def run(self, id: str, payload: Any, memos: list[Any], outcomes: list[Any]) -> Any:
        """What the instance answers."""
        # Its second version writes equal values equally. The code may change the payload itself.
        begun_with = marshal.dumps(payload, 2)
        flow, kept_with = self.instances.pop(id, (None, begun_with))
        if flow is not None and not (kept_with == begun_with and flow.is_at(memos)):
            flow.close()
            flow = None
        if flow is None and self.passed_over > 0:
            self.passed_over -= 1
            return self.make(memos, outcomes, id).run(payload)
        if flow is None:
            flow = self.make(memos, outcomes, id)
            value = flow.begin(payload)
        else:
            self.resumed += 1
            value = flow.resume(outcomes)
        if flow.is_waiting:
            if flow.holds_nothing():
                self.instances[id] = flow, begun_with
                self._limit()
            else:
                flow.close()
        return value

    def forget(self, count: int) -> None:
        """Ends the least recently run ones."""
        with self.lock:
            ended = [self.instances.pop(id, None) for id in list(self.instances)[:count]]
        for one in ended:
            if one is not None:
                one[0].close()
        self.ended += len(ended)
        if self.ended >= INSTANCES_KEPT_MAX:
            # More instances take turns than have room: to keep them costs more than to replay them.
            self.passed_over = RUNS_PASSED_OVER if self.resumed < self.ended // 4 else 0
            self.ended = self.resumed = 0

    def _limit(self) -> None:
        if len(self.instances) > INSTANCES_KEPT_MAX:
            # Several at once: the look for the first one passes over those that have gone.
            self.forget(INSTANCES_KEPT_MAX // 16)
        self.look_in -= 1
        if self.look_in > 0:
            return
        before, self.bytes = self.bytes, _bytes_used()
        if not before:
            self.bytes_at_first, self.files_at_first = self.bytes, _files_open()
        is_large = self.bytes - before > INSTANCES_KEPT_BYTES_MAX // 64
        self.look_in = self.look_every = 1 if is_large else min(2 * self.look_every, LOOK_EVERY_MAX)
        are_large = self.bytes - self.bytes_at_first > INSTANCES_KEPT_BYTES_MAX
        if are_large or _files_open() - self.files_at_first > INSTANCES_KEPT_FILES_MAX:
            self.forget(len(self.instances))
            gc.collect()
            # What the interpreter does not give back is not counted again.
            self.bytes_at_first, self.files_at_first = _bytes_used(), _files_open()


def _collect_seldom() -> None:
    """Lets the garbage collector walk over all that is kept a tenth as often, unless the script has set it otherwise."""
    thresholds = gc.get_threshold()
    if thresholds in COLLECTOR_DEFAULTS and sys.version_info < (3, 14):
        gc.set_threshold(*thresholds[:2], 10 * thresholds[2])


def _bytes_used() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(200).split()[1]) * _PAGE_BYTES


def _files_open() -> int:
    """The lowest number that no open file has."""
    number = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.close(number)
    return number


# --- what an instance holds ---

# Of code objects, by their addresses: the code, so that the address stays its own, and whether it holds nothing.
_known: dict[int, tuple[Any, bool]] = {}
KNOWN_MAX = 10_000


def holds_nothing(coroutine: Any) -> bool:
    """Whether a coroutine and those that it awaits wait for a future, with no code around that runs when they are unwound."""
    while type(coroutine) is types.CoroutineType:
        code = coroutine.cr_code
        known = _known.get(id(code))
        if known is None:
            if len(_known) >= KNOWN_MAX:
                _known.clear()
            known = _known[id(code)] = code, not _unwinds(code)
        if not known[1]:
            return False
        coroutine = coroutine.cr_await
    return type(coroutine).__name__ == "FutureIter"


# Exceptions that unwind a flow.
_UNWINDING = ("BaseException", "GeneratorExit", "CancelledError")


def _unwinds(code: Any) -> bool:
    """Whether a function has code that runs when it is unwound: `with`, `finally`, `async for`, and `except` of everything."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    if sys.version_info < (3, 11):
        return any([step.opname.startswith("SETUP_") for step in steps])
    places = {step.offset: place for place, step in enumerate(steps)}
    for place, step in enumerate(steps):
        if step.opname == "END_ASYNC_FOR" or step.opname == "PUSH_EXC_INFO" and not _is_except(steps, places, place + 1):
            return True
    return False


def _is_except(steps: list[Any], places: dict[int, int], place: int) -> bool:
    """Whether a handler compares the exception with some that unwind no flow, and does nothing else with others."""
    while steps[place].opname != "RERAISE":
        while steps[place].opname.startswith(("LOAD_", "BUILD_TUPLE", "EXTENDED_ARG", "NOP")):
            if steps[place].argval in _UNWINDING:
                return False
            place += 1
        if steps[place].opname != "CHECK_EXC_MATCH":
            return False
        place = places.get(steps[place + 1].argval, -1) if "JUMP" in steps[place + 1].opname else -1
        if place < 0:
            return False
    return True
