"""Ingests a small sample with a real small model, recalls from it and asks, through the program itself.

    check.py PROGRAM SAMPLE FOLDER REPORT

Writes what came of it to REPORT, as it is: a model of 135 million parameters shows that every step works with a real
service, not that such a model is a good reader. Fails where a step does not work.
"""

import json
import pathlib
import subprocess
import sys
import time

import small_model

PROGRAM, SAMPLE, FOLDER, REPORT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
MESSAGES = 5
QUESTIONS = ["Who keeps honey bees?", "What did Bob say about honey?"]


def run(*arguments):
    """Runs the program. Gives its exit status, what it wrote, and the seconds that it took."""
    begun = time.monotonic()
    ended = subprocess.run([PROGRAM, *arguments], cwd=FOLDER, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begun


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("kb*"):
        old.unlink()
    with small_model.running(FOLDER / "server.log") as address:
        report(address)


def report(address):
    lines = [
        "# Memory with a real small model", "",
        "Written by `make test-model`. The model shows that every step works with a real service; it is far too small to",
        "read well.", "",
        *small_model.about(), "",
    ]
    service = ["--base-url", address, "--model", small_model.NAME, "--timeout", "20m"]

    code, out, err, seconds = run(
        "ingest", SAMPLE, "--into", "kb.db", "--json", "--concurrency", "1", "--output-tokens", "1000", *service)
    check(code in (0, 1), f"ingest ended with {code}: {err}")
    told = json.loads(out)
    check(told["messages"] == MESSAGES, f"{told['messages']} of {MESSAGES} messages are stored")
    extracted = told["chunks"] - told["failures"]
    lines += [
        "## ingest", "",
        f"{told['messages']} messages, {extracted} chunks extracted, {told['failures']} failed, {told['refs']} pieces of "
        f"knowledge, {told['model_calls']} model calls, {told['input_tokens']} tokens sent, {told['output_tokens']} answered, "
        f"{seconds:.0f} s", "",
    ]
    _, failures, _, _ = run("memory", "failures", "kb.db")
    if failures:
        lines += ["```", *(line[:200] for line in failures.splitlines()), "```", ""]

    code, out, err, seconds = run("ingest", SAMPLE, "--into", "kb.db", "--json", "--retry-failed", "--output-tokens", "2000",
                                  "--concurrency", "1", *service)
    check(code in (0, 1), f"--retry-failed ended with {code}: {err}")
    told = json.loads(out)
    check(told["sources_skipped"] == 1, "the unchanged source is skipped")
    lines += [f"`--retry-failed`, with twice the tokens: {told['failures']} still fail, {seconds:.0f} s", ""]

    lines += ["## recall, without the model", ""]
    for question in QUESTIONS:
        code, out, err, seconds = run("recall", "kb.db", question, "--json", "--limit", "3")
        check(code == 0, f"recall found nothing for {question}: {err}")
        found = json.loads(out)["messages"][0]
        text = "".join(found["textChunks"]).replace("\n", " ")
        lines.append(f"* {question} → #{found['position']}: {text[:120]} ({seconds * 1000:.0f} ms)")
    lines += ["", "## ask", ""]
    for question in QUESTIONS:
        for parser in ("rules", "model"):
            code, out, err, seconds = run("ask", "kb.db", question, "--json", "--parser", parser, "--context-tokens", "800",
                                          "--answer-tokens", "200", *service)
            if code == 2:
                lines.append(f"* {question} (question understood by {parser}) → {err.strip()[:200]}, {seconds:.0f} s")
                continue
            check(code in (0, 1), f"ask ended with {code}: {err}")
            answer = json.loads(out)
            cited = ", ".join(f"#{citation['position']}" for citation in answer["citations"]) or "nothing"
            lines.append(f"* {question} (question understood by {parser}) → {'' if answer['answered'] else 'not answered: '}"
                         f"{answer['text'][:200]} (cites {cited}; {seconds:.0f} s)")
    check(any("cites" in line for line in lines), "no question was answered in the form that was asked for")
    text = "\n".join(lines).replace(str(SAMPLE), SAMPLE.name) + "\n"
    REPORT.write_text(text)
    print(text)


main()
