"""The job of every contender: it takes as long as it is told, and notes the moment of its end in a file."""

import functools
import os
import struct
import time

MOMENT = struct.Struct("<q")
NAP_S = float(os.environ.get("BENCH_NAP_S", "0"))


@functools.cache
def _file():
    return os.open(os.environ["BENCH_MOMENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def job(number):
    if NAP_S:
        time.sleep(NAP_S)
    os.write(_file(), MOMENT.pack(time.time_ns()))
    return number


def seconds_of(jobs):
    """How long so many jobs take, one after the other, without a queue."""
    began = time.perf_counter()
    for number in range(jobs):
        job(number)
    return time.perf_counter() - began


def moments(path):
    """The moments of a file, in seconds, in order."""
    with open(path, "rb") as file:
        return sorted(moment / 1e9 for (moment,) in MOMENT.iter_unpack(file.read()))
