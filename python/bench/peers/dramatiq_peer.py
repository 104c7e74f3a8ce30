import os

import dramatiq
import work
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_PLACE"]))


@dramatiq.actor(max_retries=0)
def job(number):
    work.job(number)


def enqueue(count):
    for number in range(count):
        job.send(number)


def workers(python, processes):
    # Threads of one process share its interpreter: they help with waiting for Redis alone.
    threads = "1" if work.NAP_S else "8"
    return [[python, "-m", "dramatiq", "dramatiq_peer", "--processes", str(processes), "--threads", threads]]
