#!/usr/bin/env bash
# Guess: a package that reads WebVTT gives the words of a cue, so that `a &lt; b` comes out as `a < b`.
# Truth: pycaption and ttconv decode the entities. webvtt-py (`.text`, which has the tags removed) and pysubs2 (`.plaintext`) give
# `&lt;` and `&amp;` as they stand, so their words must be decoded once more, and those of the others must not.
# Version and date: as pinned below, 2026-11.
# Gristmill: its reader decodes the named entities of the format and those with a number (crates/memory/src/source/subtitles.rs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check webvtt-py==0.6.0 pysubs2==1.8.1 pycaption==2.3.14 ttconv==1.2.3
cd "$folder"
printf 'WEBVTT\n\n00:01.000 --> 00:03.000\nif <i>a</i> &lt; b &amp; c\n' >cue.vtt
venv/bin/tt convert -i cue.vtt -o cue.srt >/dev/null 2>&1
cat >read.py <<'PYTHON'
import re, pysubs2, webvtt
from pycaption import WebVTTReader

captions = WebVTTReader().read(open("cue.vtt").read())
srt = open("cue.srt").read().strip().splitlines()[-1]
words = {
    "webvtt-py": webvtt.read("cue.vtt")[0].text,
    "pysubs2": pysubs2.load("cue.vtt")[0].plaintext,
    "pycaption": captions.get_captions(captions.get_languages()[0])[0].get_text(),
    "ttconv, to SubRip": re.sub("</?i>", "", srt),
}
for name, text in words.items():
    print(f"{name}: {text}")
decoded = {name for name, text in words.items() if text == "if a < b & c"}
raw = {name for name, text in words.items() if text == "if a &lt; b &amp; c"}
assert decoded == {"pycaption", "ttconv, to SubRip"} and raw == {"webvtt-py", "pysubs2"}, words
PYTHON
venv/bin/python read.py
