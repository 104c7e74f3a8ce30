#!/usr/bin/env python3
"""Measures ingestion without a model: local.py PROGRAM [COUNT].

* A chat of COUNT short messages (100,000 by default), by `--extractor local`: 30 s and 400 MB to reach.
* A folder of COUNT files in which nothing has changed: 2 s to reach.

Prints a table: the wall clock, the processor time, and the largest resident memory of each command.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

program = Path(sys.argv[1]).resolve()
count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
# A file of a folder that changed in the last 3 s is read again.
SETTLED_S = 4

chance = random.Random(5)
words = ["".join(chance.choice("aeioubdhlmnrst") for _ in range(chance.randint(3, 9))) for _ in range(5_000)]
people = ["Ada King", "Bob Stone", "Cleo Reed", "Dan Hill"]


def sentence(length):
    return " ".join(chance.choice(words) for _ in range(length)).capitalize() + "."


def measured(folder, *arguments):
    """Runs the program; returns the wall clock and the processor time in seconds, and the largest memory in MB."""
    begun = time.monotonic()
    command = [program, "ingest", *arguments, "--into", "kb.db", "--extractor", "local", "--json"]
    with open(folder / "told", "wb") as told:
        child = subprocess.Popen(command, cwd=folder, stdout=told, stderr=subprocess.PIPE)
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command}: {errors.decode()}")
    summary = json.loads((folder / "told").read_text())
    seconds = time.monotonic() - begun
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, summary


rows = []


def row(name, result, reach):
    seconds, processor, memory, _ = result
    rows.append(f"| {name} | {seconds:.2f} | {processor:.2f} | {memory:.0f} | {reach} |")


with tempfile.TemporaryDirectory() as chat:
    chat = Path(chat)
    with open(chat / "chat.jsonl", "w") as file:
        for number in range(count):
            line = {"speaker": chance.choice(people), "text": sentence(chance.randint(4, 16)), "timestamp": 1_700_000_000 + 20 * number}
            file.write(json.dumps(line) + "\n")
    result = measured(chat, "chat.jsonl")
    assert result[3]["messages"] == count, result
    row(f"{count:,} chat messages, by rules", result, "30 s, 400 MB")

with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    for number in range(count):
        place = folder / "notes" / f"{number // 1_000:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.md").write_text(sentence(8) + "\n")
    time.sleep(SETTLED_S)
    first = measured(folder, "notes")
    assert first[3]["messages"] == count, first
    row(f"{count:,} new files", first, "")
    again = measured(folder, "notes")
    assert (again[3]["messages"], again[3]["sources_skipped"]) == (0, count), again
    row(f"{count:,} files, unchanged", again, "2 s")

print("| command | s | processor s | MB | to reach |\n| --- | --- | --- | --- | --- |")
print("\n".join(rows))
