#!/usr/bin/env bash
# Guess: COPY … TO of an INTERVAL keeps its microseconds, as DuckDB's own file does, or refuses them.
# Truth: Parquet's INTERVAL has milliseconds. DuckDB drops the rest without a word (0.0015 s becomes 0.001 s), and refuses the whole file
# if one interval is negative. pyarrow reads the column as 12 raw bytes.
# Version and date: duckdb 2.0.1, pyarrow 26.0.1, 2026-11.
# Gristmill: reads such a column as ISO 8601 (`P1M2DT3S`), with the milliseconds that the file has; docs/scripts.md has a table of writers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
cat >try.py <<'PYTHON'
import duckdb, pyarrow.parquet
def copied(span):
    try:
        duckdb.execute(f"COPY (SELECT INTERVAL '{span}' AS span) TO 'a.parquet' (FORMAT parquet)")
    except duckdb.Error as error:
        return str(error)
    return duckdb.sql("SELECT span::VARCHAR FROM 'a.parquet'").fetchall()[0][0]
print(copied("1 month 2 days 0.0015 seconds"))
print(pyarrow.parquet.read_schema("a.parquet").field("span").type)
print(copied("-1 second"))
PYTHON
venv/bin/python try.py | tee /dev/stderr | diff - <(cat <<'SEEN'
1 month 2 days 00:00:00.001
fixed_size_binary[12]
IO Error: Parquet files do not support negative intervals
SEEN
)
