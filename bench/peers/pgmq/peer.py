"""pgmq: its SQL over asyncpg. pgmq has no worker: the loop that reads, acts and deletes stands here."""

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg
import psycopg
from pgmq.install import get_embedded_install_sql, install_pgmq_sql
from python_order import BATCH, ORDER, URL, Latencies, main, payloads, chunks, rate, submit_in_batches, submit_singly

# Two loops on one connection each were the fastest; a message stays hidden for a minute.
LOOPS = 2
HIDDEN_SECONDS = 60
READ = f"SELECT msg_id, message FROM pgmq.read('noop', {HIDDEN_SECONDS}, $1)"
DELETE = "SELECT pgmq.delete('noop', $1::bigint[])"


async def install():
    install_pgmq_sql(get_embedded_install_sql(), conn=None, dsn=URL)
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute("SELECT pgmq.create('noop')")
    return await asyncpg.connect(URL)


async def send(connection, batch):
    await connection.fetch("SELECT * FROM pgmq.send_batch('noop', $1::jsonb[])", batch)


async def submit_batches():
    connection = await install()
    return await submit_in_batches(lambda batch: send(connection, batch))


async def drain():
    connection = await install()
    connections = [await asyncpg.connect(URL) for _ in range(LOOPS)]

    async def act(message):
        pass

    async def loop(own):
        done = 0
        while rows := await own.fetch(READ, BATCH):
            for row in rows:
                await act(row["message"])
            await own.execute(DELETE, [row["msg_id"] for row in rows])
            done += len(rows)
        return done

    async def run(first, count):
        for batch in chunks(payloads(first, count)):
            await send(connection, batch)
        await connection.execute("VACUUM ANALYZE pgmq.q_noop")
        await connection.execute("CHECKPOINT")
        began = time.perf_counter()
        done = sum(await asyncio.gather(*(loop(own) for own in connections)))
        answer = rate(count, began)
        left = await connection.fetchval("SELECT count(*) FROM pgmq.q_noop")
        if done != count or left:
            raise RuntimeError(f"{done} of {count} messages were read, {left} are left")
        return answer

    await run(0, ORDER["warm_up_jobs"])
    return await run(ORDER["warm_up_jobs"], ORDER["jobs"])


async def submit_single():
    await install()
    pool = await asyncpg.create_pool(URL, min_size=ORDER["callers"], max_size=ORDER["callers"])
    return await submit_singly(lambda text: pool.fetchval("SELECT pgmq.send('noop', $1::jsonb)", text))


async def latency():
    connection = await install()
    listener, reader = await asyncpg.connect(URL), await asyncpg.connect(URL)
    await connection.execute("SELECT pgmq.enable_notify_insert('noop', 0)")
    latencies, arrived = Latencies(), asyncio.Event()
    await listener.add_listener("pgmq.q_noop.INSERT", lambda *_: arrived.set())

    async def loop():
        while True:
            arrived.clear()
            while rows := await reader.fetch(READ, BATCH):
                for row in rows:
                    latencies.begun(row["message"])
                await reader.execute(DELETE, [row["msg_id"] for row in rows])
            await arrived.wait()

    task = asyncio.create_task(loop())
    answer = await latencies.measure(lambda text: connection.fetchval("SELECT pgmq.send('noop', $1::jsonb)", text))
    task.cancel()
    return answer


main({"submit_batches": submit_batches, "drain": drain, "submit_single": submit_single, "latency": latency})
