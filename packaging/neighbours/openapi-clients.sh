#!/usr/bin/env bash
# Clients that openapi-python-client and hey-api make from the API's description submit a job, wait, read its value, and get refusals
# as the description has them. `make test-generators` tries more generators, whose clients take minutes to compile.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
WORK=$folder GENERATORS="python-client hey-api" ../../crates/server/tests/generators/run.sh
