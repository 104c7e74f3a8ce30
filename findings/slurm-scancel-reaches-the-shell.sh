#!/usr/bin/env bash
# Guess: `scancel` sends SIGTERM to what a batch script runs, and SIGKILL after KillWait (30 s by default).
# Truth: where Slurm tracks processes by cgroups, only the shell of the script gets SIGTERM. Without a trap it dies, and Slurm kills the
# rest at once: the program in the script's foreground sees no signal and has no grace. With a trap, the shell has the grace, and the
# program still sees no signal. Only a program that the script starts by `exec` is asked to end.
# Version and date: Slurm 22.05.8 (Debian 12), 2026-11.
# Gristmill: docs/fleet.md tells scripts to start it by `exec`.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "needs root, for the daemons of Slurm" >&2; exit 2; }
apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null 2>&1
folder=$(mktemp -d)
end() {
  for daemon in $(cat "$folder"/*.pid 2>/dev/null); do
    kill "$daemon" && tail --pid="$daemon" -f /dev/null
  done
  rm -rf "$folder"
}
trap end EXIT
chmod 755 "$folder"
mkdir "$folder/state" "$folder/spool"
host=$(hostname)
cat >"$folder/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host
SlurmUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldPort=17817
SlurmdPort=17818
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=5
NodeName=$host CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES
CONF
if [ -d /sys/fs/cgroup/freezer ]; then
  echo CgroupPlugin=cgroup/v1
else
  printf 'CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n'
fi >"$folder/cgroup.conf"
export SLURM_CONF=$folder/slurm.conf
[ -e /etc/munge/munge.key ] || mungekey --create
install -d -o munge /run/munge
chown munge: /etc/munge/munge.key
pgrep -x munged >/dev/null || su -s /bin/sh munge -c munged
slurmctld -f "$SLURM_CONF" 2>/dev/null
slurmd -f "$SLURM_CONF" 2>/dev/null
for _ in $(seq 100); do sinfo -h 2>/dev/null | grep -q idle && break; sleep 0.2; done

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
  for _ in $(seq 100); do grep -q ready "$folder/log" && break; sleep 0.1; done
  scancel "$id"
  for _ in $(seq 200); do squeue -h -j "$id" 2>/dev/null | grep -q . || break; sleep 0.1; done
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
