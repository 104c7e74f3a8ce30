"""The dashboard's figures, on the terminal and as Markdown."""

import re
from pathlib import Path

from harness.report import number
from harness.tables import aligned, grid
from postgres.server import settings

HEADERS = ("figure", "SQLite", "PostgreSQL", "target", "met")
STORES = ("sqlite", "postgres")

PAGE_MS_MAX = 150
SEARCH_MS_MAX = 500
BACKLOG_MS_MAX = 2
LOST_PERCENT_MAX = 2
MEMORY_MB_MAX = 200

INTRODUCTION = """\
# Measured results of the dashboard

Written by `make bench-dashboard` on {date}, with {jobs:,} jobs in the store: SQLite with `synchronous=FULL`, and a private
PostgreSQL {version} with {settings}. A page's time is from the start of its navigation, in a tab that shows an image of the
server, until Chromium has painted its first content, on this machine; each page is loaded {loads} times. The first row is of a
page that asks the store for nothing. The mix of jobs is in `dashboard/mix.mjs`.
"""

DRAIN = """\
A worker with a process a core, whose jobs take about 10 µs, keeps both cores busy while most jobs still wait; parts alone and with the
tabs take turns. What five tabs ask in Chromium during such a drain is recorded. A client then asks the same at the same moments,
and listens to the events of each tab: on this machine, Chromium itself would take the cores that are measured.\
"""


def row(title, found, read, unit, target):
    """One figure of both stores; it is met where all that could be measured are below the target."""
    values = [read(found[store]) if store in found else None for store in STORES]
    measured = [value for value in values if value is not None]
    met = "–" if not measured else "yes" if all(value < target for value in measured) else "no"
    cells = ["–" if value is None else f"{number(value) if value >= 0 else f'{value:.2f}'} {unit}" for value in values]
    return (title, *cells, f"under {target:,} {unit}", met)


def rows(found):
    """The figures with targets."""
    any_store = next(iter(found.values()))
    all_rows = []
    for index, page in enumerate(any_store["pages"]):
        read = lambda store, index=index: store["pages"][index]["first"]["p95"]
        all_rows.append(row(f"{page['title']}: first content, p95", found, read, "ms", PAGE_MS_MAX))
    for index, search in enumerate(any_store["searches"]):
        what = "one has" if search["hits"] else "none has"
        for key, words in (("request", "answer"), ("shown", "first content")):
            read = lambda store, index=index, key=key: store["searches"][index][key]["p95"]
            all_rows.append(
                row(f"search for a text that {what}, {search['searched']:,} jobs: {words}, p95", found, read, "ms", SEARCH_MS_MAX)
            )
    waiting = any_store["backlog_jobs"]
    for key, words in (("backlog", "all"), ("backlog_of_a_kind", "of a kind")):
        read = lambda store, key=key: store[key]["p95"]
        all_rows.append(row(f"`/api/v1/backlog`, {words}, {waiting:,} jobs open: p95", found, read, "ms", BACKLOG_MS_MAX))
    all_rows.append(
        row("drain: throughput lost with five tabs open", found, lambda store: store["drain"]["lost_percent"], "%", LOST_PERCENT_MAX)
    )
    megabytes = lambda store: store["peak_bytes"] / 1e6
    all_rows.append(row("highest resident memory of the server", found, megabytes, "MB", MEMORY_MB_MAX))
    return all_rows


def table(found):
    """Aligned columns for a terminal."""
    return aligned(HEADERS, rows(found))


def markdown(found, version, facts, date, loads):
    """The whole report."""
    jobs = next(iter(found.values()))["jobs"]
    figures = rows(found)
    lines = [
        INTRODUCTION.format(date=date, jobs=jobs, version=version, settings=settings(), loads=loads),
        *grid(HEADERS, figures, "lrrrl"),
        "## What bounds what is not reached",
        "",
        *bounds([title for title, *_, met in figures if met == "no"]),
        "",
        "## Pages",
        "",
        "Milliseconds. The first load is the slowest of most: the browser has nothing in its cache, and the server no recent counts.",
        "A page is whole when nothing on it is loading any more. The slowest requests are those of all its loads.",
        "",
    ]
    pages = [page_cells(store, page) for store in STORES if store in found for page in found[store]["pages"]]
    lines += grid(("page", "store", "p50", "p95", "first load", "whole, p95", "slowest requests"), pages, "llrrrrl")
    lines += ["## Drain", "", DRAIN, "", *(drained(store, found[store]) for store in STORES if store in found), ""]
    lines += ["## Changes of all that match", "", *(changed(store, found[store]) for store in STORES if store in found), ""]
    lines += ["## Machine", "", *(f"* {name}: {value}" for name, value in facts), ""]
    return "\n".join(lines)


def page_cells(store, page):
    """A line of the table of pages."""
    asked = ", ".join(f"`{name}` {took}" for name, took in page["asked"])
    first, whole = page["first"], page["whole"]
    numbers = (first["p50"], first["p95"], first["first"], whole["p95"])
    return (page["title"], store, *(f"{value:.0f}" for value in numbers), asked)


def drained(store, found):
    """The drain in words."""
    drain = found["drain"]
    alone, watched, pairs = drain["alone"], drain["watched"], drain["pairs_lost_percent"]
    states = ", ".join(f"{count:,} {state}" for state, count in found["states"].items() if count)
    return (
        f"* {store}: {number(alone['jobs_per_second'])} jobs/s alone, {number(watched['jobs_per_second'])} with the tabs (medians; "
        f"lost in each pair: {', '.join(f'{lost:.1f}' for lost in pairs)} %). The tabs had {drain['answers_per_second']:.1f} answers "
        f"and {drain['bytes_per_second'] / 1e3:,.0f} kB a second. The server used {alone['server_cores']:.3f} cores alone and "
        f"{watched['server_cores']:.3f} with the tabs, their client {alone['tabs_cores']:.3f} and {watched['tabs_cores']:.3f}; "
        f"{alone['idle_cores']:.2f} and {watched['idle_cores']:.2f} were idle. At the end of the drain, the store had {states} jobs."
    )


def changed(store, found):
    """The time of one request that changed all jobs of a kind."""
    took = ", ".join(f"{change['verb']} {change['changed']:,} jobs in {change['ms']:,.0f} ms" for change in found["changes"])
    return f"* {store}: {took}; one request and one transaction each."


def bounds(missed):
    """The notes of `bounds.md` on missed figures: sections `## beginning of the title`."""
    text = (Path(__file__).parent / "bounds.md").read_text()
    sections = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    notes = dict(zip(sections[::2], sections[1::2]))
    known = {title: next((note for start, note in notes.items() if title.startswith(start)), "not profiled yet.") for title in missed}
    return [f"* **{title}**: {' '.join(note.split())}" for title, note in known.items()] or ["Every target is reached."]
