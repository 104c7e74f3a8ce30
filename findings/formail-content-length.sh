#!/usr/bin/env bash
# Guess: formail keeps a mail's `Content-Length` true when it writes `>From ` for `From `, or quotes nothing because of it.
# Truth: `formail -ds` quotes lines of the body and leaves the length as it was: it is a byte short for each such line.
# Version and date: procmail 3.22 of Debian 12, 2026-11-27.
# Gristmill: takes the `>` away also from a body whose length is told, unless lines beside it have one, too
# (crates/memory/src/source/mail/mbox.rs has the test).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq procmail >/dev/null 2>&1 || { echo "apt-get cannot download procmail"; exit 1; }
dpkg -x procmail_*.deb root
PATH="$folder/root/usr/bin:$PATH"
printf 'Hello.\nFrom Monday on, at nine.\nFrom ada@mill.example Mon Mar  4 10:00:00 2024\nBye.\n' >body
length=$(wc -c <body)
{ printf 'From: ada@mill.example\nMessage-ID: <1@mill.example>\nContent-Length: %s\n\n' "$length"; cat body; } >mail
formail <mail | formail -ds >box
{
  grep 'From \|^Content' box | sed 1d
  echo "the body has $(sed '1,/^$/d' box | sed '$d' | wc -c) bytes"
} | tee /dev/stderr | diff - <(cat <<SEEN
Content-Length: $length
>From Monday on, at nine.
>From ada@mill.example Mon Mar  4 10:00:00 2024
the body has $((length + 2)) bytes
SEEN
)
