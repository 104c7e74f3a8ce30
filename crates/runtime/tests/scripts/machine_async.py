"""The same as machine.py with an asynchronous main."""
import asyncio
import os


async def main(payload):
    fd = os.open(payload["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d %d\n" % (payload["id"], os.getpid()))
    os.close(fd)
    print("begin", payload["id"])
    if payload["do"] == "sleep":
        await asyncio.sleep(payload["ms"] / 1000)
    elif payload["do"] == "fail":
        raise ValueError("job %d fails" % payload["id"])
    elif payload["do"] == "crash":
        os._exit(7)
    elif payload["do"] == "hang":
        await asyncio.sleep(1000)
    print("end", payload["id"])
    return payload["id"]
