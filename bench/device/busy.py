"""A script that computes for about 5 ms."""

import hashlib

ROUNDS = 9_000


def main(number):
    found = str(number).encode()
    for _ in range(ROUNDS):
        found = hashlib.sha256(found).digest()
    return found.hex()[:8]


def same(number):
    return number
