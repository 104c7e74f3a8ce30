"""The table, on the terminal and as Markdown."""

import re
import statistics
from dataclasses import dataclass

from .build import BENCH
from .machine import DISTURBED_CORES
from .plan import OURS
from .tables import aligned, grid

HEADERS = ("work", "Gristmill", "others", "ratio", "target", "met")


@dataclass
class Row:
    """One figure with all its samples by contender."""

    figure: object
    samples: dict
    note: str

    def value(self, contender):
        """The median of the undisturbed runs, or of all where most were disturbed."""
        samples = self.samples[contender]
        clean = [sample for sample in samples if sample.others_cores < DISTURBED_CORES]
        chosen = clean if 2 * len(clean) >= len(samples) else samples
        return statistics.median(sample.figures[self.figure.key] for sample in chosen)

    def disturbed(self, contender):
        return sum(sample.others_cores >= DISTURBED_CORES for sample in self.samples[contender])

    def others(self):
        """The other contenders with their values, the best first."""
        found = [(self.value(name), name) for name in self.samples if name != OURS]
        return sorted(found, reverse=self.figure.more_is_better)

    def ratio(self):
        """The ratio to the best other; above 1, ours is better."""
        others = self.others()
        if not others:
            return None
        best, ours = others[0][0], self.value(OURS)
        return ours / best if self.figure.more_is_better else best / ours

    def is_met(self):
        ours, target = self.value(OURS), self.figure.target
        return ours >= target if self.figure.more_is_better else ours <= target

    def cells(self):
        figure, ratio = self.figure, self.ratio()
        others = ", ".join(f"{name} {number(value)}{self.mark(name)}" for value, name in self.others())
        return (
            figure.title,
            f"{number(self.value(OURS))} {figure.unit}{self.mark(OURS)}",
            others or "–",
            "–" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}",
            f"{'' if figure.more_is_better else 'under '}{number(figure.target)} {figure.unit}" if figure.target else "–",
            "–" if not figure.target else "yes" if self.is_met() else "no",
        )

    def mark(self, contender):
        """A star where most runs were disturbed."""
        return " *" if 2 * self.disturbed(contender) > len(self.samples[contender]) else ""


def number(value):
    """Three digits that matter, thousands apart."""
    if value >= 1_000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(rows):
    """Aligned columns for a terminal."""
    return aligned(HEADERS, [row.cells() for row in rows])


def markdown(rows, facts, versions, date, runs):
    """The whole report."""
    lines = [
        "# Measured results",
        "",
        f"Written by `make bench` on {date}: medians of {runs} runs each, or of more where some were disturbed (the numbers",
        "are below), every contender in turn within each round, on disk, at the synchronous level that the row names,",
        "after a warm-up: in the same process, or, for `gristmill run`, whose start belongs to it, by a run before.",
        "Jobs do nothing and have payloads of 100 bytes. The ratio says how many times as good as the best other;",
        "above 1, Gristmill is better.",
        "",
        *table_section(rows),
        *bounds_section(rows),
        *spread_section(rows),
        *machine_section(facts, versions),
    ]
    return "\n".join(lines)


def table_section(rows):
    """The table, and the notes of its rows. Lines of Markdown."""
    lines = grid(HEADERS, [row.cells() for row in rows], "lrlrrl")
    if any(row.mark(name) for row in rows for name in row.samples):
        lines += [f"\\* other programs used more than {DISTURBED_CORES} cores during most of these runs.", ""]
    return lines + [f"* {row.figure.title}: {row.note}" for row in rows if row.note] + [""]


def bounds_section(rows):
    """The bounds of missed targets. Lines of Markdown."""
    notes = bounds()
    missed = [row for row in rows if not row.is_met()]
    lines = [f"* **{row.figure.title}**: {notes.get(row.figure.id, 'not profiled yet.')}" for row in missed]
    return ["## What bounds what is not reached", "", *(lines or ["Every target is reached."]), ""]


def spread_section(rows):
    """The lowest and highest of all runs. Lines of Markdown."""
    lines = []
    for row in rows:
        for name, samples in row.samples.items():
            values = sorted(sample.figures[row.figure.key] for sample in samples)
            figures = map(number, (values[0], row.value(name), values[-1]))
            lines.append((row.figure.title, name, str(len(values)), *figures))
    return ["## Spread", "", *grid(("work", "contender", "runs", "lowest", "median", "highest"), lines, "llrrrr")]


def machine_section(facts, versions):
    """The machine, and the versions of the contenders. Lines of Markdown."""
    return [
        "## Machine and versions",
        "",
        *(f"* {name}: {value}" for name, value in [*facts, *versions]),
        "",
        "How each contender is run, and where the comparison is unfair, is in [README.md](README.md).",
        "",
    ]


def bounds():
    """The notes of bounds.md, by the figure's id: sections `## id`."""
    sections = re.split(r"^## (\S+)\n", (BENCH / "harness/bounds.md").read_text(), flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(sections[::2], sections[1::2])}
