#!/usr/bin/env bash
# Guess: a provider's package does not repeat a POST whose answer was lost, because the provider may have done (and charged) it.
# Truth: OpenAI's, Anthropic's and Groq's send it three times, also one that makes a batch, and without a key by which the provider could
# know the second as the first. Cohere's, Mistral's and Google's send it once.
# Version and date: as pinned below, 2026-11.
# Gristmill: docs/memory.md has the table. Set the package's retries to 0 inside a job, and let the job's own attempts count.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  openai==3.57.0 anthropic==2.14.0 mistralai==3.7.0 google-genai==3.6.1 cohere==7.3.1 groq==1.7.0
cat >"$folder/ask.py" <<'PYTHON'
"""Reads each request whole and closes the connection; tells how often each package sent it."""
import http.server, threading
import anthropic, cohere, groq, mistralai.client, openai
from google import genai

seen = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        seen.append(self.headers.get("idempotency-key") or self.headers.get("x-idempotency-key"))
        self.close_connection = True

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
messages = [{"role": "user", "content": "hi"}]
batch = {"custom_id": "1", "params": {"model": "m", "max_tokens": 9, "messages": messages}}
def google():
    client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
    client.models.generate_content(model="m", contents="hi")  # A client that nobody holds is closed before it sends.

calls = {
    "openai, a batch": lambda: openai.OpenAI(api_key="k", base_url=url + "/v1").batches.create(
        input_file_id="file-1", endpoint="/v1/responses", completion_window="24h"
    ),
    "anthropic, a batch": lambda: anthropic.Anthropic(api_key="k", base_url=url).messages.batches.create(requests=[batch]),
    "groq": lambda: groq.Groq(api_key="k", base_url=url).chat.completions.create(model="m", messages=messages),
    "cohere": lambda: cohere.ClientV2("k", base_url=url).chat(model="m", messages=messages),
    "mistralai": lambda: mistralai.client.Mistral(api_key="k", server_url=url).chat.complete(model="m", messages=messages),
    "google-genai": google,
}
for name, call in calls.items():
    seen.clear()
    try:
        call()
    except Exception:
        pass
    print(f"{name}: sent {len(seen)} times, {'with' if any(seen) else 'without'} a key", flush=True)
PYTHON
"$folder/venv/bin/python" "$folder/ask.py" 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
openai, a batch: sent 3 times, without a key
anthropic, a batch: sent 3 times, without a key
groq: sent 3 times, without a key
cohere: sent 1 times, without a key
mistralai: sent 1 times, without a key
google-genai: sent 1 times, without a key
SEEN
)
