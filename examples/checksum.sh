#!/usr/bin/env bash
# SHA-256, size and type of files, one path an item.
#
#     find . -type f | gristmill run examples/checksum.sh --input - --format lines --output checksums.jsonl
#
# Each item is a process: standard input has the payload's JSON, standard output is the value (JSON or
# plain text), standard error is the log, and an exit status other than 0 is a failure.
# GRISTMILL_JOB (such as 42:7) and GRISTMILL_ATTEMPT identify the item.
#
# The same for any program, without a script:
#
#     gristmill run --input items.jsonl --output names.jsonl -- jq -c '.name'
set -euo pipefail

# A line of input is a JSON string: without its quotes, and with \" and \\ as they were.
payload=$(cat)
path=${payload#\"}
path=${path%\"}
path=${path//\\\"/\"}
path=${path//\\\\/\\}

if [ ! -r "$path" ]; then
  echo "cannot read $path" >&2
  exit 1
fi
read -r sum _ < <(sha256sum -- "$path")
printf '{"sha256":"%s","bytes":%d}\n' "${sum#\\}" "$(stat -c %s -- "$path")"
