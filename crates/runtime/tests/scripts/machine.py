"""What the random machine runs: says in a file that a job begins, and then does what the payload says. `machine.js` does the same."""
import os
import sys
import time


def begin(payload):
    fd = os.open(payload["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d %d\n" % (payload["id"], os.getpid()))
    os.close(fd)
    print("begin", payload["id"])


def main(payload):
    begin(payload)
    if payload["do"] == "sleep":
        time.sleep(payload["ms"] / 1000)
    elif payload["do"] == "fork":
        # The parent goes on once the child has ended, which does not say so itself.
        pid = os.fork()
        if pid == 0:
            if payload["id"] % 2:
                sys.exit(3)
            sys.stderr = open(os.devnull, "w")
            raise ValueError("in the child")
        os.waitpid(pid, 0)
    elif payload["do"] == "fail":
        raise ValueError("job %d fails" % payload["id"])
    elif payload["do"] == "crash":
        os._exit(7)
    elif payload["do"] == "hang":
        time.sleep(1000)
    print("end", payload["id"])
    return payload["id"]
