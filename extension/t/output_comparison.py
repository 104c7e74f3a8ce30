r"""Compares two runs of a psql or isolationtester test and says what kind of differences there are.

A plan display is the result table of a statement that explains: its header is QUERY PLAN, or the
statement above it holds the word explain (the suite wraps EXPLAIN in functions, and prints it as
JSON), or it has no header at all and follows an EXPLAIN that \gexec ran. With the extension loaded such
tables may differ; nothing else may.
"""

import difflib
import enum
import re
from collections import Counter
from dataclasses import dataclass

RULE = re.compile(r"^-[-+]*$")
ROW_COUNT = re.compile(r"^\(\d+ rows?\)$")
EXPLAINS = re.compile(r"\bexplain", re.IGNORECASE)
PLAN_HEADER = re.compile(r"^\s*QUERY PLAN\s*$")
BATCHED_MARK = "Custom Scan (Batch"
# What \gexec echoes: an EXPLAIN on one line, without the semicolon that statements of a script have.
EXECUTED_EXPLAIN = re.compile(r"^explain \(.*\) (select|update|delete|insert) .*[^;]$", re.IGNORECASE)
STATEMENT_LINES_MAX = 60


class Kind(enum.Enum):
    """What differs."""
    PLAN = "plan display"
    ROW_ORDER = "row order"
    OTHER = "other"


@dataclass
class Difference:
    """A place where the outputs differ, as the lines of a unified diff."""
    kind: Kind
    lines: list


@dataclass
class Output:
    """A test's output: its lines with every plan display replaced by a mark, and the displays."""
    lines: list
    plans: list

    @property
    def batched_plans(self) -> int:
        return sum(any(BATCHED_MARK in line for line in plan) for plan in self.plans)


def parse(text: str) -> Output:
    """Take the plan displays out of an output."""
    source = text.splitlines()
    lines, plans = [], []
    at = 0
    while at < len(source):
        is_table = at + 1 < len(source) and RULE.match(source[at + 1]) and not RULE.match(source[at])
        end = _table_end(source, at) if is_table else None
        if end is not None and (PLAN_HEADER.match(source[at]) or EXPLAINS.search(_statement_above(lines))):
            plans.append(source[at:end])
            lines.append("<plan display>")
            at = end
        elif lines and EXECUTED_EXPLAIN.match(lines[-1]) and source[at].startswith(" "):
            end = next((line for line in range(at, len(source)) if source[line] == ""), len(source))
            plans.append(source[at:end])
            lines.append("<plan display>")
            at = end
        else:
            lines.append(source[at])
            at += 1
    return Output(lines, plans)


def _table_end(source: list, start: int):
    """The line after the `(N rows)` of the table that starts here, or None if there is none."""
    for at in range(start + 2, len(source)):
        if ROW_COUNT.match(source[at]):
            return at + 1
    return None


def _statement_above(lines: list) -> str:
    """The statement that ends at the last line: back to the line before it that ends in a semicolon."""
    taken = []
    for line in reversed(lines[-STATEMENT_LINES_MAX:]):
        if taken and (line.rstrip().endswith(";") or line == "" or ROW_COUNT.match(line)):
            break
        taken.append(line)
    return "\n".join(reversed(taken))


def differences(stock: str, batched: str) -> list:
    """Every difference between the two outputs."""
    ours, theirs = parse(stock), parse(batched)
    found = []
    if ours.plans != theirs.plans:
        found += [Difference(Kind.PLAN, list(difflib.unified_diff(mine, other, "stock", "batched", lineterm="")))
                  for mine, other in zip(ours.plans, theirs.plans) if mine != other]
        if len(ours.plans) != len(theirs.plans):
            found.append(Difference(Kind.OTHER, [f"{len(ours.plans)} plan displays in stock, "
                                                 f"{len(theirs.plans)} in batched"]))
    matcher = difflib.SequenceMatcher(None, ours.lines, theirs.lines, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        mine = ours.lines[group[0][1]:group[-1][2]]
        other = theirs.lines[group[0][3]:group[-1][4]]
        kind = Kind.ROW_ORDER if Counter(mine) == Counter(other) else Kind.OTHER
        found.append(Difference(kind, list(difflib.unified_diff(mine, other, "stock", "batched", lineterm=""))))
    return found
