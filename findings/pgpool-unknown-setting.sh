#!/usr/bin/env bash
# Guess: Pgpool-II's configuration looks like PostgreSQL's, so an unknown setting stops its start, as there.
# Truth: It starts without a word and takes its default: with `unix_socket_directories` (PostgreSQL's name, and Pgpool-II's from
# 4.4 on) instead of 4.3's `socket_dir`, it listens in /var/run/postgresql, where nobody looks for it.
# Version and date: Pgpool-II 4.3.5 of Debian 12, 2026-11-27.
# Gristmill: `make test-poolers` names `socket_dir`. docs/operations.md says which settings of poolers matter.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -INT "$pooler" 2>/dev/null || true; wait "$pooler" 2>/dev/null || true; rm -rf "$folder"' EXIT
pooler=
cd "$folder"
apt-get download -qq pgpool2 libpgpool2 >/dev/null 2>&1 || { echo "apt-get cannot download pgpool2"; exit 1; }
for package in *.deb; do dpkg -x "$package" root; done
program=root/usr/sbin/pgpool
export LD_LIBRARY_PATH="$folder/root/usr/lib:$(echo "$folder"/root/usr/lib/*-linux-gnu)"
"$program" --version 2>&1
cat > settings <<CONF
no_such_setting = 'x'
unix_socket_directories = '$folder'
port = 16432
listen_addresses = ''
pcp_socket_dir = '$folder'
pcp_port = 16433
pcp_listen_addresses = ''
pid_file_name = '$folder/pid'
logdir = '$folder'
backend_hostname0 = '127.0.0.1'
backend_port0 = 15432
backend_clustering_mode = 'raw'
backend_flag0 = 'ALWAYS_PRIMARY'
sr_check_period = 0
num_init_children = 2
enable_pool_hba = off
CONF
"$program" -n -f settings >log 2>&1 &
pooler=$!
for _ in $(seq 600); do grep -q "successfully started" log && break; sleep 0.1; done
grep -q "successfully started" log || { cat log; exit 1; }
echo "it has started; lines of its log that name the unknown settings: $(grep -c 'no_such_setting\|unix_socket_directories' log || true)"
! grep -q 'no_such_setting\|unix_socket_directories' log
[ ! -S "$folder/.s.PGSQL.16432" ] && [ -S /var/run/postgresql/.s.PGSQL.16432 ] || [ -S /tmp/.s.PGSQL.16432 ]
echo "its socket is not in the folder that was named"
