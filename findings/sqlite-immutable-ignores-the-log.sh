#!/usr/bin/env bash
# Guess: a tool that opens a live SQLite file as immutable reads what is committed, and only takes no locks.
# Truth: it does not read the log (`-wal`) at all: commits since the last checkpoint are missing, without a word. `datasette -i` and
# `file:…?immutable=1` do so; Datasette without `-i` and `mode=ro` read everything.
# Version and date: Datasette 0.65.5 (PyPI), sqlite3 3.40 and newer, 2026-11.
# Gristmill: docs/operations.md says how tools may open a live store.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check datasette==0.65.5
cd "$folder"
cat >try.py <<'PYTHON'
import json, sqlite3, subprocess
writer = sqlite3.connect("jobs.db")
writer.execute("PRAGMA journal_mode=wal")
writer.execute("CREATE TABLE job (id INTEGER PRIMARY KEY)")
writer.commit()
writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
writer.executemany("INSERT INTO job VALUES (?)", [(number,) for number in range(100)])
writer.commit()
for mode in ("mode=ro", "immutable=1"):
    print(f"{mode}: {sqlite3.connect(f'file:jobs.db?{mode}', uri=True).execute('SELECT count(*) FROM job').fetchone()[0]} rows")
for options in ([], ["-i"]):
    told = subprocess.run(
        ["venv/bin/datasette", *options, "jobs.db", "--get", "/jobs.json?sql=select+count(*)+as+n+from+job&_shape=array"],
        capture_output=True, text=True, check=True,
    )
    print(f"datasette {' '.join(options)}: {json.loads(told.stdout)[0]['n']} rows")
PYTHON
venv/bin/python try.py | tee /dev/stderr | diff - <(cat <<'SEEN'
mode=ro: 100 rows
immutable=1: 0 rows
datasette : 100 rows
datasette -i: 0 rows
SEEN
)
