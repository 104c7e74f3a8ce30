"""The common parts of the drivers of Python peers: the order (JSON, the only argument), the jobs, the measured loops, the answer."""

import asyncio
import json
import sys
import time

ORDER = json.loads(sys.argv[1])
URL = ORDER["url"]
BATCH = ORDER["batch_jobs"]
# Seconds after which a worker counts as hanging.
SECONDS_MAX = 300


def payloads(first, count):
    """JSON texts of 100 bytes, numbered from `first`."""
    return [payload(number) for number in range(first, first + count)]


def payload(number):
    return json.dumps(
        {"id": f"{number:08}", "to": "user@example.com", "pad": "x" * 50}, separators=(",", ":")
    )


def number_of(text):
    return int(json.loads(text)["id"])


def chunks(items):
    return [items[first : first + BATCH] for first in range(0, len(items), BATCH)]


def rate(jobs, began):
    return {"jobs": jobs, "seconds": time.perf_counter() - began}


async def submit_in_batches(submit):
    """`submit` takes a list of texts."""
    for batch in chunks(payloads(0, ORDER["warm_up_jobs"])):
        await submit(batch)
    batches = chunks(payloads(ORDER["warm_up_jobs"], ORDER["jobs"]))
    began = time.perf_counter()
    for batch in batches:
        await submit(batch)
    return rate(ORDER["jobs"], began)


async def submit_singly(submit):
    """`submit` takes one text and returns when the store has it."""

    async def all_of(texts):
        waiting = iter(texts)

        async def caller():
            for text in waiting:
                await submit(text)

        await asyncio.gather(*(caller() for _ in range(ORDER["callers"])))

    await all_of(payloads(0, ORDER["warm_up_jobs"]))
    texts = payloads(ORDER["warm_up_jobs"], ORDER["jobs"])
    began = time.perf_counter()
    await all_of(texts)
    return rate(ORDER["jobs"], began)


class Latencies:
    """From before each submit to its handler's first line, at a steady rate."""

    def __init__(self):
        self.sent_at = {}
        self.begun_at = {}

    def begun(self, text):
        self.begun_at.setdefault(number_of(text), time.perf_counter())

    async def measure(self, submit):
        count = ORDER["warm_up_jobs"] + ORDER["jobs"]
        began = time.perf_counter()
        for number in range(count):
            due = began + number / ORDER["rate_per_second"]
            await asyncio.sleep(max(0, due - time.perf_counter()))
            self.sent_at[number] = time.perf_counter()
            await submit(payload(number))
        until = time.perf_counter() + 30
        while len(self.begun_at) < count:
            if time.perf_counter() > until:
                raise RuntimeError(f"{len(self.begun_at)} of {count} jobs began")
            await asyncio.sleep(0.02)
        first = ORDER["warm_up_jobs"]
        found = sorted((self.begun_at[n] - self.sent_at[n]) * 1e3 for n in range(first, count))
        at = lambda share: found[round((len(found) - 1) * share)]
        return {"samples": len(found), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}


def main(works):
    """Runs the order's work, one of `works`, and prints its answer as one line of JSON."""
    import uvloop

    print(json.dumps(uvloop.run(works[ORDER["work"]]())), flush=True)
