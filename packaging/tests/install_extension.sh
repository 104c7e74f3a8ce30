#!/usr/bin/env bash
# Installs the Debian package of the extension in a new Debian with PostgreSQL 15, aggregates a table in batches, and removes
# it: install_extension.sh PACKAGE FOLDER. FOLDER keeps the base system for the next time.
set -euo pipefail

package=$(realpath "$1")
if [ -z "${NEW_DEBIAN:-}" ]; then
  exec "$(dirname "$0")/new_debian.sh" "$2" postgresql-15 bash "$0" "$package"
fi
system=$NEW_DEBIAN
path=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin
inside() { chroot "$system" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=$path "$@"; }
as_postgres() { inside setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
sql() { as_postgres psql --host=/tmp --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --command="$1" postgres; }
fail() { echo "error: $package: $*" >&2; exit 1; }

cp "$package" "$system/tmp/extension.deb"
inside dpkg --install /tmp/extension.deb
as_postgres initdb --pgdata=/tmp/data --auth=trust --no-sync --no-instructions > "$system/tmp/initdb.log"
as_postgres pg_ctl --pgdata=/tmp/data --wait --silent --log=/tmp/log start \
  --options="-c listen_addresses= -c unix_socket_directories=/tmp -c shared_preload_libraries=pg_batchexec"

sql "CREATE EXTENSION pg_batchexec"
sql "SELECT * FROM pg_stat_batchexec" > /dev/null
sql "CREATE TABLE readings AS SELECT n % 7 AS kind, n AS reading FROM generate_series(1, 100000) n; ANALYZE readings"
query="SELECT sum(reading) FROM readings WHERE kind = 3"
sql "EXPLAIN (COSTS OFF) $query" | grep --quiet "Custom Scan (BatchAgg)" || fail "the plan has no batches"
batched=$(sql "$query")
stock=$(sql "SET batchexec.enabled = off; $query")
[ "$batched" = "$stock" ] || fail "batches give $batched, and the stock server $stock"

inside dpkg --install /tmp/extension.deb
inside dpkg --purge "$(dpkg-deb --field "$package" Package)"
[ ! -e "$system/usr/lib/postgresql/15/lib/pg_batchexec.so" ] || fail "its library is left"
as_postgres pg_ctl --pgdata=/tmp/data --mode=immediate --silent stop
echo "$package: installed, aggregated in batches, installed again and purged"
