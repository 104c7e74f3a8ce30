import os

import celery
import work

# A task is acknowledged when it has run, as Gristmill's are.
app = celery.Celery("peer", broker=os.environ["BENCH_PLACE"])
app.conf.update(
    task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=1 if work.NAP_S else 64,
    broker_connection_retry_on_startup=True,
)


@app.task(name="job")
def job(number):
    work.job(number)


def enqueue(count):
    with app.producer_pool.acquire() as producer:
        for number in range(count):
            job.apply_async((number,), producer=producer)


def workers(python, processes):
    options = ["--concurrency", str(processes), "--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [[python, "-m", "celery", "-A", "celery_peer", "worker", *options]]
