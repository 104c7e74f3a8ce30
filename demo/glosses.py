#!/usr/bin/env python3
"""Prints WordNet's definitions as JSON lines: {"word": …, "text": …}.

usage: glosses.py DICT-FOLDER

Reads data.noun, data.verb, data.adj and data.adv; their format is wndb(5WN),
https://wordnet.princeton.edu/documentation/wndb5wn: the fifth field is the first word, and what follows
the bar is the definition with its examples.
"""

import json
import pathlib
import sys


def definitions(folder: pathlib.Path):
    for part in ("noun", "verb", "adj", "adv"):
        with open(folder / f"data.{part}", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("  "):  # the licence at the head of each file
                    continue
                fields, _, text = line.partition("|")
                yield {"word": fields.split(" ", 5)[4].replace("_", " "), "text": text.strip()}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for definition in definitions(pathlib.Path(sys.argv[1])):
        print(json.dumps(definition, ensure_ascii=False))


if __name__ == "__main__":
    main()
