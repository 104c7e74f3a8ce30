#!/bin/bash
# How fast one agent drains a server over HTTP with a Python script that returns its payload: in batches, and one job
# at a time. On a new SQLite store on disk, fsync on. Each is run ROUNDS times after one to warm up; medians are
# printed. GRISTMILL names the program; BATCHED and SINGLE say how many jobs each gets.
set -euo pipefail
: "${GRISTMILL:?name the program}" "${ROUNDS:=3}" "${BATCHED:=200000}" "${SINGLE:=5000}"

folder=$(mktemp -d -p "${FOLDER:-/var/tmp}")
server=
trap 'kill "$server" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo 'def main(payload): return payload' > identity.py
python3 -c "
for number in range($BATCHED): print('\"' + str(number).rjust(98, 'x') + '\"')" > items.jsonl

# drain JOBS ARGUMENTS...: jobs a second of one agent.
drain() {
    local jobs=$1; shift
    rm -f gristmill.db* said
    head -n "$jobs" items.jsonl > some.jsonl
    "$GRISTMILL" submit identity --input some.jsonl > /dev/null 2>&1
    "$GRISTMILL" serve --listen 127.0.0.1:0 2> said & server=$!
    until url=$(grep -o 'http://[0-9.:]*' said); do kill -0 "$server"; done
    local begun ended completed
    begun=$(date +%s%N)
    completed=$("$GRISTMILL" agent identity.py --kind identity --drain --json --quiet --base-url "$url" "$@")
    ended=$(date +%s%N)
    kill "$server"; wait "$server" 2>/dev/null || true
    grep -q "\"completed\":$jobs,\|\"completed\":$jobs}" <<< "$completed" || { echo "not all done: $completed" >&2; exit 1; }
    echo $((jobs * 1000000000 / (ended - begun)))
}

median() { sort -n | sed -n "$(((ROUNDS + 1) / 2))p"; }

drain "$BATCHED" --batch 10000 > /dev/null
batched=$(for _ in $(seq "$ROUNDS"); do drain "$BATCHED" --batch 10000; done | median)
single=$(for _ in $(seq "$ROUNDS"); do drain "$SINGLE"; done | median)
echo "agent --batch 10000: $batched jobs/s ($BATCHED jobs of 100 bytes, with the start and end of the agent)"
echo "agent:               $single jobs/s ($SINGLE jobs)"
awk -v batched="$batched" -v single="$single" 'BEGIN { printf "ratio:               %.1f\n", batched / single }'
