"""Runs one program, measured from outside."""

import os
import resource
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import machine

# A program that takes longer hangs. A benchmark may set another limit.
SECONDS_MAX = 1_800
MEMORY_SAMPLE_EVERY_SECONDS = 0.05
# Bytes of a failed program's output that are shown.
ERROR_CHARACTERS_MAX = 2_000


@dataclass
class Ended:
    """The measurements of a run: wall seconds, CPU seconds of it and its children, cores that others used, peak bytes."""

    stdout: str
    seconds: float
    cpu_seconds: float
    others_cores: float
    # Resident bytes of the program itself, and of its children together, at their highest.
    memory_bytes: int = 0
    children_bytes: int = 0
    # Nanoseconds since 1970.
    began_at_ns: int = 0


@dataclass
class PeakMemory:
    """Reads the high-water marks of a process and its descendants from /proc until they have ended."""

    process_id: int
    own_bytes: int = 0
    children_bytes: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def watch(self):
        while not self.stopped.wait(MEMORY_SAMPLE_EVERY_SECONDS):
            self.own_bytes = max(self.own_bytes, _high_water_bytes(self.process_id))
            children = sum(_high_water_bytes(child) for child in _descendants(self.process_id))
            self.children_bytes = max(self.children_bytes, children)


def run(command, environment, folder, quiet_seconds_max=10, niceness=0, memory=False,
        seconds_max=SECONDS_MAX):
    """Runs `command` in `folder` once the machine is quiet. Raises if it fails or takes longer than `seconds_max`."""
    os.sync()
    machine.wait_until_quiet(quiet_seconds_max)
    words = [str(word) for word in command]
    others, own = machine.cpu_seconds_busy(), _children_cpu_seconds()
    began, began_at_ns = time.perf_counter(), time.time_ns()
    child = subprocess.Popen(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, preexec_fn=(lambda: _set_niceness(niceness)) if niceness else None,
    )
    peak = PeakMemory(child.pid)
    watcher = threading.Thread(target=peak.watch, daemon=True)
    if memory:
        watcher.start()
    try:
        stdout, stderr = child.communicate(timeout=seconds_max)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stderr.close()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RuntimeError(f"`{' '.join(words)}` had not ended after {seconds_max} s") from error
        raise
    finally:
        peak.stopped.set()
    seconds = time.perf_counter() - began
    if child.returncode != 0:
        said = (stderr or stdout)[-ERROR_CHARACTERS_MAX:]
        raise RuntimeError(f"`{' '.join(words)}` ended with {child.returncode}:\n{said}")
    cpu_seconds = _children_cpu_seconds() - own
    others_cores = max(0.0, machine.cpu_seconds_busy() - others - cpu_seconds) / seconds
    return Ended(stdout, seconds, cpu_seconds, others_cores, peak.own_bytes, peak.children_bytes, began_at_ns)


def _set_niceness(niceness):
    """For this process and its children to come. Where Linux groups a session's processes for the scheduler
    (sched(7), autogroup), only the group's value counts against other sessions."""
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(niceness))


def _children_cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _high_water_bytes(process_id):
    try:
        for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _descendants(process_id):
    found = []
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children = [int(word) for word in path.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found
