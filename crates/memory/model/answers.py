"""Measures how well a small model answers questions about long conversations, with and without recall.

    answers.py PROGRAM CONVERSATIONS FOLDER REPORT [QUESTIONS]

CONVERSATIONS is a folder of LoCoMo's conversations, one JSON file each. Its licence keeps it out of this tree. With recall,
`gristmill ask` answers from the messages that it recalls; without, the model gets the question alone. Both are compared with the
expected answers: exact match, and F1 over the words.
"""

import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import small_model

PROGRAM, CONVERSATIONS, FOLDER, REPORT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
QUESTIONS = int(sys.argv[5]) if len(sys.argv) > 5 else 20
MESSAGES = 6
ANSWER_TOKENS = 80
ALONE = "You answer a question in a few words. Answer with JSON alone: `answer`."
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def words(text):
    """The words of an answer, as SQuAD compares them: without case, punctuation and articles."""
    return [word for word in re.findall(r"\w+", str(text).lower()) if word not in ("a", "an", "the")]


def f1(expected, told):
    expected, told = words(expected), words(told)
    common = sum((collections.Counter(expected) & collections.Counter(told)).values())
    return 2 * common / (len(expected) + len(told)) if common else 0.0


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], cwd=FOLDER, capture_output=True, text=True)


def ingest(conversation, name):
    """Ingests the turns of a conversation by the rules."""
    lines = []
    for session in conversation["sessions"]:
        at = datetime.datetime.strptime(session["time"], "%I:%M %p on %d %B, %Y")
        for number, turn in enumerate(session["turns"]):
            spoken = (at + datetime.timedelta(seconds=30 * number)).strftime("%Y-%m-%dT%H:%M:%SZ")
            lines.append({"text": turn["text"] or "-", "speaker": turn["speaker"], "timestamp": spoken})
    (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = run("ingest", f"{name}.jsonl", "--into", f"{name}.db", "--extractor", "local", "--quiet")
    if ended.returncode:
        sys.exit(f"FAILED: ingest: {ended.stderr}")


def with_recall(name, question, address):
    """The answer, and whether it cites messages; no answer where the command ends with an error."""
    ended = run("ask", f"{name}.db", question, "--json", "--parser", "rules", "--limit", str(MESSAGES), "--context-tokens", "600",
                "--answer-tokens", str(ANSWER_TOKENS), "--base-url", address, "--model", small_model.NAME, "--timeout", "5m")
    if not ended.stdout:
        return "", False
    answer = json.loads(ended.stdout)
    return (answer["text"], bool(answer["citations"])) if answer["answered"] else ("", False)


def alone(question, address):
    body = {
        "model": small_model.NAME, "temperature": 0, "max_tokens": ANSWER_TOKENS,
        "messages": [{"role": "system", "content": ALONE}, {"role": "user", "content": question}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
    }
    request = urllib.request.Request(
        address + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        content = json.load(response)["choices"][0]["message"]["content"]
    try:
        return json.loads(content)["answer"]
    except (ValueError, KeyError):
        return ""


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("locomo-*"):
        old.unlink()
    asked = []
    for file in sorted(CONVERSATIONS.glob("[0-9]*.json")):
        conversation = json.loads(file.read_text())
        asked += [(file, question) for question in conversation["questions"] if question["evidence"]]
    if not asked:
        sys.exit(f"{CONVERSATIONS} has no conversations; name the folder of LoCoMo's JSON files")
    # Evenly, so that all conversations and kinds of questions are among them.
    chosen = [asked[number * len(asked) // QUESTIONS] for number in range(min(QUESTIONS, len(asked)))]
    for file in {file for file, _ in chosen}:
        ingest(json.loads(file.read_text()), f"locomo-{file.stem}")
    sums = {"with recall": [0, 0.0, 0, 0, 0.0], "without recall": [0, 0.0, 0, 0, 0.0]}
    with small_model.running(FOLDER / "answers.log") as address:
        for file, question in chosen:
            for way, counts in sums.items():
                begun = time.monotonic()
                if way == "with recall":
                    told, cites = with_recall(f"locomo-{file.stem}", question["question"], address)
                else:
                    told, cites = alone(question["question"], address), False
                expected = question["answer"]
                counts[0] += bool(words(told)) and words(told) == words(expected)
                counts[1] += f1(expected, told)
                counts[2] += bool(told)
                counts[3] += cites
                counts[4] += time.monotonic() - begun
    count = len(chosen)
    lines = [
        "# Answers of a small model, with and without recall", "",
        f"Written by `make test-model LOCOMO=DIR QUESTIONS={QUESTIONS}`: {count} questions about long conversations (LoCoMo), spread",
        "evenly over them. The model is far too small to answer well; the table shows what recall adds.", "",
        *small_model.about(), "",
        "| answered from | questions | exact match | F1 | answered | with citations | seconds a question |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for way, (exact, mean, answered, cites, seconds) in sums.items():
        lines.append(f"| {'the recalled messages' if way == 'with recall' else 'the question alone'} | {count} | {exact / count:.3f} | "
                     f"{mean / count:.3f} | {answered / count:.2f} | {cites / count:.2f} | {seconds / count:.1f} |")
    text = "\n".join(lines) + "\n"
    REPORT.write_text(text)
    print(text)


main()
