"""Small work of a Python program, by Gristmill or by a pool that stores nothing: how long it takes, as JSON.

Usage: small_work.py CONTENDER WORK FOLDER, where CONTENDER is `gristmill` or `pool`. The first map of a process starts the
interpreter that later ones share, so maps are measured from the second one on; an executor and joblib with their start.
"""

import concurrent.futures
import json
import multiprocessing
import statistics
import sys
import tempfile
import time

PROCESSES = 2
CALLS, TASKS, ITEMS, NAPS, NAP_S = 20_000, 5_000, 100_000, 200, 0.05
ONES = 5


def identity(number):
    return number


def nap(number):
    time.sleep(NAP_S)
    return number


def opened(folder):
    import gristmill

    return gristmill.App(tempfile.mkdtemp(dir=folder) + "/jobs.db")


def spent(work):
    """The seconds of some work, which returns what it should be and what it is."""
    began = time.perf_counter()
    expected, found = work()
    seconds = time.perf_counter() - began
    assert expected == found
    return seconds


def executor(contender, folder):
    app = opened(folder) if contender == "gristmill" else None

    def work():
        with app.executor(PROCESSES) if app else concurrent.futures.ProcessPoolExecutor(PROCESSES) as running:
            return list(range(CALLS)), list(running.map(identity, range(CALLS)))

    return spent(work)


def joblib(contender, folder):
    import joblib as library

    if contender == "gristmill":
        from gristmill.integrations.joblib import register

        register(opened(folder))

    def work():
        with library.parallel_config("gristmill" if contender == "gristmill" else "loky", n_jobs=PROCESSES):
            return list(range(TASKS)), library.Parallel()(library.delayed(identity)(number) for number in range(TASKS))

    return spent(work)


def mapped(contender, folder, function, items, processes, runs=1):
    """The median of some maps, each with the start and the end of its processes."""
    app = opened(folder) if contender == "gristmill" else None
    if app:
        list(app.map(identity, [1]))

    def work():
        if app:
            return items, list(app.map(function, items, processes=processes))
        with multiprocessing.Pool(processes) as pool:
            return items, pool.map(function, items)

    return statistics.median(spent(work) for _ in range(runs))


WORKS = {
    "executor": executor,
    "joblib": joblib,
    "map-one": lambda contender, folder: mapped(contender, folder, identity, [1], 1, ONES),
    "map-many": lambda contender, folder: mapped(contender, folder, identity, list(range(ITEMS)), PROCESSES),
    "map-naps": lambda contender, folder: mapped(contender, folder, nap, list(range(NAPS)), PROCESSES),
}

if __name__ == "__main__":
    print(json.dumps({"seconds": WORKS[sys.argv[2]](sys.argv[1], sys.argv[3])}))
