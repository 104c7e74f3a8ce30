#!/usr/bin/env bash
# A worker in a batch job of Slurm, on one node, as root: `scancel` lets it finish its running job, and another batch job does the rest.
set -euo pipefail
. ../../findings/slurm/one-node 30
cd "$folder"
# The first job runs until it is told, so that it runs when Slurm cancels the worker.
cat >held.py <<'PYTHON'
import os, time

def main(number):
    while number == 1 and not os.path.exists("go"):
        open("begun", "w").close()
        time.sleep(0.05)
    return number
PYTHON
"$GRISTMILL" submit held 1 2 3 --store jobs.db >/dev/null
cat >batch.sh <<BATCH
#!/bin/bash
exec "$GRISTMILL" worker held.py --kind held --concurrency 1 --drain --store jobs.db
BATCH
wait_for() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; cat ./*.out ./*.log >&2; return 1; }
is_gone() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
first=$(sbatch --parsable --output=first.out batch.sh)
wait_for test -e begun
scancel "$first"
wait_for grep -q -i 'stop\|finish\|wait' first.out
touch go
wait_for is_gone "$first"
"$GRISTMILL" jobs --store jobs.db --json >jobs.jsonl
second=$(sbatch --parsable --output=second.out batch.sh)
wait_for is_gone "$second"
"$GRISTMILL" jobs --store jobs.db --json >ended.jsonl
python3 - <<'PYTHON'
import json

before, after = ([json.loads(line) for line in open(name)] for name in ("jobs.jsonl", "ended.jsonl"))
states = {job["job"]: job["state"] for job in before}
print(states)
assert states["1:0"] == "completed", "scancel lets the running job end"
assert [job["state"] for job in after] == ["completed"] * 3, after
assert all(job["attempt"] == 1 for job in after), after
PYTHON
