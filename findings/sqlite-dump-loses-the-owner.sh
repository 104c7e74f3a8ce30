#!/usr/bin/env bash
# Guess: what `.dump` of the sqlite3 shell writes makes the same database, as pg_dump's does.
# Truth: the copy has neither `application_id` nor `user_version`, which programs use to tell their files and their layout, and is not in
# WAL mode. So have copies by `.clone`. `.backup` and `VACUUM INTO` keep both numbers. Python's `iterdump` writes a script that fails
# if a column holds an infinity.
# Version and date: sqlite3 3.40.1 (Debian 12), Python 3.11 and 3.13, 2026-11.
# Gristmill: refuses such a copy; docs/operations.md has the statement that gives it back its mark.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
sqlite3 made.db "PRAGMA journal_mode=wal; PRAGMA user_version=7; PRAGMA application_id=1196576076;
  CREATE TABLE t (a); INSERT INTO t VALUES (1.5), (9e999)" >/dev/null
sqlite3 made.db .dump | sqlite3 dump.db
sqlite3 made.db ".clone clone.db" >/dev/null
sqlite3 made.db ".backup backup.db"
sqlite3 made.db "VACUUM INTO 'vacuum.db'"
{
  for name in made dump clone backup vacuum; do
    echo "$name:" $(sqlite3 $name.db "PRAGMA application_id; PRAGMA user_version; PRAGMA journal_mode; SELECT count(*) FROM t")
  done
  python3 - <<'PYTHON'
import sqlite3
script = "\n".join(sqlite3.connect("made.db").iterdump())
try:
    sqlite3.connect(":memory:").executescript(script)
except sqlite3.OperationalError as error:
    print(f"iterdump: {error}")
PYTHON
} | tee /dev/stderr | diff - <(cat <<'SEEN'
made: 1196576076 7 wal 2
dump: 0 0 delete 2
clone: 0 0 delete 2
backup: 1196576076 7 wal 2
vacuum: 1196576076 7 delete 2
iterdump: no such column: Inf
SEEN
)
