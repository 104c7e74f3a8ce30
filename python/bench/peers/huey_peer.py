import os

import work
from huey import RedisHuey

huey = RedisHuey("peer", url=os.environ["BENCH_PLACE"], results=False)


@huey.task()
def job(number):
    work.job(number)


def enqueue(count):
    for number in range(count):
        job(number)


def workers(python, processes):
    options = ["--worker-type", "process", "--workers", str(processes), "--no-periodic", "--quiet", "--delay", "0.01"]
    return [[python, "-m", "huey.bin.huey_consumer", "huey_peer.huey", *options]]
