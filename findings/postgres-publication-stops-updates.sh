#!/usr/bin/env bash
# Guess: CREATE PUBLICATION … FOR ALL TABLES changes nothing for the programs that write, at least while `wal_level` is `replica` and
# nobody subscribes.
# Truth: from then on, PostgreSQL refuses each UPDATE and DELETE of a table without a primary key (or other replica identity), also of
# tables of other programs, and although it has just warned that the publication cannot work at this `wal_level`.
# Version and date: PostgreSQL 15 (Debian 12), 2026-11.
# Gristmill: each of its tables has a primary key. packaging/neighbours/publication.sh runs jobs in a database with such a
# publication.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, to run PostgreSQL as postgres" >&2; exit 2; }
apt-get install -y -qq --no-install-recommends postgresql >/dev/null 2>&1 || true
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
folder=$(mktemp -d)
trap 'as "$programs/pg_ctl" -D "$folder/data" -m fast stop >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
chown postgres "$folder" && cd "$folder"
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as "$programs/initdb" -D data -A trust >/dev/null
as "$programs/pg_ctl" -D data -o "-k $folder -c listen_addresses=" -l log -w start >/dev/null
ask() { psql -X -h "$folder" -U postgres -Atqc "$1" 2>&1 | grep -v HINT || true; }
ask "CREATE TABLE bare (n int); CREATE TABLE keyed (n int PRIMARY KEY); INSERT INTO bare VALUES (1); INSERT INTO keyed VALUES (1)"
{
  ask "CREATE PUBLICATION everything FOR ALL TABLES"
  ask "UPDATE bare SET n = 2"
  ask "DELETE FROM bare"
  ask "UPDATE keyed SET n = 2 RETURNING 'keyed: updated'"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
WARNING:  wal_level is insufficient to publish logical changes
ERROR:  cannot update table "bare" because it does not have a replica identity and publishes updates
ERROR:  cannot delete from table "bare" because it does not have a replica identity and publishes deletes
keyed: updated
SEEN
)
