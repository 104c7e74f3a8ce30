#!/usr/bin/env bash
# Guess: a mail that Python's `mailbox` wrote is read by it with the same words, and a line that begins with `From ` and no date begins
# no mail.
# Truth: it writes `>From ` for `From ` and leaves it so when it reads. In a file of a program that does not write `>` (with a length in
# `Content-Length`, as the format mboxcl2 has it), it ends the mail at each such line: one mail becomes two, and the second one has
# neither sender nor subject.
# Version and date: Python 3.11 (Debian 12 and python.org), 2026-11.
# Gristmill: begins a mail only at a `From ` line that ends with a date, and takes one `>` away from `>From ` (docs/memory.md).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >try.py <<'PYTHON'
import email.message, mailbox
mail = email.message.EmailMessage()
mail["From"], mail["Subject"] = "ada@mill.example", "hours"
mail.set_content("Hello,\n\nFrom Monday on, we meet at nine.\n")
box = mailbox.mbox("written.mbox")
box.add(mail)
box.flush()
print(mailbox.mbox("written.mbox")[0].get_payload().splitlines()[-1])
words = "Hello,\n\nFrom Monday on, we meet at nine.\nBye\n"
with open("length.mbox", "w") as file:
    file.write("From ada@mill.example Mon Mar  4 10:00:00 2024\nFrom: ada@mill.example\nSubject: hours\n")
    file.write(f"Content-Length: {len(words)}\n\n{words}\n")
mails = mailbox.mbox("length.mbox")
print(len(mails), [mail["Subject"] for mail in mails], [mail.get_payload() for mail in mails])
PYTHON
python3 try.py | tee /dev/stderr | diff - <(cat <<'SEEN'
>From Monday on, we meet at nine.
2 ['hours', None] ['Hello,\n', 'Bye\n']
SEEN
)
