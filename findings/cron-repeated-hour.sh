#!/usr/bin/env bash
# Guess: a daily job at 02:30 runs once on the day on which the hour from 02:00 comes twice.
# Truth: croniter, APScheduler, robfig/cron, Rust cron and Spring run it twice; node-cron, cronexpr, gronx
# and Quartz run it the second time.
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: once, the first time (docs/scheduling.md).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '30 2 * * *' Europe/Berlin 2026-10-24T12:00:00Z 2 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-10-25T00:30Z 2026-10-26T01:30Z
npm croner: 2026-10-25T00:30Z 2026-10-26T01:30Z
npm cron-parser: 2026-10-25T00:30Z 2026-10-26T01:30Z
npm node-cron: 2026-10-25T01:30Z 2026-10-26T01:30Z
npm node-schedule: 2026-10-25T00:30Z 2026-10-26T01:30Z
PyPI croniter: 2026-10-25T00:30Z 2026-10-25T01:30Z
PyPI APScheduler: 2026-10-25T00:30Z 2026-10-25T01:30Z
PyPI celery: 2026-10-25T00:30Z 2026-10-26T01:30Z
PyPI cronsim: 2026-10-25T00:30Z 2026-10-26T01:30Z
PyPI crontab: 2026-10-25T00:30Z 2026-10-26T01:30Z
Go robfig/cron: 2026-10-25T00:30Z 2026-10-25T01:30Z
Go gorhill/cronexpr: 2026-10-25T01:30Z 2026-10-26T01:30Z
Go adhocore/gronx: 2026-10-25T01:30Z 2026-10-26T01:30Z
Rust cron: 2026-10-25T00:30Z 2026-10-25T01:30Z
Rust croner: 2026-10-25T00:30Z 2026-10-26T01:30Z
Rust saffron: refused
Java Spring: 2026-10-25T00:30Z 2026-10-25T01:30Z
Java Quartz: 2026-10-25T01:30Z 2026-10-26T01:30Z
Java cron-utils: 2026-10-25T00:30Z 2026-10-26T01:30Z
SEEN
)
