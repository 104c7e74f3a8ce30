#!/usr/bin/env bash
# Guess: readers of JSON either keep an integer above 64 bits or refuse it; engines with types of 128 bits keep it.
# Truth: of ten, orjson, DuckDB (which has HUGEINT) and pyarrow make it a float and lose digits, without a word; jq 1.6 and Node do so
# above 2^53. polars, ujson, msgspec and simplejson keep it; pandas alone refuses it, and makes all ids of a column floats if one is
# null.
# Version and date: as pinned below, jq 1.6 (Debian 12), 2026-11.
# Gristmill: keeps the digits from the input to the output. docs/scripts.md names readers of its output that keep them too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  orjson==3.13.0 ujson==6.1.0 msgspec==0.22.0 simplejson==4.3.0 duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1
cd "$folder"
echo '{"id":9007199254740993,"large":18446744073709551617}' >ids.jsonl
printf '{"id":9007199254740993}\n{"id":null}\n' >gap.jsonl
cat >read.py <<'PYTHON'
import duckdb, msgspec, orjson, pandas, polars, pyarrow.json, simplejson, ujson
text = open("ids.jsonl").read()
readers = {
    "orjson": lambda: orjson.loads(text),
    "ujson": lambda: ujson.loads(text),
    "msgspec": lambda: msgspec.json.decode(text),
    "simplejson": lambda: simplejson.loads(text),
    "duckdb": lambda: dict(zip(("id", "large"), duckdb.sql("SELECT id, large FROM 'ids.jsonl'").fetchall()[0])),
    "polars": lambda: polars.read_ndjson("ids.jsonl").to_dicts()[0],
    "pyarrow": lambda: pyarrow.json.read_json("ids.jsonl").to_pylist()[0],
    "pandas": lambda: pandas.read_json("ids.jsonl", lines=True).to_dict("records")[0],
}
for name, read in readers.items():
    try:
        found = read()
        print(f"{name}: {found['id']} {found['large']}")
    except ValueError as error:
        print(f"{name}: {error}".split(" at ")[0])
print(f"pandas, with a null: {int(pandas.read_json('gap.jsonl', lines=True)['id'][0])}")
PYTHON
{
  venv/bin/python read.py
  echo "jq: $(jq -r '"\(.id) \(.large)"' ids.jsonl)"
  echo "node: $(node -p 'const found = JSON.parse(require("fs").readFileSync("ids.jsonl")); `${found.id} ${found.large}`')"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
orjson: 9007199254740993 1.8446744073709552e+19
ujson: 9007199254740993 18446744073709551617
msgspec: 9007199254740993 18446744073709551617
simplejson: 9007199254740993 18446744073709551617
duckdb: 9007199254740993 1.8446744073709552e+19
polars: 9007199254740993 18446744073709551617
pyarrow: 9007199254740993 1.8446744073709552e+19
pandas: Value is too big!
pandas, with a null: 9007199254740992
jq: 9007199254740992 18446744073709552000
node: 9007199254740992 18446744073709552000
SEEN
)
