"""`pool.py imap|executor SLOTS CHUNK SCRIPT INPUT OUTPUT`: runs a script's `main` on every line, in processes of Python's
own pools.

Nothing is durable before the one fsync at the end.
"""

import concurrent.futures
import importlib
import json
import multiprocessing
import os
import sys

pool, slots, chunk, script, source, target = sys.argv[1:]
main = importlib.import_module(script).main


def results(items):
    if pool == "imap":
        with multiprocessing.Pool(int(slots)) as processes:
            yield from processes.imap(main, items, chunksize=int(chunk))
    else:
        with concurrent.futures.ProcessPoolExecutor(int(slots)) as processes:
            yield from processes.map(main, items, chunksize=int(chunk))


with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as output:
    for value in results(map(json.loads, lines)):
        output.write(json.dumps(value) + "\n")
    output.flush()
    os.fsync(output.fileno())
