#!/usr/bin/env bash
# Debian's Prometheus scrapes a server with the scrape configuration of this repository, and loads the alert rules.
set -euo pipefail
here=$PWD folder=$(mktemp -d)
pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}"; wait; rm -rf "$folder"' EXIT
cd "$folder"
chmod 777 .
apt-get download -qq prometheus >/dev/null 2>&1 || { echo "apt-get cannot download prometheus"; exit 2; }
for package in *.deb; do dpkg -x "$package" root; done
"$GRISTMILL" token create --trust trust --role monitor --group prometheus --queue '*' >token
"$GRISTMILL" submit resize 1 2 3 --store jobs.db >/dev/null
"$GRISTMILL" serve --store jobs.db --listen 127.0.0.1:18378 --trust trust --quiet & pids+=($!)
sed "s|/etc/prometheus/gristmill.token|$folder/token|; s|127.0.0.1:8378|127.0.0.1:18378|
  s|job_name: gristmill|&\n    scrape_interval: 1s|" \
  "$here/../prometheus/scrape.yml" >scrape.yml
printf 'rule_files: [%s]\n' "$here/../prometheus/gristmill.rules.yml" >>scrape.yml
root/usr/bin/prometheus --config.file=scrape.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:19090 \
  --log.level=error & pids+=($!)
ask() { curl --silent --show-error "http://127.0.0.1:19090/api/v1/$1"; }
for _ in $(seq 120); do
  found=$(ask 'query?query=gristmill_jobs_due' 2>/dev/null || true)
  grep -q '"metric"' <<<"$found" && break
  sleep 0.5
done
python3 - "$found" "$(ask rules)" "$(ask 'query?query=%7Bexported_job!=""%7D%20or%20%7Bexported_instance!=""%7D')" <<'PYTHON'
import json, sys
due, rules, renamed = (json.loads(text)["data"] for text in sys.argv[1:])
[row] = due["result"]
assert row["metric"]["kind"] == "resize" and row["metric"]["queue"] == "default" and row["value"][1] == "3", due
assert not renamed["result"], f"Prometheus renamed labels: {renamed}"
assert sum(len(group["rules"]) for group in rules["groups"]) > 3, rules
PYTHON
