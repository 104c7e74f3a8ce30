"""Doubles a number: `gristmill submit double 21` completes with the value 42."""


def main(payload):
    return payload * 2
