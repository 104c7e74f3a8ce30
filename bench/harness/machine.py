"""The machine of the measurements, and the load that others put on it."""

import os
import platform
import statistics
import time
from pathlib import Path

FDATASYNC_SAMPLES = 400
# The mean number of cores that others may use before a run counts as disturbed.
DISTURBED_CORES = 0.3


def facts(folder):
    """Facts for the report: a list of (name, value). `folder` holds the stores."""
    return [
        ("CPU", f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores"),
        ("memory", f"{_memory_bytes() / 2**30:.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}"),
        ("disk", _disk(folder)),
        ("fdatasync of 4 KiB", _fdatasync(folder)),
    ]


def file_system(folder):
    """The mount point, type and options of the file system that holds `folder`."""
    folder = os.path.realpath(folder)
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [m for m in mounts if folder == m[1] or folder.startswith(m[1].rstrip("/") + "/")]
    mount = max(holding, key=lambda m: len(m[1]))
    return mount[1], mount[2], mount[3]


def require_disk(folder):
    """Ends the program if the stores would be in memory, because nothing there is durable."""
    _, kind, _ = file_system(folder)
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{folder} lies on {kind}, in memory; clone the project to a disk, or name one with --folder")


def cpu_seconds_busy():
    """CPU seconds that all processes together have used since the machine started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(seconds_max):
    """Waits until others use less than DISTURBED_CORES, but no longer than `seconds_max`."""
    until = time.monotonic() + seconds_max
    while time.monotonic() < until:
        busy, began = cpu_seconds_busy(), time.monotonic()
        time.sleep(0.5)
        if (cpu_seconds_busy() - busy) / (time.monotonic() - began) < DISTURBED_CORES:
            return


def _cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk(folder):
    _, kind, options = file_system(folder)
    return f"{kind} ({options})"


def _fdatasync(folder):
    path = Path(folder) / "fdatasync.probe"
    block = b"x" * 4096
    samples = []
    with open(path, "wb", buffering=0) as probe:
        probe.write(block * FDATASYNC_SAMPLES)
        os.fsync(probe.fileno())
        probe.seek(0)
        for _ in range(FDATASYNC_SAMPLES):
            probe.write(block)
            began = time.perf_counter()
            os.fdatasync(probe.fileno())
            samples.append((time.perf_counter() - began) * 1e6)
    path.unlink()
    samples.sort()
    return f"p50 {statistics.median(samples):.0f} us, p99 {samples[len(samples) * 99 // 100]:.0f} us"
