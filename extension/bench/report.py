"""The speed table as text: one row a measurement, and the document around them."""

import platform
import re
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path

import picture
from measure import Timing


@dataclass
class Row:
    """One line of the table. The ratio is stock / batched: more is better, below 1 is slower."""
    name: str
    mode: str
    stock: Timing
    batched: Timing
    is_wall: bool
    floor_ms: float
    batched_nodes: int
    reach: float

    @property
    def ratio(self) -> float:
        if self.is_wall:
            return self.stock.wall_ms / self.batched.wall_ms
        return self.stock.cpu_ms / self.batched.cpu_ms

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.reach

    def figures(self) -> list:
        floor = f"{self.floor_ms:.1f}" if self.floor_ms else ""
        # The mode of the within-2% rows says how they ran; elsewhere a plan that was not batched shows.
        nodes = "" if self.batched_nodes else " (not batched)"
        return [self.name, self.mode + nodes, f"{self.stock.cpu_ms:.1f}", f"{self.batched.cpu_ms:.1f}",
                f"{self.stock.wall_ms:.1f}", f"{self.batched.wall_ms:.1f}", floor,
                f"{self.ratio:.2f}x", f"{self.reach:g}x", "yes" if self.is_reached else "NO"]

    def line(self) -> str:
        return "  ".join(self.figures())


@dataclass
class MeanRow:
    """The geometric mean of the ratios of other lines."""
    name: str
    mode: str
    rows: list
    reach: float

    @property
    def ratio(self) -> float:
        return statistics.geometric_mean(row.ratio for row in self.rows)

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.reach

    def figures(self) -> list:
        return [self.name, self.mode, "", "", "", "", "", f"{self.ratio:.2f}x", f"{self.reach:g}x",
                "yes" if self.is_reached else "NO"]

    def line(self) -> str:
        return "  ".join(self.figures())


@dataclass
class RateRow:
    """A line that compares transactions a second: the ratio is with the library / without."""
    name: str
    mode: str
    without_per_s: float
    with_per_s: float
    reach: float

    @property
    def ratio(self) -> float:
        return self.with_per_s / self.without_per_s

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.reach

    def figures(self) -> list:
        return [self.name, self.mode, f"{self.without_per_s:.0f}/s", f"{self.with_per_s:.0f}/s", "", "", "",
                f"{self.ratio:.3f}x", f"{self.reach:g}x", "yes" if self.is_reached else "NO"]

    def line(self) -> str:
        return "  ".join(self.figures())


@dataclass
class ShareRow:
    """A line that compares two batched runs: the ratio is the speed of the second, of that of the first."""
    name: str
    mode: str
    first: Timing
    second: Timing
    reach: float

    @property
    def ratio(self) -> float:
        return self.first.cpu_ms / self.second.cpu_ms

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.reach

    def figures(self) -> list:
        return [self.name, self.mode, "", f"{self.first.cpu_ms:.1f}, {self.second.cpu_ms:.1f}", "", "", "",
                f"{self.ratio:.2f}x", f"{self.reach:g}x", "yes" if self.is_reached else "NO"]

    def line(self) -> str:
        return "  ".join(self.figures())


HEADINGS = ["query", "how", "stock CPU ms", "batched CPU ms", "stock wall ms", "batched wall ms",
            "floor ms", "ratio", "reach", "reached"]


def table(rows: list) -> str:
    """A Markdown table of all rows, columns aligned."""
    lines = [HEADINGS, *(row.figures() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rule = ["-" * width for width in widths]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
                     for line in [lines[0], rule, *lines[1:]]) + "\n"


def grid(headings: list, rows: list) -> str:
    """A Markdown table of all rows."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, ["---"] * len(headings), *rows])


def machine() -> str:
    """Processor, cores and memory of this machine in one line."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cores = Path("/proc/cpuinfo").read_text().count("processor\t")
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    name = processor[1] if processor else platform.machine()
    return f"{name}, {cores} cores, {memory_kib / 2**20:.0f} GiB"


def document(table_text: str, server, options, today) -> str:
    """The text of RESULTS.md."""
    version = server.psql("select version()").strip()
    return f"""# Speed of pg_batchexec

Printed by `make bench` (`bench/bench.py --write`). Machine: {machine()}; Linux {platform.release()}.
{version}. {today.isoformat()}.

Stock and batched run in one session on one server, in turns (`batchexec.enabled` off and on); each
figure is the median of {options.rounds} runs after a warm-up. The tables are prewarmed and, but for the
rows that say otherwise, all-visible, which `pg_visibility` confirms first. The ratio is of CPU
milliseconds for serial rows, of wall milliseconds for parallel ones (a leader's CPU time leaves out its
workers'). The floor is the time to stream the table's bytes once through one core.

Rows of "batched, … and …" compare two batched runs, of tables that differ in that alone: the ratio is
the share of the speed that is left. Each column is NULL in the share of the rows that the row says.

The within-2% rows compare a session with the library against one without it on the same server.

{table_text}"""


def section(table_text: str, server, options, arguments: list, today) -> str:
    """The text of a section of RESULTS.md: what was run, where, and the table."""
    version = server.psql("show server_version").strip()
    return (f"Printed by `bench/bench.py {shlex.join(arguments)}`. {machine()}; PostgreSQL {version}; "
            f"{today.isoformat()}. Medians of {options.rounds} runs.\n\n{table_text}")


def write_section(results: Path, title: str, text: str) -> None:
    """Put a text in the place of a section of a Markdown file, or at its end; the picture shows some of these."""
    parts = re.split(r"^(?=## )", results.read_text(), flags=re.MULTILINE)
    new = f"## {title}\n\n{text.strip()}\n"
    for number, part in enumerate(parts):
        if part.startswith(f"## {title}\n"):
            parts[number] = new
            break
    else:
        parts.append(new)
    results.write_text("\n".join(part.rstrip("\n") + "\n" for part in parts))
    if title in [suite.section for suite in picture.SUITES]:
        picture.follow(results)


def publish(section: str, text: str, is_kept: bool) -> None:
    """Print the text of a section, and put it into RESULTS.md if it is to be kept."""
    print(text)
    if is_kept:
        write_section(picture.RESULTS, section, text)
