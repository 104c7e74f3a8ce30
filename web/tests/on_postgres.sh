#!/usr/bin/env bash
# Runs a command with WEB_STORE set to a private PostgreSQL that is gone afterwards: on_postgres.sh COMMAND…
set -euo pipefail
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort --version-sort | tail -n 1)
folder=$(mktemp --directory)
as=()
if [ "$(id -u)" = 0 ]; then
  # PostgreSQL does not run as root.
  chown postgres "$folder"
  as=(runuser -u postgres --)
fi
trap '"${as[@]}" "$bin/pg_ctl" --pgdata="$folder/data" --mode=immediate --silent stop; rm -rf "$folder"' EXIT
"${as[@]}" "$bin/initdb" --pgdata="$folder/data" --username=postgres --auth=trust --no-sync > "$folder/../$(basename "$folder").log"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${as[@]}" "$bin/pg_ctl" --pgdata="$folder/data" --wait --silent --log="$folder/log" \
  --options="-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$folder -c fsync=off" start
rm -f "$folder/../$(basename "$folder").log"
PATH="$bin:$PATH" WEB_STORE="postgresql://postgres@127.0.0.1:$port/postgres" "$@"
