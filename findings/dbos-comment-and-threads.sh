#!/usr/bin/env bash
# Guess: a durable flow that was interrupted goes on after a comment of its code was edited, and a flow that waits needs no thread.
# Truth: DBOS makes the version of an application from the text of its workflows, comments included, and goes on with flows of its own
# version alone: after the edit, the flow stays PENDING, without a word. Each flow that waits in `recv` holds a thread: 300 need 300.
# Version and date: dbos 3.4.0 (PyPI) on SQLite, 2026-11.
# Gristmill: a flow without `version` goes on with the code that there is, and fails where its steps differ; one that waits is a row
# (docs/flows.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check dbos==3.4.0
cd "$folder"
cat >app.py <<'PYTHON'
import os, sys, threading, time
from dbos import DBOS
place = f"sqlite:///{os.getcwd()}/{sys.argv[1]}"
DBOS(config={"name": "app", "system_database_url": place, "run_admin_server": False, "log_level": "ERROR"})
begun = threading.Semaphore(0)
@DBOS.workflow()
def flow():
    # the first text
    begun.release()
    DBOS.recv("go", timeout_seconds=float(sys.argv[3]))
DBOS.launch()
count = int(sys.argv[2])
for _ in range(count):
    DBOS.start_workflow(flow)
for _ in range(count):
    begun.acquire()
if count == 0:
    ends = time.monotonic() + 30
    while (states := [one.status for one in DBOS.list_workflows()]) != ["SUCCESS"] and time.monotonic() < ends:
        time.sleep(0.1)
    print(sys.argv[4], *states)
elif count > 1:
    ends = time.monotonic() + 30
    while threading.active_count() < 300 and time.monotonic() < ends:
        time.sleep(0.1)
    print("threads of 300 waits:", "300 or more" if threading.active_count() >= 300 else threading.active_count())
sys.stdout.flush()
os._exit(0)
PYTHON
{
  venv/bin/python app.py same.db 1 3
  venv/bin/python app.py same.db 0 3 "the same text:"
  venv/bin/python app.py edited.db 1 3
  sed -i 's/the first text/another text/' app.py
  venv/bin/python app.py edited.db 0 3 "another comment:"
  venv/bin/python app.py many.db 300 600
} 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
the same text: SUCCESS
another comment: PENDING
threads of 300 waits: 300 or more
SEEN
)
