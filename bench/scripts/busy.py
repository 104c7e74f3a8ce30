"""Keeps a processor busy for 10 us."""

import time


def main(payload):
    until = time.perf_counter_ns() + 10_000
    while time.perf_counter_ns() < until:
        pass
    return payload
