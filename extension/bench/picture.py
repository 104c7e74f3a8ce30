#!/usr/bin/env python3
"""The picture of the figures in RESULTS.md: how many times as fast each query is in batches, as bars in an SVG file.

    make -C extension picture    writes bench/picture.svg

All figures, the machines and the days are those that RESULTS.md holds. Nothing is measured, and no server is needed.
"""

import math
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

BENCH_DIRECTORY = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH_DIRECTORY.parent / "t"))

from prerequisites import MissingPrerequisite, run_check  # noqa: E402

RESULTS = BENCH_DIRECTORY / "RESULTS.md"
PICTURE_NAME = "picture.svg"

# The modes of RESULTS.md's rows, in the order of their bars, and what the picture calls them.
MODES = {"serial": "serial", "parallel 2, jit on": "two workers"}
CLASSES = {"serial": "first", "parallel 2, jit on": "second"}
TIMES = {"serial": "Serial: CPU time.", "parallel 2, jit on": "Two workers: wall time, JIT on."}


@dataclass(frozen=True)
class Suite:
    """Where the figures of a panel are in RESULTS.md, and which command measures them."""
    name: str
    section: str
    remedy: str
    query: str
    modes: tuple

    def title(self, size: str) -> str:
        if self.name == "TPC-H":
            return f"TPC-H, scale factor {size}"
        return f"{self.name}, {int(size) * 1000:,} generated rows"


TPCH = Suite("TPC-H", "TPC-H with joins", "make -C extension bench-tpch SCALE_FACTOR=1 WRITE=1",
             r"TPC-H Q(?P<number>\d+), SF (?P<size>[\d.]+)", tuple(MODES))
CLICKBENCH = Suite("ClickBench", "ClickBench", "make -C extension bench-clickbench WRITE=1",
                   r"ClickBench (?P<number>\d+), (?P<size>\d+)k rows", ("serial",))
SUITES = (TPCH, CLICKBENCH)


@dataclass
class Panel:
    """The figures of one suite: for each mode the ratio of each query, and their geometric mean."""
    suite: Suite
    title: str
    origin: str
    rounds: int
    ratios: dict
    means: dict

    @property
    def numbers(self) -> list:
        return sorted(set().union(*self.ratios.values()))

    def all_ratios(self) -> list:
        return [ratio for of_mode in self.ratios.values() for ratio in of_mode.values()]


def read_panel(results: str, suite: Suite) -> Panel:
    """What RESULTS.md says of a suite; the error names the section and the command that writes it."""
    def missing(what: str) -> MissingPrerequisite:
        return MissingPrerequisite(f"RESULTS.md has no {what}, which the picture shows; `{suite.remedy}` measures and writes it")

    parts = re.split(r"^## ", results, flags=re.MULTILINE)[1:]
    text = next((part for part in parts if part.startswith(f"{suite.section}\n")), None)
    if text is None:
        raise missing(f"section “{suite.section}”")
    origin = re.search(r"`\. (?P<machine>.*; \d{4}-\d\d-\d\d)\. Medians of (?P<rounds>\d+) runs", text)
    if not origin:
        raise missing(f"machine, day and rounds in its section “{suite.section}”")
    ratios, means, size = {mode: {} for mode in suite.modes}, {}, ""
    for line in re.findall(r"^\| *(.*?) *\|$", text, flags=re.MULTILINE):
        name, mode, *figures = re.split(r" *\| *", line)
        mode = mode.removesuffix(" (not batched)")
        query = re.fullmatch(suite.query, name)
        if mode in ratios and query:
            ratios[mode][int(query["number"])] = float(figures[-3].removesuffix("x"))
            size = query["size"]
        elif mode in ratios and name.startswith(f"{suite.name}, geometric mean of "):
            means[mode] = float(figures[-3].removesuffix("x"))
    for mode in suite.modes:
        if not ratios[mode] or mode not in means:
            raise missing(f"queries or no geometric mean of “{mode}” in its section “{suite.section}”")
    machine = re.sub(r" \(.*?\)", "", origin["machine"])
    return Panel(suite, suite.title(size), machine, int(origin["rounds"]), ratios, means)


