#!/usr/bin/env bash
# Guess: pyarrow reads the moment that it wrote, or refuses it.
# Truth: moments of 96 bits (INT96, Spark's old form) outside 1677 to 2262 come back as others: the end of 9999 as 1816-03-30.
# Version and date: pyarrow 26.0.1, 2026-11.
# Gristmill: reads such a column as microseconds (coerce_int96_timestamp_unit) wherever nanoseconds cannot hold it
# (python/tests/test_parquet.py).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"; "$folder/venv/bin/pip" install -q pyarrow==26.0.1
seen=('[1816-03-30 05:56:07.066277376]' '[9999-12-31 23:59:59.000000]')
"$folder/venv/bin/python" - "$folder/a.parquet" <<'PYTHON' | tee /dev/stderr | diff - <(printf '%s\n' "${seen[@]}")
import sys
import pyarrow, pyarrow.parquet as parquet
moment = pyarrow.array([253402300799000000], pyarrow.timestamp("us"))
parquet.write_table(pyarrow.table({"t": moment}), sys.argv[1], use_deprecated_int96_timestamps=True)
def shown(**options):
    column = parquet.ParquetFile(sys.argv[1], **options).read()["t"]
    print(f"[{column.chunk(0).cast(pyarrow.string())[0]}]")
shown()
shown(coerce_int96_timestamp_unit="us")
PYTHON
