#!/usr/bin/env bash
# Guess: polars writes integers of 128 bits to Parquet as DECIMAL(38, 0), or refuses them.
# Truth: it writes 16 bytes without a type, and the truth only into its own metadata. pyarrow, and so pandas, refuses the whole file, also
# when other columns alone are asked for. DuckDB reads bytes. polars gives this type to integers of JSON above 64 bits.
# Version and date: polars 2.1.0, pyarrow 26.0.1, duckdb 2.0.1, 2026-11.
# Gristmill: refuses the file with pyarrow's reason; docs/scripts.md says what to cast to before writing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
cd "$folder"
echo '{"id":18446744073709551617,"name":"a"}' >ids.jsonl
cat >try.py <<'PYTHON'
import duckdb, polars, pyarrow
import pyarrow.parquet
rows = polars.read_ndjson("ids.jsonl")
print("polars:", rows.schema["id"])
rows.write_parquet("ids.parquet")
for columns in (None, ["name"]):
    try:
        print("pyarrow:", pyarrow.parquet.read_table("ids.parquet", columns=columns).to_pylist())
    except pyarrow.ArrowNotImplementedError as error:
        print(f"pyarrow, {'all columns' if columns is None else 'the other column'}: {error}")
print("duckdb:", duckdb.sql("SELECT typeof(id) FROM 'ids.parquet'").fetchall()[0][0])
rows.with_columns(polars.col("id").cast(polars.Decimal(38, 0))).write_parquet("ids.parquet")
print("pyarrow, cast to Decimal(38, 0):", pyarrow.parquet.read_table("ids.parquet")["id"][0].as_py())
PYTHON
venv/bin/python try.py | tee /dev/stderr | diff - <(cat <<'SEEN'
polars: Int128
pyarrow, all columns: Integers with more than 64 bits not implemented
pyarrow, the other column: Integers with more than 64 bits not implemented
duckdb: BLOB
pyarrow, cast to Decimal(38, 0): 18446744073709551617
SEEN
)
