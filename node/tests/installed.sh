#!/usr/bin/env bash
# Installs a tarball into an empty folder, with no compiler on the PATH, and runs the examples of docs/typescript.md from there.
set -euo pipefail
tarball=$(realpath "$1") here=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
for name in node npm sh env uname; do ln -s "$(command -v "$name")" "$folder/bin/$name"; done
cd "$folder"
echo '{"private": true}' >package.json
PATH=$folder/bin npm install --silent --no-audit --no-fund "$tarball"
for name in LICENSE-APACHE LICENSE-MIT; do test -s "$folder/node_modules/gristmill/$name"; done
GRISTMILL_PACKAGE=$folder/node_modules/gristmill node --test "$here/documents.test.mjs"
