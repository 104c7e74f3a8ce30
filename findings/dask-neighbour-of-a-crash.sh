#!/usr/bin/env bash
# Guess: a Dask task that ends its worker's process fails; with `retries=0` it does not start again, and its neighbours do.
# Truth: `retries` counts exceptions alone. The task starts four times, and each time ends the worker that also runs its neighbour. The
# neighbour, which did nothing wrong, counts the same four deaths and fails with KilledWorker too.
# Version and date: distributed 2026.8.0, 2026-11.
# Gristmill: finds the job that crashed its process and charges it alone; a crash is an attempt (docs/guarantees.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check distributed==2026.8.0 dask==2026.8.0
cd "$folder"
cat >try.py <<'PYTHON'
import logging, os, time
def note(name):
    with open("log", "a") as log:
        print(name, file=log)
def crashes():
    note("crashes")
    while open("log").read().count("works") < open("log").read().count("crashes"):
        time.sleep(0.01)  # Until the neighbour runs.
    os._exit(1)
def works():
    note("works")
    time.sleep(20)
    return "done"
if __name__ == "__main__":
    from distributed import Client, LocalCluster
    logging.disable(logging.CRITICAL)
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
        futures = [client.submit(task, retries=0) for task in (crashes, works)]
        for future in futures:
            try:
                print(future.result(timeout=120))
            except Exception as error:
                print(type(error).__name__)
    log = open("log").read().split()
    print(f"starts: {log.count('crashes')} and {log.count('works')}")
PYTHON
venv/bin/python try.py 2>/dev/null | tee /dev/stderr | diff - <(printf '%s\n' KilledWorker KilledWorker 'starts: 4 and 4')
