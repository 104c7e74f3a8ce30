#!/usr/bin/env bash
# Builds the Debian package of the PostgreSQL extension: build_extension.sh PG_CONFIG FOLDER. Prints the path of the package.
#
# PG_CONFIG is that of Debian's server of the wanted version; its headers are needed. The sources are copied first: a build in
# the tree, perhaps for another version, stays as it is.
set -euo pipefail

pg_config=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
packaging=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$packaging" log -1 --format=%ct)}

major=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$packaging/../extension/pg_batchexec.control")
architecture=$(dpkg --print-architecture)
name=postgresql-$major-pg-batchexec

mkdir "$work/source"
cp -a "$packaging"/../extension/{Makefile,pg_batchexec.control,src} "$work/source"
cp -a "$packaging"/../extension/pg_batchexec--*.sql "$work/source"
find "$work/source" -name '*.o' -delete
# Without bitcode for the server's JIT: nothing inlines the extension.
make -C "$work/source" PG_CONFIG="$pg_config" with_llvm=no install DESTDIR="$root" > "$work/make.log" 2>&1 || {
  cat "$work/make.log" >&2
  exit 1
}
library=$(cd "$root" && find usr -name pg_batchexec.so)
strip --strip-unneeded "$root/$library"

documents=$root/usr/share/doc/$name
install -D --mode=644 "$packaging/../extension/LICENSE" "$documents/copyright"
install -D --mode=644 "$packaging/../extension/README.md" "$documents/README.md"

mkdir -p "$work/debian"
printf 'Source: gristmill\n\nPackage: %s\nArchitecture: any\n' "$name" > "$work/debian/control"
# The server brings the symbols that the library leaves open.
libraries=$(cd "$work" && dpkg-shlibdeps -O "root/$library" 2> "$work/shlibdeps.log" | sed 's/^shlibs:Depends=//') || {
  cat "$work/shlibdeps.log" >&2
  exit 1
}
mkdir -p "$root/DEBIAN"
cat > "$root/DEBIAN/control" << END
Package: $name
Version: $version-1
Architecture: $architecture
Maintainer: Gristmill <maintainers@gristmill.example>
Installed-Size: $(du --summarize --apparent-size --block-size=1024 --exclude=DEBIAN "$root" | cut -f 1)
Depends: $libraries, postgresql-$major
Section: database
Priority: optional
Homepage: https://github.com/gristmill/gristmill
Description: batched execution for PostgreSQL $major
 pg_batchexec runs sequential scans, their filters, hash joins and aggregates on
 batches of rows, a column at a time. Sessions use it once it is in
 shared_preload_libraries or session_preload_libraries, or after LOAD.
END
(cd "$root" && find usr -type f -print0 | sort --zero-terminated | xargs --null md5sum) > "$root/DEBIAN/md5sums"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

package=$folder/${name}_$version-1_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" > "$work/dpkg-deb.log"
echo "$package"
