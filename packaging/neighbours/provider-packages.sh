#!/usr/bin/env bash
# The packages of OpenAI and Anthropic drive the stand-in of the tests, live and by batches, so that it speaks as they expect.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check openai==3.57.0 anthropic==2.14.0
cd "$(dirname "$0")/../.."
PACKAGES_PYTHON=$folder/venv/bin/python cargo test --locked -p gristmill-llm --test llm packages -- --ignored
