"""Flows of steps that do nothing, in DBOS: `dbos_flows.py FLOWS STEPS URL TOGETHER`."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

flows, steps, url, together = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
DBOS(config={"name": "flows", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})


@DBOS.step()
def step(number):
    return number


@DBOS.workflow()
def flow(number):
    for _ in range(steps):
        number = step(number)
    return number


DBOS.launch()
flow(0)
began = time.monotonic()
with ThreadPoolExecutor(together) as pool:
    assert list(pool.map(flow, range(flows))) == list(range(flows))
print(json.dumps({"steps": flows * steps, "seconds": time.monotonic() - began}))
DBOS.destroy()
