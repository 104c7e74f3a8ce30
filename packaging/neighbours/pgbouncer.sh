#!/usr/bin/env bash
# Jobs run through PgBouncer in both modes; `make test-poolers` runs the whole suite through it.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, to run PostgreSQL as postgres"; exit 2; }
PATH=$PATH:/usr/sbin
command -v pgbouncer >/dev/null || { echo "apt-get install pgbouncer"; exit 2; }
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
folder=$(mktemp -d)
pooler=
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
end() {
  [ -z "$pooler" ] || { kill "$pooler"; wait; }
  as "$programs/pg_ctl" -D "$folder/data" -m fast stop >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap end EXIT
chown postgres "$folder" && cd "$folder"
as "$programs/initdb" -D data -A trust >/dev/null
as "$programs/pg_ctl" -D data -o "-k $folder -h 127.0.0.1 -p 25997" -l log -w start >/dev/null
echo '"postgres" ""' >users
echo 'def main(number): return number' >same.py
for mode in transaction session; do
  cat >bouncer.ini <<CONF
[databases]
* = host=127.0.0.1 port=25997
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 26432
unix_socket_dir =
auth_type = trust
auth_file = $folder/users
pool_mode = $mode
CONF
  # Without a function between, which would be the process that the signal reaches.
  setpriv --reuid=postgres --regid=postgres --clear-groups pgbouncer -q bouncer.ini & pooler=$!
  for _ in $(seq 100); do psql -Xqc "SELECT 1" postgresql://postgres@127.0.0.1:26432/postgres >/dev/null 2>&1 && break; sleep 0.1; done
  url="postgresql://postgres@127.0.0.1:26432/postgres?pooler=$mode"
  "$GRISTMILL" submit same 1 2 3 --store "$url" >/dev/null
  "$GRISTMILL" worker same.py --kind same --drain --quiet --store "$url"
  "$GRISTMILL" check "$url"
  kill $pooler; wait $pooler || true; pooler=
done
[ "$("$GRISTMILL" jobs --store postgresql://postgres@127.0.0.1:25997/postgres --state completed --json | wc -l)" -ge 6 ]
