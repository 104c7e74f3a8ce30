#!/usr/bin/env bash
# Installs the tarballs of the package and of the program into an empty folder, with no compiler on the PATH, and runs the program and
# the examples of docs/typescript.md from there.
set -euo pipefail
package=$(realpath "$1") program=$(realpath "$2") here=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
for name in node npm sh env uname; do ln -s "$(command -v "$name")" "$folder/bin/$name"; done
cd "$folder"
echo '{"private": true}' >package.json
PATH=$folder/bin npm install --silent --no-audit --no-fund "$package" "$program"
for name in LICENSE-APACHE LICENSE-MIT; do test -s "$folder/node_modules/gristmill/$name"; done
PATH=$folder/bin npm exec --no -- gristmill --version
GRISTMILL_PACKAGE=$folder/node_modules/gristmill node --test "$here/documents.test.mjs"
