#!/usr/bin/env bash
# Guess: tini and dumb-init, as process 1, let all processes of a container end before the container does.
# Truth: both end when their own child does, and the kernel kills the rest at once, also one that was asked to end and needs a second.
# tini asks its child alone (`tini -g` the child's group too), dumb-init the group. A process of a session of its own is never asked.
# Without an init, a shell as process 1 that runs the program as its child ignores SIGTERM: nobody is asked.
# Version and date: tini 0.19.0, dumb-init 1.2.5 (Debian 12), 2026-11.
# Gristmill: as process 1 it reaps what jobs left and waits for its jobs; docs/fleet.md says not to put a shell before it.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, for a namespace of processes" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 777 .
apt-get download -qq tini dumb-init >/dev/null 2>&1 || { echo "apt-get cannot download tini and dumb-init" >&2; exit 2; }
for package in *.deb; do dpkg -x "$package" root; done
cat >program.py <<'PYTHON'
import signal, sys, time
name, seconds = sys.argv[1], float(sys.argv[2])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
def note(what):
    with open("log", "a") as log:
        print(name, what, file=log)
note("ready")
ends = time.monotonic() + 5
while time.monotonic() < (asked[0] + seconds if asked else ends):
    time.sleep(0.02)
note("ends in peace" if asked else "was not asked")
PYTHON
try() { # NAME READY COMMAND...
  local name=$1 ready=$2 namespace first
  shift 2
  : >log
  unshare --pid --fork --kill-child "$@" & namespace=$!
  for _ in $(seq 600); do [ "$(grep -c ready log)" -ge "$ready" ] && break; sleep 0.05; done
  first=$(cat "/proc/$namespace/task/$namespace/children")
  kill -TERM $first
  wait $namespace || true
  echo "$name: $(grep -v ready log | sort | paste -sd, || true)"
}
three='setsid python3 program.py session 20 & python3 program.py sibling 20 & exec python3 program.py child 0.3'
{
  try "no init" 3 sh -c "$three"
  try "tini" 3 root/usr/bin/tini -- sh -c "$three"
  try "tini -g" 3 root/usr/bin/tini -g -- sh -c "$three"
  try "dumb-init" 3 root/usr/bin/dumb-init sh -c "$three"
  try "a shell" 1 sh -c 'python3 program.py child 0.3; true'
  try "tini and a shell" 1 root/usr/bin/tini -- sh -c 'python3 program.py child 0.3; true'
} 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
no init: child ends in peace
tini: child ends in peace
tini -g: child ends in peace
dumb-init: child ends in peace
a shell: child was not asked
tini and a shell: 
SEEN
)
