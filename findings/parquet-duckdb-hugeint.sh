#!/usr/bin/env bash
# Guess: COPY … TO of a HUGEINT keeps its digits, or refuses them.
# Truth: DuckDB writes HUGEINT (as sum() of integers returns) as DOUBLE: 9007199254740993 comes back as 9007199254740992.
# Version and date: duckdb 2.0.1, 2026-11.
# Gristmill: reads the number that the file has; cast to DECIMAL(38, 0) or BIGINT before COPY (docs/scripts.md).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"; "$folder/venv/bin/pip" install -q duckdb==2.0.1
seen=('HUGEINT 9007199254740993' 'DOUBLE 9007199254740992.0')
"$folder/venv/bin/python" - "$folder/a.parquet" <<'PYTHON' | tee /dev/stderr | diff - <(printf '%s\n' "${seen[@]}")
import sys
import duckdb
query = "SELECT sum(n) AS n FROM (VALUES (9007199254740992::BIGINT), (1)) AS t (n)"
ask = lambda source: print(*duckdb.sql(f"SELECT typeof(n), n FROM ({source})").fetchall()[0])
ask(query)
duckdb.execute(f"COPY ({query}) TO '{sys.argv[1]}' (FORMAT parquet)")
ask(f"SELECT * FROM '{sys.argv[1]}'")
PYTHON
