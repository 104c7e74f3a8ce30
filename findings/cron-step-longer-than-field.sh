#!/usr/bin/env bash
# Guess: `*/90 * * * *` means every 90 minutes, or is an error.
# Truth: it means each hour in eleven of 19 libraries, without a word, since only minute 0 matches.
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: an error that names the interval to use, `--every 90m` (docs/scheduling.md).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '*/90 * * * *' UTC 2026-01-01T00:00:00Z 2 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-01-01T01:00Z 2026-01-01T02:00Z
npm croner: refused
npm cron-parser: 2026-01-01T01:00Z 2026-01-01T02:00Z
npm node-cron: 2026-01-01T01:00Z 2026-01-01T02:00Z
npm node-schedule: 2026-01-01T01:00Z 2026-01-01T02:00Z
PyPI croniter: 2026-01-01T01:00Z 2026-01-01T02:00Z
PyPI APScheduler: refused
PyPI celery: 2026-01-01T01:00Z 2026-01-01T02:00Z
PyPI cronsim: 2026-01-01T01:00Z 2026-01-01T02:00Z
PyPI crontab: refused
Go robfig/cron: 2026-01-01T01:00Z 2026-01-01T02:00Z
Go gorhill/cronexpr: refused
Go adhocore/gronx: 2026-01-01T01:00Z 2026-01-01T02:00Z
Rust cron: refused
Rust croner: 2026-01-01T01:00Z 2026-01-01T02:00Z
Rust saffron: refused
Java Spring: 2026-01-01T01:00Z 2026-01-01T02:00Z
Java Quartz: refused
Java cron-utils: refused
SEEN
)
