#!/usr/bin/env bash
# Guess: `job.done` of Google's package becomes true in each state in which a batch has ended, so that `while not job.done` ends.
# Truth: it stays false in JOB_STATE_PARTIALLY_SUCCEEDED, a state of the package itself ("some results may be missing due to
# errors"), and in any state that the package does not know. Anthropic's package has one state for all ends, `ended`: also of a
# batch whose requests all failed.
# Version and date: google-genai 3.6.1, anthropic 2.14.0 (PyPI), 2026-11.
# Gristmill: docs/llm.md tells what ends a batch, by package, and to compare the numbers of results and requests.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check google-genai==3.6.1 anthropic==2.14.0
cat >ask.py <<'PYTHON'
import http.server, json, threading
import anthropic
from google import genai

state = None
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        counts = dict.fromkeys(["canceled", "expired", "processing", "succeeded"], 0) | {"errored": 7}
        answer = {"id": "b", "type": "message_batch", "processing_status": "ended", "request_counts": counts}
        if "batchPredictionJobs" in self.path:
            answer = {"name": "projects/p/locations/l/batchPredictionJobs/1", "state": state}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
google = genai.Client(vertexai=True, api_key="k", http_options=genai.types.HttpOptions(base_url=url))
for state in ["RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"]:
    state = f"JOB_STATE_{state}"
    job = google.batches.get(name="projects/p/locations/l/batchPredictionJobs/1")
    print(f"{job.state.name}: {'done' if job.done else 'not done'}")
batch = anthropic.Anthropic(api_key="k", base_url=url).messages.batches.retrieve("b")
print(f"{batch.request_counts.errored} of 7 failed: {batch.processing_status}")
PYTHON
venv/bin/python ask.py | tee /dev/stderr | diff - <(cat <<'SEEN'
JOB_STATE_RUNNING: not done
JOB_STATE_SUCCEEDED: done
JOB_STATE_FAILED: done
JOB_STATE_CANCELLED: done
JOB_STATE_EXPIRED: done
JOB_STATE_PARTIALLY_SUCCEEDED: not done
7 of 7 failed: ended
SEEN
)
