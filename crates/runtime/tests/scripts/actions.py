"""Does what the payload says. `actions.js` and `actions.sh` do the same; the suite runs all three."""
import ctypes
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time

shared = {"calls": 0}


class Busy(Exception):
    retry_after = 1.5


class Hopeless(Exception):
    permanent = True


def main(payload):
    if not isinstance(payload, dict) or "do" not in payload:
        return payload
    return globals()["do_" + payload["do"]](payload)


def do_raise(payload):
    raise ValueError(payload["message"])


def do_raise_busy(payload):
    raise Busy("later")


def do_raise_hopeless(payload):
    raise Hopeless("never")


def do_exit(payload):
    os._exit(3)


def do_segfault(payload):
    ctypes.string_at(0)


def do_hang(payload):
    while True:
        pass


def do_hang_in_native_code(payload):
    # Backtracks for ages without ever letting another Python thread run.
    re.match(r"(a+)+$", "a" * 60 + "b")


def do_progress(payload):
    import gristmill

    gristmill.progress(1, 12, "begun")
    gristmill.progress(3, 12, message="at the gate")
    return do_block(payload)


def do_block(payload):
    # Returns once the test has written to the FIFO.
    if "say" in payload:
        print(payload["say"])
    if "here" in payload:
        open(payload["here"], "w").close()
    with open(payload["fifo"]) as fifo:
        return fifo.read()


def do_terminate(payload):
    # The signal of a stop that reaches all processes, once the test has written to the FIFO.
    do_block(payload)
    os.kill(os.getpid(), getattr(signal, "SIG" + payload["signal"]))
    while True:
        time.sleep(1)


def do_print(payload):
    print(payload["text"])
    print("to stderr", file=sys.stderr)
    return "printed"


def do_flood(payload):
    line = "x" * 65535
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(payload["bytes"] // 65536):
        print(line)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def do_child(payload):
    subprocess.run(["sh", "-c", "echo from the child; echo and its stderr >&2"], check=True)
    return "done"


def do_forge_stdout(payload):
    frame = struct.pack("<IIQIIII", 16, 19, 0, 1, 1, 0, 0)
    sys.stdout.buffer.write(frame)
    os.write(1, frame + b'\n{"failed":{"index":0}}\n')
    return "honest"


def do_forge_descriptors(payload):
    frame = struct.pack("<IIQIIII", 16, 19, 0, 1, 1, 0, 0)
    for fd in range(3, 64):
        try:
            if not os.isatty(fd) and os.readlink("/proc/self/fd/%d" % fd).startswith("pipe:"):
                os.write(fd, frame)
        except OSError:
            pass
    return "forged"


def do_forge_from_child(payload):
    # A program that the script starts writes to every descriptor that it was given.
    code = "for fd in 3 4 5 6 7 8 9; do eval \"echo garbage-garbage-garbage >&$fd\" 2>/dev/null; done; true"
    os.system(code)
    return "honest"


def do_nan(payload):
    return {"a": [float("nan")]}


def do_infinity(payload):
    return float("-inf")


def do_surrogate(payload):
    return "a\ud800b"


def do_nothing(payload):
    return None


def do_unserialisable(payload):
    return {"a": object()}


def do_circular(payload):
    value = []
    value.append(value)
    return value


def do_huge(payload):
    return "x" * payload["bytes"]


def do_count(payload):
    shared["calls"] += 1
    return shared


def do_pid(payload):
    return os.getpid()


def do_spawn(payload):
    # A grandchild that would live for long.
    child = subprocess.Popen(["sleep", "1000"])
    return [os.getpid(), child.pid]


def do_sleep(payload):
    time.sleep(payload["ms"] / 1000)
    return payload["ms"]


def do_job(payload):
    import gristmill

    return vars(gristmill.job())


def do_flow(payload):
    import gristmill

    try:
        return gristmill.job().flow
    except RuntimeError as error:
        return str(error)


def do_print_and(payload):
    print(payload["text"])
    print("and no line feed", end="")
    return globals()["do_" + payload["then"]](payload)
