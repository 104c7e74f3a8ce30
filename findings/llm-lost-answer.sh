#!/usr/bin/env bash
# Guess: a provider's package does not repeat a POST whose answer was lost, because the provider may have done (and charged) it.
# Truth: OpenAI's, Anthropic's and Groq's send it three times, also one that makes a batch or uploads a file for one, and without a key
# by which the provider could know the second as the first. Cohere's, Mistral's and Google's send it once.
# Version and date: as pinned below, 2026-11.
# Gristmill: set the package's retries to 0 inside a job, and let the job's own attempts count (docs/llm.md has the table).
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  openai==3.57.0 anthropic==2.14.0 mistralai==3.7.0 google-genai==3.6.1 cohere==7.3.1 groq==1.7.0
cat >"$folder/ask.py" <<'PYTHON'
"""Reads each request whole and closes the connection; tells how often each package sent it."""
import http.server, io, threading
import anthropic, cohere, groq, mistralai.client, openai
from cohere.batches import Batch
from google import genai

seen = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        seen.append(self.headers.get("idempotency-key") or self.headers.get("x-idempotency-key"))
        self.close_connection = True

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
messages = [{"role": "user", "content": "hi"}]
batch = {"custom_id": "1", "params": {"model": "m", "max_tokens": 9, "messages": messages}}
file = ("a.jsonl", b"{}\n")
openai, groq = openai.OpenAI(api_key="k", base_url=url + "/v1"), groq.Groq(api_key="k", base_url=url)
anthropic = anthropic.Anthropic(api_key="k", base_url=url)
cohere, mistral = cohere.ClientV2("k", base_url=url), mistralai.client.Mistral(api_key="k", server_url=url)
google = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
window = {"input_file_id": "f", "completion_window": "24h", "endpoint": "/v1/chat/completions"}
calls = {
    "openai": [
        lambda: openai.chat.completions.create(model="m", messages=messages),
        lambda: openai.batches.create(**window),
        lambda: openai.files.create(file=file, purpose="batch"),
    ],
    "anthropic": [
        lambda: anthropic.messages.create(model="m", max_tokens=9, messages=messages),
        lambda: anthropic.messages.batches.create(requests=[batch]),
    ],
    "groq": [
        lambda: groq.chat.completions.create(model="m", messages=messages),
        lambda: groq.batches.create(**window),
        lambda: groq.files.create(file=file, purpose="batch"),
    ],
    "cohere": [
        lambda: cohere.chat(model="m", messages=messages),
        lambda: cohere.batches.create(request=Batch(name="n", input_dataset_id="d", model="m")),
        lambda: cohere.datasets.create(name="d", type="batch-chat-v2-input", data=io.BytesIO(file[1])),
    ],
    "mistralai": [
        lambda: mistral.chat.complete(model="m", messages=messages),
        lambda: mistral.batch.jobs.create(endpoint="/v1/chat/completions", input_files=["f"], model="m"),
        lambda: mistral.files.upload(file={"file_name": file[0], "content": file[1]}, purpose="batch"),
    ],
    "google-genai": [
        lambda: google.models.generate_content(model="m", contents="hi"),
        lambda: google.batches.create(model="m", src=[{"contents": "hi"}]),
        lambda: google.files.upload(file=io.BytesIO(file[1]), config={"mime_type": "jsonl"}),
    ],
}
for name, sends in calls.items():
    for what, send in zip(["a call", "a batch", "a file"], sends):
        seen.clear()
        try:
            send()
        except Exception:
            pass
        print(f"{name}, {what}: sent {len(seen)} times, {'with' if any(seen) else 'without'} a key", flush=True)
PYTHON
"$folder/venv/bin/python" "$folder/ask.py" 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
openai, a call: sent 3 times, without a key
openai, a batch: sent 3 times, without a key
openai, a file: sent 3 times, without a key
anthropic, a call: sent 3 times, without a key
anthropic, a batch: sent 3 times, without a key
groq, a call: sent 3 times, without a key
groq, a batch: sent 3 times, without a key
groq, a file: sent 3 times, without a key
cohere, a call: sent 1 times, without a key
cohere, a batch: sent 1 times, without a key
cohere, a file: sent 1 times, without a key
mistralai, a call: sent 1 times, without a key
mistralai, a batch: sent 1 times, without a key
mistralai, a file: sent 1 times, without a key
google-genai, a call: sent 1 times, without a key
google-genai, a batch: sent 1 times, without a key
google-genai, a file: sent 1 times, without a key
SEEN
)
