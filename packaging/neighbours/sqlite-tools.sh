#!/usr/bin/env bash
# Copies of a live store by sqlite3's own commands are opened, or refused with the statement that mends them; Datasette reads the store.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check datasette==0.65.5
echo 'def main(number): return number' >same.py
"$GRISTMILL" submit same 1 2 3 --store jobs.db >/dev/null
sqlite3 jobs.db ".backup backup.db"
sqlite3 jobs.db "VACUUM INTO 'vacuum.db'"
sqlite3 jobs.db .dump | sqlite3 dump.db
if "$GRISTMILL" stats --store dump.db >/dev/null 2>refused; then echo "a copy without its mark was opened"; exit 1; fi
cat refused
sqlite3 dump.db "PRAGMA application_id=1196576076"
for name in backup vacuum dump; do
  "$GRISTMILL" check $name.db
  "$GRISTMILL" worker same.py --kind same --drain --quiet --store $name.db
  [ "$("$GRISTMILL" jobs --store $name.db --state completed --json | wc -l)" -ge 3 ]
done
venv/bin/datasette jobs.db --get '/jobs/batch.json?_shape=array' | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 1'
