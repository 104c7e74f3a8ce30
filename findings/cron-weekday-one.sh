#!/usr/bin/env bash
# Guess: `0 0 * * 1` is Monday.
# Truth: it is Sunday in Quartz, Rust cron and saffron, and Tuesday in APScheduler; so an expression that is moved runs on another day.
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: 0 and 7 are Sunday, 1 is Monday; names (`mon`) are safe everywhere (docs/scheduling.md).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '0 0 * * 1' UTC 2026-01-01T00:00:00Z 1 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-01-05T00:00Z
npm croner: 2026-01-05T00:00Z
npm cron-parser: 2026-01-05T00:00Z
npm node-cron: 2026-01-05T00:00Z
npm node-schedule: 2026-01-05T00:00Z
PyPI croniter: 2026-01-05T00:00Z
PyPI APScheduler: 2026-01-06T00:00Z
PyPI celery: 2026-01-05T00:00Z
PyPI cronsim: 2026-01-05T00:00Z
PyPI crontab: 2026-01-05T00:00Z
Go robfig/cron: 2026-01-05T00:00Z
Go gorhill/cronexpr: 2026-01-05T00:00Z
Go adhocore/gronx: 2026-01-05T00:00Z
Rust cron: 2026-01-04T00:00Z
Rust croner: 2026-01-05T00:00Z
Rust saffron: 2026-01-04T00:00Z
Java Spring: 2026-01-05T00:00Z
Java Quartz: 2026-01-04T00:00Z
Java cron-utils: 2026-01-05T00:00Z
SEEN
)
