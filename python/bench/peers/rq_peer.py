import os

import redis
import rq
import work

# Jobs of one transaction of Redis.
PORTION = 1_000


def job(number):
    work.job(number)


def enqueue(count):
    queue = rq.Queue("peer", connection=redis.Redis.from_url(os.environ["BENCH_PLACE"]))
    for first in range(0, count, PORTION):
        numbers = range(first, min(count, first + PORTION))
        queue.enqueue_many([rq.Queue.prepare_data(job, args=(number,), result_ttl=0) for number in numbers])


def workers(python, processes):
    # Without a fork for each job, which it does by default and which costs milliseconds.
    options = ["--worker-class", "rq.worker.SimpleWorker", "--quiet", "--url", os.environ["BENCH_PLACE"], "peer"]
    return [[python, "-m", "rq.cli", "worker", *options] for _ in range(processes)]
