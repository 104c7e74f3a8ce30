"""Makes folders for `make bench-memory-quality`: sources, and `questions.jsonl` with the questions about them.

    sources.py OUTPUT [--notes CARGO_LOCK REGISTRY] [--list PARQUET] [--chat TSV] [--locomo DIR]

notes   README.md of the packages in Cargo.lock, as Cargo keeps them in its registry: the newest version of each.
list    a mailing list as a table with the columns message_id, in_reply_to, from_name, date, subject and body (pyarrow reads it).
        The questions are about R-sig-HPC, 2,152 mails.
chat    lines `2014-02-03 17:56:01<tab>nick<tab>text`: the channel #fluid-work from February to May 2014, 9,912 lines.
locomo  conversations of LoCoMo, whose licence keeps them out of this tree.
"""

import argparse
import datetime
import json
import re
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from pathlib import Path

HERE = Path(__file__).resolve().parent


def questions(name):
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def write_questions(folder, asked):
    folder.joinpath("questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))


def make(output, name):
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def notes(output, lock, registry):
    folder = make(output, "notes")
    packages = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\nsource', Path(lock).read_text())
    newest = dict(packages)  # Cargo.lock has the versions of a package in order.
    for name, version in newest.items():
        readme = Path(registry) / f"{name}-{version}" / "README.md"
        if readme.exists():
            folder.joinpath(f"{name}.md").write_text(readme.read_text(errors="replace"))
    write_questions(folder, questions("notes"))


def mailing_list(output, table):
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(table).to_pylist()
    rows = sorted((row for row in rows if row["date"]), key=lambda row: row["date"])
    folder = make(output, "list")
    threads = {}
    with folder.joinpath("list.mbox").open("wb") as mailbox:
        for row in rows:
            threads.setdefault(row["thread_id"], []).append(row["message_id"].strip("<>"))
            mail = EmailMessage()
            mail["From"] = formataddr((row["from_name"] or "unknown", "someone@list.example"))
            mail["Date"] = format_datetime(row["date"])
            mail["Subject"] = " ".join((row["subject"] or "").split())
            mail["Message-ID"] = row["message_id"]
            if row["in_reply_to"]:
                mail["In-Reply-To"] = row["in_reply_to"].split()[0]
            mail.set_content((row["body"] or "").replace("\nFrom ", "\n>From ") + "\n")
            mailbox.write(f"From someone {row['date']:%a %b %d %H:%M:%S %Y}\n".encode())
            mailbox.write(mail.as_bytes() + b"\n")
    asked = [{**question, "ids": threads[question.pop("thread")]} for question in questions("list")]
    write_questions(folder, asked)


def chat(output, lines):
    folder = make(output, "chat")
    folder.joinpath("chat.weechatlog").write_text(Path(lines).read_text())
    # Lines count from 1.
    asked = [{**question, "span": [number + 1 for number in question["span"]]} for question in questions("chat")]
    write_questions(folder, asked)


def locomo(output, conversations):
    kinds = {1: "several hops", 2: "time", 3: "inference", 4: "one hop"}
    for file in sorted(Path(conversations).glob("[0-9]*.json")):
        folder = make(output, f"locomo-{file.stem}")
        conversation = json.loads(file.read_text())
        lines, ids = [], []
        for session in conversation["sessions"]:
            begun = datetime.datetime.strptime(session["time"], "%I:%M %p on %d %B, %Y")
            for number, turn in enumerate(session["turns"]):
                at = begun + datetime.timedelta(seconds=30 * number)
                time = at.strftime("%Y-%m-%dT%H:%M:%SZ")
                lines.append({"text": turn["text"] or "-", "speaker": turn["speaker"], "timestamp": time})
                ids.append(turn["id"])
        folder.joinpath("talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        asked = []
        for question in conversation["questions"]:
            evidence = [ids.index(place) for place in question["evidence"] if place in ids]
            if evidence:
                kind = f"LoCoMo, {kinds[question['category']]}"
                asked.append({"kind": kind, "question": question["question"], "evidence": evidence})
        write_questions(folder, asked)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("output", type=Path)
parser.add_argument("--notes", nargs=2)
parser.add_argument("--list")
parser.add_argument("--chat")
parser.add_argument("--locomo")
chosen = parser.parse_args()
if chosen.notes:
    notes(chosen.output, *chosen.notes)
if chosen.list:
    mailing_list(chosen.output, chosen.list)
if chosen.chat:
    chat(chosen.output, chosen.chat)
if chosen.locomo:
    locomo(chosen.output, chosen.locomo)
