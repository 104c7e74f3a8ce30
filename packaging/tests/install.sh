#!/usr/bin/env bash
# Installs the Debian package in a new Debian, runs its program and its server there, and removes it:
# install.sh PACKAGE FOLDER. Needs root and debootstrap. FOLDER keeps the base system for the next time.
set -euo pipefail

package=$(realpath "$1")
base=$2
address=127.0.0.1:18378
[ "$(id -u)" = 0 ] || { echo 'error: a new Debian needs root: run with sudo' >&2; exit 1; }
if [ ! -e "$base/ready" ]; then
  rm -rf "$base"
  mkdir -p "$base"
  debootstrap --variant=minbase --include=adduser,ca-certificates,curl bookworm "$base/root" > "$base/log"
  touch "$base/ready"
fi

# A mount namespace of its own: the system's copy and its /proc are gone with this process.
exec unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  package=$1 root=$2/root address=$3
  work=$(mktemp -d)
  mount -t tmpfs tmpfs "$work"
  mkdir "$work/upper" "$work/work" "$work/system"
  mount -t overlay overlay -o lowerdir="$root",upperdir="$work/upper",workdir="$work/work" "$work/system"
  system=$work/system
  mount -t proc proc "$system/proc"
  cp "$package" "$system/tmp/gristmill.deb"
  inside() { chroot "$system" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

  inside dpkg --install /tmp/gristmill.deb
  inside gristmill --version
  [ "$(inside stat --format=%U:%G:%a /etc/gristmill/server.env)" = root:gristmill:640 ]
  inside install -d -o gristmill -g gristmill /var/lib/gristmill

  inside setpriv --reuid=gristmill --regid=gristmill --clear-groups env HOME=/ \
    GRISTMILL_STORE=/var/lib/gristmill/gristmill.db gristmill serve --mode server --quiet --listen "$address" &
  inside curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused "http://$address/readyz"
  inside curl --silent --fail "http://$address/" | grep --quiet "<title>Gristmill</title>"
  kill $!
  wait $! || true

  inside dpkg --install /tmp/gristmill.deb
  inside dpkg --purge gristmill
  [ ! -e "$system/usr/bin/gristmill" ] && [ ! -e "$system/etc/gristmill/server.env" ]
  [ -e "$system/var/lib/gristmill/gristmill.db" ]
  echo "$package: installed, served, installed again and purged; its store is kept"
' install "$package" "$(realpath "$base")" "$address"
