#!/usr/bin/env bash
# Jobs run in a database with a publication FOR ALL TABLES, and a copy by pg_dump while they run can be opened.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, to run PostgreSQL as postgres"; exit 2; }
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
folder=$(mktemp -d)
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
trap 'as "$programs/pg_ctl" -D "$folder/data" -m fast stop >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
chown postgres "$folder" && cd "$folder"
as "$programs/initdb" -D data -A trust >/dev/null
as "$programs/pg_ctl" -D data -o "-k $folder -h 127.0.0.1 -p 25998 -c wal_level=logical" -l log -w start >/dev/null
url=postgresql://postgres@127.0.0.1:25998
psql -Xqc "CREATE PUBLICATION everything FOR ALL TABLES" -c "CREATE DATABASE restored" $url/postgres
echo 'def main(number): return number' >same.py
"$GRISTMILL" submit same $(seq 200) --store $url/postgres >/dev/null
"$GRISTMILL" worker same.py --kind same --drain --quiet --store $url/postgres & worker=$!
"$programs/pg_dump" --schema=gristmill --format=custom --file=jobs.dump $url/postgres
wait $worker
"$GRISTMILL" check $url/postgres
"$programs/pg_restore" --dbname=$url/restored jobs.dump
"$GRISTMILL" check $url/restored
"$GRISTMILL" worker same.py --kind same --drain --quiet --store $url/restored
for name in postgres restored; do
  [ "$("$GRISTMILL" jobs --store $url/$name --state completed --limit 500 --json | wc -l)" -ge 200 ] || { echo "$name lost jobs"; exit 1; }
done
