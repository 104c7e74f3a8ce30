#!/usr/bin/env bash
# Builds the Debian package of the program: build.sh PROGRAM FOLDER. Prints the path of the package.
#
# The package has the program without its debug information, its manual, completions, the units of systemd, and the alert
# rules and the Grafana dashboard as examples. The same program and SOURCE_DATE_EPOCH give the same package.
set -euo pipefail

program=$(realpath "$1")
folder=$2
packaging=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$packaging" log -1 --format=%ct)}

version=$("$program" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)

install -D --mode=755 "$program" "$root/usr/bin/gristmill"
strip --strip-unneeded "$root/usr/bin/gristmill"

for unit in gristmill-server.service gristmill-agent@.service; do
  install -D --mode=644 "$packaging/systemd/$unit" "$root/usr/lib/systemd/system/$unit"
done
install -D --mode=640 "$packaging/systemd/server.env" "$root/etc/gristmill/server.env"

share=$root/usr/share
mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$program" man | gzip --best --no-name > "$share/man/man1/gristmill.1.gz"
"$program" completions bash > "$share/bash-completion/completions/gristmill"
"$program" completions zsh > "$share/zsh/vendor-completions/_gristmill"
"$program" completions fish > "$share/fish/vendor_completions.d/gristmill.fish"

documents=$share/doc/gristmill
install -D --mode=644 "$packaging/debian/copyright" "$documents/copyright"
gzip --best --no-name < "$packaging/../CHANGELOG.md" > "$documents/changelog.gz"
for example in systemd/agent-example.env prometheus/gristmill.rules.yml prometheus/scrape.yml grafana/gristmill.json; do
  install -D --mode=644 "$packaging/$example" "$documents/examples/$(basename "$example")"
done

# dpkg-shlibdeps finds the packages of the shared libraries; it reads the name of the package from debian/control.
mkdir -p "$work/debian"
printf 'Source: gristmill\n\nPackage: gristmill\nArchitecture: any\n' > "$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/gristmill 2> "$work/shlibdeps.log" | sed 's/^shlibs:Depends=//') || {
  cat "$work/shlibdeps.log" >&2
  exit 1
}

mkdir -p "$root/DEBIAN"
sed -e "s/@VERSION@/$version-1/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBRARIES@/$libraries/" \
  -e "s/@KIBIBYTES@/$(du --summarize --apparent-size --block-size=1024 --exclude=DEBIAN "$root" | cut -f 1)/" \
  "$packaging/debian/control.in" > "$root/DEBIAN/control"
echo /etc/gristmill/server.env > "$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
  install --mode=755 "$packaging/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -print0 | sort --zero-terminated | xargs --null md5sum) > "$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$folder"
package=$folder/gristmill_$version-1_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" > "$work/dpkg-deb.log"
echo "$package"
