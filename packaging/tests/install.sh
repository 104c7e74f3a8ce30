#!/usr/bin/env bash
# Installs the Debian package in a new Debian, runs its program and its server there, and removes it:
# install.sh PACKAGE FOLDER. FOLDER keeps the base system for the next time.
set -euo pipefail

package=$(realpath "$1")
if [ -z "${NEW_DEBIAN:-}" ]; then
  exec "$(dirname "$0")/new_debian.sh" "$2" adduser,ca-certificates,curl bash "$0" "$package"
fi
system=$NEW_DEBIAN
address=127.0.0.1:18378
inside() { chroot "$system" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

cp "$package" "$system/tmp/gristmill.deb"
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
