import asyncio
import os

import work
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(os.environ["BENCH_PLACE"])


@broker.task(task_name="job")
async def job(number):
    work.job(number)


def enqueue(count):
    async def send():
        await broker.startup()
        for number in range(count):
            await job.kiq(number)
        await broker.shutdown()

    asyncio.run(send())


def workers(python, processes):
    options = ["--workers", str(processes), "--log-level", "ERROR", "--max-async-tasks", "1" if work.NAP_S else "100"]
    return [[python, "-m", "taskiq", "worker", "taskiq_peer:broker", *options]]
