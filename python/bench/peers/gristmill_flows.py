"""The same flows in Gristmill: `gristmill_flows.py FLOWS STEPS STORE PROCESSES`."""

import json
import sys
import time

import gristmill

app = gristmill.App(sys.argv[3])


@app.job
def step(number: int) -> int:
    return number


@app.flow
async def flow(flow, number: int, steps: int) -> int:
    for _ in range(steps):
        number = await flow.step(step, number)
    return number


def main() -> None:
    flows, steps, processes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    flow.submit(0, steps)
    app.work(processes, until="empty")
    began = time.monotonic()
    handles = flow.submit_many([(number, steps) for number in range(flows)], starmap=True)
    app.work(processes, until="empty")
    seconds = time.monotonic() - began
    assert [handles[place].result(timeout=10) for place in (0, flows - 1)] == [0, flows - 1]
    print(json.dumps({"steps": flows * steps, "seconds": seconds}))


if __name__ == "__main__":
    main()
