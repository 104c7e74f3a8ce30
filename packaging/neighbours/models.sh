#!/usr/bin/env bash
# OpenAI's package in jobs, as docs/llm.md has it: a refused call waits as long as its service asked, and not as long as a retry would.
# It is sent once more, with the key of its job.
set -euo pipefail
here=$PWD folder=$(mktemp -d)
service=
trap '[ -z "$service" ] || kill "$service"; wait; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check openai==3.57.0
python3 - "$here/../../docs/llm.md" <<'PYTHON'
import re, sys
for name, source in re.findall(r"```python\n# ([\w.]+)[^\n]*\n(.*?)```", open(sys.argv[1]).read(), re.DOTALL):
    open(name, "w").write(source)
PYTHON
printf '%s\n' "who keeps bees?" "what is grist?" "who mills?" >questions.txt
for script in ask.py ask_openai.py; do
  rm -f address.txt
  python3 service.py address.txt & service=$!
  for _ in $(seq 600); do [ -s address.txt ] && break; sleep 0.1; done
  export MODEL_URL=$(cat address.txt)
  timeout 100 "$GRISTMILL" run $script questions.txt --store jobs.db --output answers.jsonl --python venv/bin/python \
    --retries 3 --retry-delay 10m --quiet
  curl --silent --fail "$MODEL_URL" >calls.json
  python3 - <<'PYTHON'
import collections, json
answers = [json.loads(line) for line in open("answers.jsonl")]
assert [answer["value"] for answer in answers] == ["WHO KEEPS BEES?", "WHAT IS GRIST?", "WHO MILLS?"], answers
calls = collections.Counter(json.load(open("calls.json")))
assert sorted(calls.values()) == [1, 1, 2] and set(calls) == {answer["job"] for answer in answers}, calls
PYTHON
  kill "$service"; wait "$service" || true; service=
done
