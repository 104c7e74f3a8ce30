"""How many bytes there are in folders, with all that is below them.

    gristmill run examples/folder_size.py --input folders.jsonl --output sizes.jsonl

An item is the path of a folder. It is measured by children: a job for each folder in it, which does
the same. A job that has spawned children waits for them without holding a process; when they have
ended, `finalize` is called with the item, with what `main` wanted to remember, and with their outcomes.
"""
import os

import gristmill


def main(folder):
    with os.scandir(folder) as entries:
        entries = list(entries)
    files = [entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file(follow_symlinks=False)]
    folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    own = {"bytes": sum(files), "files": len(files), "folders": 1}
    if not folders:
        return own
    # The children are jobs of this script, one a folder. Had one of them failed for good, so would this
    # job, unless it said on_failure="collect".
    return gristmill.spawn(folders, memo=own)


def finalize(folder, own, outcomes):
    for outcome in outcomes:
        for name, number in outcome["value"].items():
            own[name] += number
    return own
