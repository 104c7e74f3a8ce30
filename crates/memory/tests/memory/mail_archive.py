#!/usr/bin/env python3
"""Writes a random mailbox, as real programs would, and says who wrote which sentence.

python3 mail_archive.py MBOX SENTENCES SEED

Each mail is built by Python's email package and written by its mailbox module. A reply quotes the mail before it in one of five
styles, as text or as HTML. SENTENCES gets a line for each sentence in the mailbox: the address of its author, the name, and the
sentence, with tabs between.
"""

import email.policy
import html
import mailbox
import random
import sys
from email.message import EmailMessage
from email.utils import format_datetime
from datetime import datetime, timedelta, timezone

MAILS = 60

NAMES = ["Ada King", "Bob Stone", "Cleo Ngo", "Dörte Öhm", "Élise Noël", "Фёдор Иванов", "王 小明"]
ADDRESSES = [f"{name}@bees.example" for name in ["ada", "bob", "cleo", "doerte", "elise", "fedor", "xiaoming"]]
NOUNS = "bees drums wasps queens hives spiders flowers kings combs swarms gardens letters engines looms".split()
VERBS = "hum drum dance write sing sleep carry count mend weave climb wait".split()
WHEN = "all day,at dawn,in May,since Monday,without a pause,under the roof,beyond the river,for no reason".split(",")
CHARSETS = ["utf-8", "utf-8", "iso-8859-1", "windows-1251", "gb2312"]
ENCODINGS = ["quoted-printable", "base64", "8bit"]


class Archive:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0
        self.sentences = []

    def sentence(self, author):
        chosen = self.random
        self.count += 1
        # Its number makes each sentence the only one of its kind.
        text = (
            f"The {self.count} {chosen.choice(NOUNS)} {chosen.choice(VERBS)} {chosen.choice(WHEN)}"
            f" and the {chosen.choice(NOUNS)} {chosen.choice(VERBS)}{chosen.choice('.!?')}"
        )
        self.sentences.append((ADDRESSES[author], NAMES[author], text))
        return text

    def paragraphs(self, author):
        return [
            " ".join(self.sentence(author) for _ in range(self.random.randint(1, 4)))
            for _ in range(self.random.randint(1, 3))
        ]


def wrapped(paragraph, width=72):
    lines, line = [], ""
    for word in paragraph.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [line]


def plain(paragraphs):
    return "\n\n".join("\n".join(wrapped(paragraph)) for paragraph in paragraphs)


def quoted(text):
    return "\n".join(">" + (line if line.startswith(">") else f" {line}" if line else "") for line in text.split("\n"))


class Mail:
    """A mail that can be replied to: its author, its date and its whole text."""

    def __init__(self, number, author, date, subject):
        self.number, self.author, self.date, self.subject = number, author, date, subject
        self.text = ""
        self.html = ""
        # The numbers of the sentences in both.
        self.in_text = set()
        self.in_html = set()

    @property
    def id(self):
        return f"<{self.number}@bees.example>"

    @property
    def person(self):
        return f"{NAMES[self.author]} <{ADDRESSES[self.author]}>"


def introduction(mail, chosen):
    at = mail.date
    return chosen.choice(
        [
            f"On {at:%a, %b} {at.day}, {at.year} at {at:%I:%M %p} {mail.person} wrote:",
            f"On {at:%d/%m/%Y %H:%M}, {NAMES[mail.author]} wrote:",
            f"Am {at:%d.%m.%y} um {at:%H:%M} schrieb {NAMES[mail.author]}:",
            f"Le {at:%d/%m/%Y} à {at:%H:%M}, {mail.person} a écrit :",
            f"{mail.person} writes:",
        ]
    )


def outlook_headers(mail, banner):
    at = mail.date
    return (
        f"{banner}\nFrom: {mail.person}\nSent: {at:%A, %B} {at.day}, {at.year} {at:%I:%M %p}\n"
        f"To: bees@bees.example\nSubject: {mail.subject}\n"
    )


