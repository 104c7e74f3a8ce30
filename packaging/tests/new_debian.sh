#!/usr/bin/env bash
# Runs a command beside a new Debian: new_debian.sh FOLDER PACKAGES COMMAND [ARGUMENT…]. Needs root and debootstrap. The command
# finds the system in the folder $NEW_DEBIAN, and what it changes there is gone when it ends. FOLDER keeps the base system, with
# PACKAGES (separated by commas), for the next time.
set -euo pipefail

base=$1 packages=$2
shift 2
[ "$(id -u)" = 0 ] || { echo 'error: a new Debian needs root: run with sudo' >&2; exit 1; }
if [ ! -e "$base/ready" ]; then
  rm -rf "$base"
  mkdir -p "$base"
  debootstrap --variant=minbase --include="$packages" bookworm "$base/root" > "$base/log"
  touch "$base/ready"
fi

# A mount namespace of its own: the system's copy, its /proc and its processes are gone with this process.
exec unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  root=$1
  shift
  work=$(mktemp -d)
  mount -t tmpfs tmpfs "$work"
  mkdir "$work/upper" "$work/work" "$work/system"
  mount -t overlay overlay -o lowerdir="$root",upperdir="$work/upper",workdir="$work/work" "$work/system"
  mount -t proc proc "$work/system/proc"
  NEW_DEBIAN=$work/system "$@"
' new_debian "$(realpath "$base")/root" "$@"
