#!/bin/bash
# Starts a server over a new store and lets Schemathesis make requests from its description. No answer may be a 5xx.
# SCHEMATHESIS and GRISTMILL name the programs; EXAMPLES says how many requests each operation gets; SEED which ones.
set -euo pipefail

folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
"$GRISTMILL" serve --listen 127.0.0.1:0 --store "$folder/gristmill.db" 2> "$folder/said" &
server=$!
until url=$(grep -o 'http://[0-9.:]*' "$folder/said"); do
    kill -0 "$server" || { cat "$folder/said"; exit 1; }
done

export SCHEMATHESIS_HOOKS=schemathesis_hooks PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$(cd "$(dirname "$0")" && pwd)
cd "$folder"
# The stream of events has no end, so no request of its can be judged; it has tests of its own.
"$SCHEMATHESIS" run "$url/api/v1/openapi.json" \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    --exclude-operation-id events \
    --phases examples,coverage,fuzzing,stateful \
    --max-examples "${EXAMPLES:-100}" --seed "${SEED:-1}" --request-timeout 40 --workers 1 \
    --continue-on-failure --warnings off
