import os

import taskito
import work

queue = taskito.Queue(
    db_path=os.environ["BENCH_PLACE"], workers=int(os.environ["BENCH_PROCESSES"]), default_retry=0,
    scheduler_poll_interval_ms=1, scheduler_batch_size=100,
)


@queue.task()
def job(number):
    work.job(number)


def enqueue(count):
    job.map([(number,) for number in range(count)])


def workers(python, processes):
    return [[python, "-m", "taskito.cli", "worker", "--app", "taskito_peer:queue", "--pool", "prefork"]]
