"""Sleeps for the given seconds, and returns the time of its end in nanoseconds since 1970."""

import time


def main(seconds):
    time.sleep(seconds)
    return time.time_ns()
