import asyncio
import os

import work
from arq import create_pool
from arq.connections import RedisSettings


async def job(context, number):
    work.job(number)


class WorkerSettings:
    functions = [job]
    redis_settings = RedisSettings.from_dsn(os.environ["BENCH_PLACE"])
    keep_result = 0
    max_jobs = 1 if work.NAP_S else 100
    poll_delay = 0.01


def enqueue(count):
    async def send():
        pool = await create_pool(WorkerSettings.redis_settings)
        for number in range(count):
            await pool.enqueue_job("job", number)
        await pool.aclose()

    asyncio.run(send())


def workers(python, processes):
    return [[python, "-m", "arq", "arq_peer.WorkerSettings"] for _ in range(processes)]
