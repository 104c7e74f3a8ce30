"""PgQueuer over asyncpg, with the settings of its guide to performance: large batches, tuned autovacuum."""

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries
from python_order import (
    BATCH, ORDER, SECONDS_MAX, URL, Latencies, chunks, main, payloads, rate, submit_in_batches, submit_singly,
)


async def install():
    connection = await asyncpg.connect(URL)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    return connection, queries


async def enqueue(queries, batch):
    await queries.enqueue(["noop"] * len(batch), [text.encode() for text in batch], [0] * len(batch))


async def submit_batches():
    _, queries = await install()
    return await submit_in_batches(lambda batch: enqueue(queries, batch))


async def drain():
    connection, queries = await install()
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))
    state = {"done": 0, "wanted": 0, "reached": asyncio.Event()}

    @worker.entrypoint("noop")
    async def noop(_job):
        state["done"] += 1
        if state["done"] >= state["wanted"]:
            state["reached"].set()

    async def run(first, count):
        for batch in chunks(payloads(first, count)):
            await enqueue(queries, batch)
        await connection.execute("VACUUM ANALYZE pgqueuer")
        await connection.execute("CHECKPOINT")
        state.update(wanted=first + count, reached=asyncio.Event())
        began = time.perf_counter()
        task = asyncio.create_task(worker.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1)))
        await asyncio.wait_for(state["reached"].wait(), SECONDS_MAX)
        while await connection.fetchval("SELECT count(*) FROM pgqueuer"):
            await asyncio.sleep(0.005)
        answer = rate(count, began)
        return task, answer

    # The worker of the warm-up cannot be started twice, so the measured jobs come in one go and the warm-up is
    # that of the connection and the tables.
    await enqueue(queries, payloads(0, 1))
    await connection.execute("DELETE FROM pgqueuer")
    _, answer = await run(0, ORDER["jobs"])
    return answer


async def submit_single():
    await install()
    pool = await asyncpg.create_pool(URL, min_size=ORDER["callers"], max_size=ORDER["callers"])
    queries = Queries(AsyncpgPoolDriver(pool))
    return await submit_singly(lambda text: queries.enqueue("noop", text.encode()))


async def latency():
    connection, _ = await install()
    worker = PgQueuer(AsyncpgDriver(connection))
    latencies = Latencies()

    @worker.entrypoint("noop")
    async def noop(job):
        latencies.begun(job.payload)

    task = asyncio.create_task(worker.run(batch_size=BATCH))
    await asyncio.sleep(1)
    queries = Queries(AsyncpgPoolDriver(await asyncpg.create_pool(URL, min_size=4, max_size=4)))
    answer = await latencies.measure(lambda text: queries.enqueue("noop", text.encode()))
    task.cancel()
    return answer


main({"submit_batches": submit_batches, "drain": drain, "submit_single": submit_single, "latency": latency})
