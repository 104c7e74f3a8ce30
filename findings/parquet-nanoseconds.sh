#!/usr/bin/env bash
# Guess: what pyarrow's to_pylist gives for a column of nanoseconds depends on the file alone.
# Truth: without pandas, a row is a datetime if it has whole microseconds, and an error for the whole batch if not; where pandas is
# installed, every row is a pandas.Timestamp. Spans likewise: timedelta ("1 day, 0:00:00") or pandas.Timedelta ("1 days 00:00:00").
# Version and date: pyarrow 26.0.1, pandas 3.1.1, 2026-11.
# Gristmill: reads the physical numbers and writes the texts itself (python/tests/test_parquet.py).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"; "$folder/venv/bin/pip" install -q pyarrow==26.0.1
cat > "$folder/ask.py" <<'PYTHON'
import pyarrow
for kind in (pyarrow.timestamp("ns"), pyarrow.duration("ns")):
    for ticks in (86_400_000_000_000, 86_400_000_000_001):
        try:
            [value] = pyarrow.array([ticks], kind).to_pylist()
            print(type(value).__name__, value)
        except ValueError as error:
            print("ValueError", str(error).split(".")[0])
PYTHON
{
  "$folder/venv/bin/python" "$folder/ask.py"
  "$folder/venv/bin/pip" install -q pandas==3.1.1
  "$folder/venv/bin/python" "$folder/ask.py"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
datetime 1970-01-02 00:00:00
ValueError Nanosecond resolution temporal type 86400000000001 is not safely convertible to microseconds to convert to datetime
timedelta 1 day, 0:00:00
ValueError Nanosecond duration 86400000000001 is not safely convertible to microseconds to convert to datetime
Timestamp 1970-01-02 00:00:00
Timestamp 1970-01-02 00:00:00.000000001
Timedelta 1 days 00:00:00
Timedelta 1 days 00:00:00.000000001
SEEN
)
