"""Runs one piece of work on one contender, in a fresh store on disk, and gives its figures."""

import json
from dataclasses import dataclass
from pathlib import Path

from . import process
from .build import BENCH, Builds

ITEM_PAD_CHARACTERS = 50


@dataclass
class Bench:
    """The programs, the folder of stores and inputs, and the amount of work of all measurements."""

    builds: Builds
    folder: Path
    quick: bool
    quiet_seconds_max: float
    niceness: int

    def scaled(self, jobs):
        """This number of jobs, or few in a quick run."""
        return max(200, jobs // 20) if self.quick else jobs

    def run(self, command, **options):
        return process.run(
            command, self.builds.environment(), self.folder,
            quiet_seconds_max=self.quiet_seconds_max, niceness=self.niceness, **options,
        )


@dataclass
class Sample:
    """The figures of one run by name, and how many cores others used meanwhile."""

    figures: dict
    others_cores: float


def drive(bench, contender, work, jobs, warm_up_jobs, synchronous, **order):
    """Runs `work` with a contender's driver (each takes an order as JSON and answers with one line of JSON)."""
    store = bench.folder / f"{contender}.db"
    order = {
        "contender": contender, "work": work, "store": str(store), "synchronous": synchronous,
        "jobs": jobs, "warm_up_jobs": warm_up_jobs, "batch_jobs": 1_000, **order,
    }
    programs = {
        "taskmill": [bench.builds.taskmill],
        "plainjob": [bench.builds.node, bench.builds.plainjob],
    }
    remove_store(store)
    ended = bench.run([*programs.get(contender, [bench.builds.driver]), json.dumps(order)])
    remove_store(store)
    figures = json.loads(ended.stdout.splitlines()[-1])
    if "seconds" in figures:
        figures["per_second"] = figures["jobs"] / figures["seconds"]
    return Sample(figures, ended.others_cores)


def main_job(bench, script, items, memory=False):
    """Runs `gristmill run` over `items` items, from the file to the file of results."""
    store, output = bench.folder / "run.db", bench.folder / "results.jsonl"
    remove_store(store)
    output.unlink(missing_ok=True)
    source = items_file(bench.folder, items)
    ended = bench.run(
        [bench.builds.gristmill, "run", BENCH / "scripts" / script, "--input", source, "--output", output,
         "--store", store],
        memory=memory,
    )
    check_results(source, output, items)
    remove_store(store)
    output.unlink()
    figures = {
        "seconds": ended.seconds, "per_second": items / ended.seconds,
        "memory_mb": ended.memory_bytes / 1e6, "children_mb": ended.children_bytes / 1e6,
    }
    return Sample(figures, ended.others_cores)


def floor(bench, script, items):
    """The same function over the same file in its own language, without a queue."""
    interpreter = bench.builds.node if script.endswith(".mjs") else bench.builds.python
    output = bench.folder / "floor.jsonl"
    ended = bench.run([interpreter, BENCH / "scripts" / script, items_file(bench.folder, items), output])
    output.unlink()
    return Sample({"seconds": ended.seconds, "per_second": items / ended.seconds}, ended.others_cores)


def items_file(folder, items):
    """A JSONL file with this number of items of 100 bytes. Writes it if it is missing."""
    path = folder / f"items-{items}.jsonl"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with open(partial, "w", encoding="ascii") as lines:
            pad = "x" * ITEM_PAD_CHARACTERS
            for number in range(items):
                lines.write(f'{{"id":"{number:08d}","to":"user@example.com","pad":"{pad}"}}\n')
        partial.rename(path)
    return path


def check_results(source, output, items):
    """Counts the results, and checks 1 of 1,000 lines: each is the value of its item, in the items' order."""
    counted = 0
    with open(source, encoding="ascii") as inputs, open(output, encoding="utf-8") as outputs:
        for counted, result in enumerate(outputs, start=1):
            item = next(inputs)
            if counted % 1_000 == 1 and json.loads(result)["value"] != json.loads(item):
                raise RuntimeError(f"line {counted} of the results is not the value of its item: {result}")
    if counted != items:
        raise RuntimeError(f"there are {counted} results for {items} items")


def remove_store(store):
    """Deletes a SQLite file and the files beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{store}{suffix}").unlink(missing_ok=True)