def reply_plain(archive, mail, paragraphs, to):
    """The text of a reply in one of five styles."""
    chosen = archive.random
    style = chosen.choice(["bottom", "gmail", "inline", "outlook", "forward"])
    own = plain(paragraphs)
    if style == "bottom":
        text = f"{introduction(to, chosen)}\n{quoted(to.text)}\n\n{own}\n"
    elif style == "gmail":
        text = f"{own}\n\n{introduction(to, chosen)}\n\n{quoted(to.text)}\n"
    elif style == "inline":
        blocks = to.text.split("\n\n")
        text = f"{introduction(to, chosen)}\n\n"
        for at, block in enumerate(blocks):
            text += quoted(block) + "\n\n"
            if at < len(paragraphs):
                text += plain(paragraphs[at : at + 1]) + "\n\n"
        rest = paragraphs[len(blocks) :]
        text += plain(rest) + "\n" if rest else ""
    elif style == "outlook":
        text = f"{own}\n\n{outlook_headers(to, '-----Original Message-----')}\n{to.text}\n"
    else:
        banner = "---------- Forwarded message ---------"
        text = f"{own}\n\n{outlook_headers(to, banner).replace('Sent:', 'Date:')}\n{to.text}\n"
    return text


def reply_html(paragraphs, to, chosen):
    own = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
    if to is None:
        return f"<html><head><style>p {{ margin: 0 }}</style></head><body>{own}</body></html>"
    before = to.html or "<br>\n".join(html.escape(line) for line in to.text.split("\n"))
    if chosen.random() < 0.5:
        quote = (
            f'<div class="gmail_quote"><div dir="ltr">{html.escape(introduction(to, chosen))}<br></div>'
            f"<blockquote>{before}</blockquote></div>"
        )
    else:
        headers = outlook_headers(to, "").strip().split("\n")
        quote = (
            '<div style="border:none;border-top:solid #E1E1E1 1.0pt"><p>'
            + "<br>".join(f"<b>{html.escape(name)}:</b>{html.escape(rest)}" for name, rest in (line.split(":", 1) for line in headers))
            + f"</p></div>{before}"
        )
    return f"<html><body>{own}{quote}</body></html>"


def write(path, sentences_path, seed):
    archive = Archive(seed)
    chosen = archive.random
    box = mailbox.mbox(path)
    mails = []
    at = datetime(2024, 1, 1, 8, 0, tzinfo=timezone(timedelta(hours=1)))
    written = set()
    for number in range(MAILS):
        at += timedelta(minutes=chosen.randint(3, 3000))
        author = chosen.randrange(len(NAMES))
        to = chosen.choice(mails[-8:]) if mails and chosen.random() < 0.75 else None
        subject = f"Re: {to.subject.removeprefix('Re: ')}" if to else f"About {chosen.choice(NOUNS)} {number}"
        mail = Mail(number, author, at, subject)
        before = archive.count
        paragraphs = archive.paragraphs(author)
        own = set(range(before, archive.count))
        is_html = chosen.random() < 0.3
        message = EmailMessage(policy=email.policy.SMTP.clone(linesep="\n"))
        message["From"] = f'"{NAMES[author]}" <{ADDRESSES[author]}>'
        message["To"] = "bees@bees.example"
        message["Subject"] = subject
        message["Date"] = format_datetime(at)
        message["Message-ID"] = mail.id
        if to and chosen.random() < 0.8:
            message["In-Reply-To"] = to.id
            message["References"] = to.id
        if is_html:
            mail.html = reply_html(paragraphs, to, chosen)
            mail.in_html = own | ((to.in_html if to.html else to.in_text) if to else set())
            mail.text, mail.in_text = plain(paragraphs), own
            message.set_content(mail.html, subtype="html", cte=chosen.choice(["quoted-printable", "base64"]))
        else:
            mail.text = reply_plain(archive, mail, paragraphs, to) if to else plain(paragraphs) + "\n"
            mail.text = mail.text.strip()
            mail.in_text = own | (to.in_text if to else set())
            body = mail.text + chosen.choice(["\n", f"\n\n-- \n{NAMES[author]}\nThe hive, London\n"])
            try:
                message.set_content(body, charset=chosen.choice(CHARSETS), cte=chosen.choice(ENCODINGS))
            except (UnicodeEncodeError, ValueError):
                message.set_content(body, charset="utf-8", cte="quoted-printable")
        if chosen.random() < 0.15:
            message.add_attachment(b"\x89PNG\r\n", maintype="image", subtype="png", filename="bee.png")
        mails.append(mail)
        # Some mails are quoted, and are not in the mailbox themselves.
        if chosen.random() < 0.1:
            continue
        box.add(message)
        written |= mail.in_html if is_html else mail.in_text
    box.close()
    with open(sentences_path, "w", encoding="utf-8") as file:
        for number in sorted(written):
            file.write("\t".join(archive.sentences[number]) + "\n")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
