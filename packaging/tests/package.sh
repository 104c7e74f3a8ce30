#!/usr/bin/env bash
# Checks a Debian package of the program: package.sh PACKAGE. Needs dpkg-deb and systemd-analyze; installs nothing.
set -euo pipefail

package=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "error: $package: $*" >&2
  exit 1
}

dpkg-deb --field "$package" Depends | grep --quiet 'libc6 (>= ' || fail 'it does not depend on the C library'
[ "$(dpkg-deb --field "$package" Package)" = gristmill ] || fail 'it has another name'

dpkg-deb --contents "$package" > "$work/contents"
awk '$2 != "root/root" { print; bad = 1 } END { exit bad }' "$work/contents" || fail 'these files do not belong to root'
while read -r mode path; do
  grep --quiet --fixed-strings -- "$mode" <(grep --fixed-strings -- " .$path" "$work/contents") || fail "$path is not there as $mode"
done << 'END'
-rwxr-xr-x /usr/bin/gristmill
-rw-r----- /etc/gristmill/server.env
-rw-r--r-- /usr/lib/systemd/system/gristmill-server.service
-rw-r--r-- /usr/lib/systemd/system/gristmill-agent@.service
-rw-r--r-- /usr/share/man/man1/gristmill.1.gz
-rw-r--r-- /usr/share/bash-completion/completions/gristmill
-rw-r--r-- /usr/share/zsh/vendor-completions/_gristmill
-rw-r--r-- /usr/share/fish/vendor_completions.d/gristmill.fish
-rw-r--r-- /usr/share/doc/gristmill/copyright
-rw-r--r-- /usr/share/doc/gristmill/changelog.gz
-rw-r--r-- /usr/share/doc/gristmill/examples/gristmill.rules.yml
-rw-r--r-- /usr/share/doc/gristmill/examples/gristmill.json
END

dpkg-deb --raw-extract "$package" "$work/root"
(cd "$work/root" && md5sum --quiet --check DEBIAN/md5sums) || fail 'a file differs from its checksum'
for script in postinst prerm postrm; do
  sh -n "$work/root/DEBIAN/$script" || fail "$script is not a shell script"
done

program=$work/root/usr/bin/gristmill
version=$("$program" --version | cut -d ' ' -f 2)
[ "$(dpkg-deb --field "$package" Version)" = "$version-1" ] || fail "it has another version than its program, $version"
gzip --decompress --stdout "$work/root/usr/share/man/man1/gristmill.1.gz" | grep --quiet '^\.TH gristmill 1' || fail 'the manual is empty'
bash -n "$work/root/usr/share/bash-completion/completions/gristmill" || fail 'the completion is not a script'

# The units as they are, but for the path of the program, which is not installed here.
mkdir "$work/units"
for unit in gristmill-server.service gristmill-agent@.service; do
  sed "s|/usr/bin/gristmill|$program|" "$work/root/usr/lib/systemd/system/$unit" > "$work/units/$unit"
done
systemd-analyze verify --man=no "$work/units/gristmill-server.service" "$work/units/gristmill-agent@.service" > "$work/verified" 2>&1 || {
  cat "$work/verified" >&2
  fail 'systemd refuses a unit'
}
if grep "^$work/units" "$work/verified"; then fail 'systemd warns of a unit'; fi
# The exposure to attacks, from 0 to 100, as systemd rates it.
exposure_max=20
for unit in gristmill-server.service gristmill-agent@.service; do
  systemd-analyze security --no-pager --offline=true --threshold="$exposure_max" "$work/units/$unit" > "$work/exposure" || {
    cat "$work/exposure" >&2
    fail "$unit is rated above $exposure_max"
  }
  tail -n 1 "$work/exposure"
done
echo "$package: $(wc -l < "$work/contents") files and folders, $(du --human-readable --apparent-size "$package" | cut -f 1)"
