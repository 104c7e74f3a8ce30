#!/usr/bin/env bash
# Writes the description of the API that a program serves: describe.sh PROGRAM FILE
set -euo pipefail
folder=$(mktemp --directory)
mkdir -p "$(dirname "$2")"
exec 3< <(exec "$1" serve --listen 127.0.0.1:0 --store "$folder/store.db" 2>&1)
server=$!
trap 'kill "$server"; rm -rf "$folder"' EXIT
read -r -t 60 line <&3
curl --silent --show-error --fail --output "$2" "${line##* }/api/v1/openapi.json"
