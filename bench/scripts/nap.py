"""Sleeps as many seconds as it is told, and returns when it ended, in nanoseconds since 1970."""

import time


def main(seconds):
    time.sleep(seconds)
    return time.time_ns()
