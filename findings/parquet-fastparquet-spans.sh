#!/usr/bin/env bash
# Guess: a span of a day that fastparquet writes is a day in every reader.
# Truth: fastparquet declares spans as times of day. pyarrow reads a day as 00:00, and 25 hours as 01:00, without a word.
# Version and date: fastparquet 2026.9.0, pyarrow 26.0.1, pandas 3.1.1, 2026-11.
# Gristmill: writes the hours that the file has: "24:00:00", "25:00:00" (python/tests/test_parquet.py).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"; "$folder/venv/bin/pip" install -q pyarrow==26.0.1 fastparquet==2026.9.0 pandas==3.1.1
seen=('[datetime.time(0, 0), datetime.time(1, 0)]')
"$folder/venv/bin/python" - "$folder/a.parquet" <<'PYTHON' | tee /dev/stderr | diff - <(printf '%s\n' "${seen[@]}")
import sys
import fastparquet, pandas, pyarrow.parquet
fastparquet.write(sys.argv[1], pandas.DataFrame({"span": pandas.to_timedelta(["1 day", "25 hours"])}))
print(pyarrow.parquet.ParquetFile(sys.argv[1]).read()["span"].to_pylist())
PYTHON