# Places, in the picture's units: pixels, where it is shown in full size.
WIDTH = 860
LEFT, RIGHT = 56, 782
TOP = 92
PLOT_HEIGHT = 190
TITLE_HEIGHT = 38
LINE_HEIGHT = 20
LABEL_DISTANCE = 22
CAPTION_CHARACTERS = 76
# Where a query has less room than this, only each fifth has its number, and none its figures.
FIGURES_PITCH = 30
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
NUMBERED = 5

# An image follows the browser's colours, which a page need not: it has a background of its own. Where it is shown small,
# as on a phone, it has fewer and larger labels.
STYLE = """
text { font: 15px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.ground { fill: #ffffff; stroke: #d1d9e0 }
.heading { font-size: 22px; font-weight: 600 }
.title { font-size: 18px; font-weight: 600 }
.fine { font-size: 14px; fill: #59636e }
.value, .number, .minor { font-size: 13.5px }
.end { text-anchor: end }
.middle { text-anchor: middle }
.mean { font-weight: 600 }
.grid { stroke: #d1d9e0 }
.same { stroke: #1f2328; stroke-width: 2 }
.average { stroke-width: 1.5; stroke-dasharray: 6 4; fill: none }
rect.first, tspan.first { fill: #4a90e2 } text.first { fill: #0a58b5 } line.first { stroke: #0a58b5 }
rect.second, tspan.second { fill: #eb9443 } text.second { fill: #a04100 } line.second { stroke: #a04100 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .ground { fill: #0d1117; stroke: #3d444d }
  .fine { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .same { stroke: #f0f6fc }
  rect.first, tspan.first { fill: #2f6fc4 } text.first { fill: #79b8ff } line.first { stroke: #a5d0ff }
  rect.second, tspan.second { fill: #bf6a1f } text.second { fill: #ffa657 } line.second { stroke: #ffc999 }
}
@media (max-width: 560px) {
  text, .number { font-size: 26px }
  .number { transform: translateY(6px) }
  .heading { font-size: 30px }
  .title { font-size: 28px }
  .mean { font-size: 23px }
  .note { font-size: 20px }
  .fine { font-size: 19px }
  .value, .minor { display: none }
}
"""


@dataclass
class Scale:
    """A logarithmic scale, the same for all panels; it always holds 1, the same speed."""
    least: float
    most: float

    @classmethod
    def of(cls, ratios: list) -> "Scale":
        least = min(ratios)
        return cls(1.0 if least >= 1 else least * 0.95, max(*ratios, 2.0) * 1.05)

    def height(self, ratio: float) -> float:
        """Above the foot of a panel."""
        return PLOT_HEIGHT * math.log(ratio / self.least) / math.log(self.most / self.least)

    def ticks(self) -> list:
        return [tick for tick in TICKS if self.least <= tick <= self.most]


def draw(results: str) -> str:
    """The picture of the text of RESULTS.md."""
    panels = [read_panel(results, suite) for suite in SUITES]
    scale = Scale.of([ratio for panel in panels for ratio in panel.all_ratios()])
    lines = [_text(24, 40, "heading", "How many times as fast as stock PostgreSQL"),
             _text(24, 68, "note", "Logarithmic scale; 1 is the same speed. Dashed: geometric means.")]
    y = TOP
    for panel in panels:
        drawn, y = _draw_panel(panel, scale, y)
        lines += drawn
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
        'role="img" aria-labelledby="title description">',
        '<title id="title">pg_batchexec: how many times as fast as stock PostgreSQL</title>',
        f'<desc id="description">{escape(" ".join(map(_describe, panels)))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 1}" rx="8"/>',
        *lines, "</svg>\n"])


def _describe(panel: Panel) -> str:
    return " ".join(f"{panel.title}, {MODES[mode]}: {len(ratios)} queries, geometric mean {panel.means[mode]:.2f}, least "
                    f"{min(ratios.values()):.2f}, most {max(ratios.values()):.2f}." for mode, ratios in panel.ratios.items())


