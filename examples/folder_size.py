"""The sizes of folders, including everything below them.

    gristmill run examples/folder_size.py --input folders.jsonl --output sizes.jsonl

An item is the path of a folder. It spawns a child for each folder in it, recursively. A job with
children waits for them without holding a process. When they have ended, Gristmill calls `finalize`
with the item, the memo of `main`, and their outcomes.
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
    # The children are jobs of this script, one for each folder. If one of them ends as dead, so does this
    # job, unless it spawns with on_failure="collect".
    return gristmill.spawn(folders, memo=own)


def finalize(folder, own, outcomes):
    for outcome in outcomes:
        for name, number in outcome["value"].items():
            own[name] += number
    return own
