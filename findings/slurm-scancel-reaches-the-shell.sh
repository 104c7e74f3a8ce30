#!/usr/bin/env bash
# Guess: `scancel` sends SIGTERM to what a batch script runs, and SIGKILL after KillWait (30 s by default).
# Truth: where Slurm tracks processes by cgroups, only the shell of the script gets SIGTERM. Without a trap it dies, and Slurm kills the
# rest at once: the program in the script's foreground sees no signal and has no grace. With a trap, the shell has the grace, and the
# program still sees no signal. Only a program that the script starts by `exec` is asked to end.
# Version and date: Slurm 22.05.8 (Debian 12), 2026-11.
# Gristmill: docs/fleet.md tells scripts to start it by `exec`.
set -euo pipefail
. "$(dirname "$0")/slurm/one-node" 5
cat >"$folder/program.py" <<'PYTHON'
import signal, sys, time
log = open(sys.argv[1], "a", buffering=1)
asked = []
def asked_to_end(*_):
    asked.append(time.monotonic())
    print("the program is asked to end", file=log)
signal.signal(signal.SIGTERM, asked_to_end)
print("ready", file=log)
while not asked or time.monotonic() < asked[0] + 2:
    time.sleep(0.1)
print("the program has had 2 s", file=log)
PYTHON
try() { # NAME LINES
  printf '#!/bin/bash\n%s\n' "$2" >"$folder/job.sh"
  : >"$folder/log"
  id=$(sbatch --parsable --output="$folder/out" "$folder/job.sh")
  for _ in $(seq 600); do grep -q ready "$folder/log" && break; sleep 0.1; done
  scancel "$id"
  for _ in $(seq 600); do squeue -h -j "$id" 2>/dev/null | grep -q . || break; sleep 0.1; done
  echo "$1: $(grep -v ready "$folder/log" | paste -sd, || true)"
}
run="python3 $folder/program.py $folder/log"
{
  try "in the foreground" "$run"
  try "behind a trap" "trap 'echo the shell is asked to end >>$folder/log' TERM; $run & wait; wait"
  try "by exec" "exec $run"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
in the foreground: 
behind a trap: the shell is asked to end
by exec: the program is asked to end,the program has had 2 s
SEEN
)
