#!/usr/bin/env bash
# Guess: procmail separates the mails that it appends to a mailbox, so that any program finds as many mails as it delivered.
# Truth: It writes no `From ` line before a mail that came without one (as getmail and scripts hand mails over), says nothing, and
# ends with 0. Python's `mailbox` finds none of three mails, and formail finds one. `formail | procmail` or `procmail -f-`
# adds the line.
# Version and date: procmail 3.22 of Debian 12, Python 3.11, 2026-11-27.
# Gristmill: a mailbox without `From ` lines is cut where headers with From, Date and Message-ID stand behind an empty line
# (docs/memory.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq procmail >/dev/null 2>&1 || { echo "apt-get cannot download procmail"; exit 1; }
dpkg -x procmail_*.deb root
PATH="$folder/root/usr/bin:$PATH"
for number in 1 2 3; do
  printf 'From: ada@mill.example\nDate: Mon, 4 Mar 2024 10:0%s:00 +0000\nMessage-ID: <%s@mill.example>\nSubject: hours\n\nWe meet.\n' \
    "$number" "$number" >mail
  procmail DEFAULT="$folder/bare" /dev/null <mail
  procmail -f- DEFAULT="$folder/separated" /dev/null <mail
done
{
  for box in bare separated; do
    python=$(python3 -c "import mailbox; print(len(mailbox.mbox('$box')))")
    echo "$box: $(grep -c '^Message-ID' "$box") mails, Python finds $python, formail $(formail -s echo <"$box" | wc -l)"
  done
} | tee /dev/stderr | diff - <(cat <<'SEEN'
bare: 3 mails, Python finds 0, formail 1
separated: 3 mails, Python finds 3, formail 3
SEEN
)
