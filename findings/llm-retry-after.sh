#!/usr/bin/env bash
# Guess: the providers' own packages wait as long as a 429 with `Retry-After: 90` says.
# Truth: of nine, three wait 90 s. Cohere's waits 60 s. OpenAI's for Node, Groq's and the AI SDK take no header above a minute, and ask
# again within 10 s. Mistral's and Google's do not ask again at all, whatever the header
# says. None sends an idempotency key. OpenAI's package waits for 90 s in Python, and not in Node.
# Version and date: as pinned below, 2026-11.
# Gristmill: its own client waits as long as the header says, up to an hour. Where a job calls these packages, set their retries to 0
# and raise `retry_after` with the header's seconds (docs/llm.md): the job waits without holding a process.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  openai==3.57.0 anthropic==2.14.0 mistralai==3.7.0 google-genai==3.6.1 cohere==7.3.1 groq==1.7.0
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" \
  openai@7.57.0 @anthropic-ai/sdk@1.14.0 ai@7.0.173 @ai-sdk/openai@3.0.141
cat >"$folder/server.py" <<'PYTHON'
"""Refuses the first request for each path by 429, and tells how long each client waited and which idempotency key it sent."""
import http.server, json, sys, time

def in_words(waited, told):
    """A busy machine makes a wait longer, and never shorter."""
    if waited > told - 0.1:
        return "waits"
    if waited > 59.9:
        return "a minute"
    return "under 10 s" if waited < 10 else f"{waited:.0f} s"

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = {}

    def log_message(self, *_):
        pass

    def answer(self, status, data, headers=()):
        self.send_response(status)
        for name, value in [*headers, ("content-type", "application/json"), ("content-length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        seconds = self.path.split("/")[1]
        calls = self.seen.setdefault(seconds, [])
        calls.append((time.monotonic(), self.headers.get("idempotency-key")))
        if len(calls) == 1:
            self.answer(429, b'{"error": {"message": "slow down", "type": "rate_limit"}}', [("retry-after", seconds)])
        else:
            self.answer(200, b"{}")

    def do_GET(self):
        told = []
        for seconds in ("3", "90"):
            calls = self.seen.pop(seconds, [])
            waits = [in_words(after[0] - before[0], int(seconds)) for before, after in zip(calls, calls[1:2])]
            waits = waits or ["no second try" if calls else "never sent"]
            told.append(f"asked for {seconds} s: {waits[0]}" + "".join(", with a key" for _, key in calls[:1] if key))
        self.answer(200, "; ".join(told).encode())

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON
cat >"$folder/ask.py" <<'PYTHON'
import concurrent.futures, sys, urllib.request
import anthropic, cohere, groq, mistralai.client, openai
from google import genai

messages = [{"role": "user", "content": "hi"}]
def google(url):
    client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=url))
    client.models.generate_content(model="m", contents="hi")  # A client that nobody holds is closed before it sends.

calls = {
    "PyPI openai": lambda url: openai.OpenAI(api_key="k", base_url=url + "/v1").responses.create(model="m", input="hi"),
    "PyPI anthropic": lambda url: anthropic.Anthropic(api_key="k", base_url=url).messages.create(
        model="m", max_tokens=9, messages=messages
    ),
    "PyPI groq": lambda url: groq.Groq(api_key="k", base_url=url).chat.completions.create(model="m", messages=messages),
    "PyPI cohere": lambda url: cohere.ClientV2("k", base_url=url).chat(model="m", messages=messages),
    "PyPI mistralai": lambda url: mistralai.client.Mistral(api_key="k", server_url=url).chat.complete(model="m", messages=messages),
    "PyPI google-genai": google,
}
base = f"http://127.0.0.1:{sys.argv[1]}"

def ask(call, seconds):
    try:
        call(f"{base}/{seconds}")
    except Exception:
        pass  # The empty answer to the second try is not what all of them expect.

for name, call in calls.items():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(ask, [call, call], ["3", "90"]))
    print(f"{name}: {urllib.request.urlopen(base).read().decode()}", flush=True)
PYTHON
cat >"$folder/ask.mjs" <<'SCRIPT'
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { generateText } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
const base = `http://127.0.0.1:${process.argv[2]}`;
const messages = [{ role: 'user', content: 'hi' }];
const calls = {
  'npm openai': (url) => new OpenAI({ apiKey: 'k', baseURL: `${url}/v1` }).responses.create({ model: 'm', input: 'hi' }),
  'npm @anthropic-ai/sdk': (url) => new Anthropic({ apiKey: 'k', baseURL: url }).messages.create({ model: 'm', max_tokens: 9, messages }),
  'npm ai': (url) => generateText({ model: createOpenAI({ apiKey: 'k', baseURL: `${url}/v1` })('m'), prompt: 'hi' }),
};
for (const [name, call] of Object.entries(calls)) {
  await Promise.all(['3', '90'].map((seconds) => call(`${base}/${seconds}`).catch(() => {})));
  console.log(`${name}: ${await (await fetch(base)).text()}`);
}
SCRIPT
exec 3< <(exec "$folder/venv/bin/python" "$folder/server.py" 2>/dev/null)
server=$!
read -r port <&3
{
  "$folder/venv/bin/python" "$folder/ask.py" "$port"
  node "$folder/ask.mjs" "$port"
} 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
PyPI openai: asked for 3 s: waits; asked for 90 s: waits
PyPI anthropic: asked for 3 s: waits; asked for 90 s: waits
PyPI groq: asked for 3 s: waits; asked for 90 s: under 10 s
PyPI cohere: asked for 3 s: waits; asked for 90 s: a minute
PyPI mistralai: asked for 3 s: no second try; asked for 90 s: no second try
PyPI google-genai: asked for 3 s: no second try; asked for 90 s: no second try
npm openai: asked for 3 s: waits; asked for 90 s: under 10 s
npm @anthropic-ai/sdk: asked for 3 s: waits; asked for 90 s: waits
npm ai: asked for 3 s: waits; asked for 90 s: under 10 s
SEEN
)