def _draw_panel(panel: Panel, scale: Scale, top: int) -> tuple:
    """A panel's elements, and where the next one may start."""
    foot = top + TITLE_HEIGHT + PLOT_HEIGHT
    lines = [_text(24, top + 20, "title", panel.title), _legend(panel, top + 20)]
    for tick in scale.ticks():
        y = foot - scale.height(tick)
        lines += [_line(y, "grid"), _text(LEFT - 10, y + 5, "end", f"{tick:g}")]
    pitch = (RIGHT - LEFT) / len(panel.numbers)
    lines += _bars(panel, scale, foot, pitch)
    lines += [_line(foot - scale.height(1), "same"), *_means(panel, scale, foot)]
    y = foot + LINE_HEIGHT + 2
    for place, number in enumerate(panel.numbers):
        if number % NUMBERED == 0:
            lines.append(_text(LEFT + pitch * (place + 0.5), y, "middle number", str(number)))
        elif pitch > FIGURES_PITCH:
            lines.append(_text(LEFT + pitch * (place + 0.5), y, "middle minor", str(number)))
    lines.append(_text(LEFT - 10, y, "end minor", "query"))
    if pitch > FIGURES_PITCH:
        for mode, ratios in panel.ratios.items():
            y += LINE_HEIGHT - 2
            for place, number in enumerate(panel.numbers):
                if number in ratios:
                    lines.append(_text(LEFT + pitch * (place + 0.5), y, f"middle value {CLASSES[mode]}", _short(ratios[number])))
    y += 10
    for line in _caption(panel):
        y += LINE_HEIGHT
        lines.append(_text(24, y, "fine", line))
    return lines, y + LINE_HEIGHT + 2


def _caption(panel: Panel) -> list:
    runs = "One run of each side." if panel.rounds == 1 else f"Medians of {panel.rounds} runs."
    sentences = [" ".join([*(TIMES[mode] for mode in panel.ratios), runs]), f"{panel.origin}."]
    return [line for sentence in sentences for line in textwrap.wrap(sentence, CAPTION_CHARACTERS)]


def _legend(panel: Panel, y: float) -> str:
    entries = "   ".join(f'<tspan class="{CLASSES[mode]}">■</tspan> {MODES[mode]}' for mode in panel.ratios)
    return f'<text class="end" x="{RIGHT}" y="{y}" xml:space="preserve">{entries}</text>'


def _bars(panel: Panel, scale: Scale, foot: float, pitch: float) -> list:
    """From the line of the same speed up to each ratio, or down."""
    width = pitch * 0.8 / len(panel.ratios)
    lines = []
    for place, number in enumerate(panel.numbers):
        for side, (mode, ratios) in enumerate(panel.ratios.items()):
            if number in ratios:
                x = LEFT + pitch * (place + 0.1) + width * side
                ends = sorted(foot - scale.height(ratio) for ratio in (1, ratios[number]))
                lines.append(f'<rect class="{CLASSES[mode]}" x="{x:.1f}" y="{ends[0]:.1f}" width="{width - 1:.1f}" '
                             f'height="{ends[1] - ends[0]:.1f}"/>')
    return lines


def _means(panel: Panel, scale: Scale, foot: float) -> list:
    """Dashed lines and their figures, which keep a distance from each other and from the name of the lowest line."""
    lines = [_text(RIGHT + 6, foot - scale.height(1) + 5, "minor", "stock")]
    last = foot - scale.height(1)
    for mode in sorted(panel.means, key=panel.means.get):
        y = foot - scale.height(panel.means[mode])
        last = min(y, last - LABEL_DISTANCE)
        lines += [_line(y, f"average {CLASSES[mode]}"),
                  _text(RIGHT + 6, last + 5, f"mean {CLASSES[mode]}", f"{panel.means[mode]:.2f}")]
    return lines


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def _line(y: float, style: str) -> str:
    return f'<line class="{style}" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, style: str, text: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def write(results: Path = RESULTS) -> Path:
    """Put the picture of a RESULTS.md beside it."""
    picture = results.with_name(PICTURE_NAME)
    picture.write_text(draw(results.read_text()))
    return picture


def follow(results: Path) -> None:
    """Write the picture anew after a change of RESULTS.md, or say why it can't be."""
    try:
        print(f"{write(results)} is written")
    except MissingPrerequisite as missing:
        print(f"{PICTURE_NAME} is not written: {missing}")


def main() -> int:
    print(f"{write()} is written")
    return 0


if __name__ == "__main__":
    run_check(main)
