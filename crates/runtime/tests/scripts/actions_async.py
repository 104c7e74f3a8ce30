"""An asynchronous main: jobs of one process run at once."""
import asyncio
import os

import gristmill

waiting = []


async def main(payload):
    if not isinstance(payload, dict) or "do" not in payload:
        return payload
    return await globals()["do_" + payload["do"]](payload)


async def do_meet(payload):
    # Ends once `count` jobs are here at the same time.
    print("met", payload["name"])
    gristmill.progress(message=payload["name"], fraction=0.5)
    here = asyncio.get_running_loop().create_future()
    waiting.append(here)
    if len(waiting) == payload["count"]:
        for other in waiting:
            other.set_result(None)
        waiting.clear()
    await here
    print("left", payload["name"])
    return payload["name"]


async def do_raise(payload):
    await asyncio.sleep(0)
    raise ValueError(payload["message"])


async def do_hang(payload):
    await asyncio.get_running_loop().create_future()


async def do_exit(payload):
    os._exit(3)


async def do_pid(payload):
    return os.getpid()


async def do_job(payload):
    await asyncio.sleep(0)
    return vars(gristmill.job())


async def do_wait(payload):
    # Returns once the file is there.
    open(payload["here"], "w").close()
    while not os.path.exists(payload["file"]):
        await asyncio.sleep(0.005)
    return "waited"


async def do_print_and(payload):
    print(payload["text"])
    print("and no line feed", end="")
    await asyncio.sleep(0)
    return await globals()["do_" + payload["then"]](payload)
