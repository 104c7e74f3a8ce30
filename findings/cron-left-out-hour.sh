#!/usr/bin/env bash
# Guess: a daily job at 02:30 runs on the day whose clocks go from 02:00 to 03:00, at 03:00 as in Vixie cron.
# Truth: robfig/cron, gronx, node-cron, Rust cron, Spring, Quartz and cron-utils leave that day out; npm cron, both croners, croniter and
# cronsim run at 03:00 (01:00Z); cron-parser, node-schedule, APScheduler, celery, crontab and cronexpr at 03:30 (01:30Z).
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: at 03:00, the first moment after the hour that is left out (docs/scheduling.md).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '30 2 * * *' Europe/Berlin 2026-03-28T12:00:00Z 2 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-03-29T01:00Z 2026-03-30T00:30Z
npm croner: 2026-03-29T01:00Z 2026-03-30T00:30Z
npm cron-parser: 2026-03-29T01:30Z 2026-03-30T00:30Z
npm node-cron: 2026-03-30T00:30Z 2026-03-31T00:30Z
npm node-schedule: 2026-03-29T01:30Z 2026-03-30T00:30Z
PyPI croniter: 2026-03-29T01:00Z 2026-03-30T00:30Z
PyPI APScheduler: 2026-03-29T01:30Z 2026-03-30T00:30Z
PyPI celery: 2026-03-29T01:30Z 2026-03-30T00:30Z
PyPI cronsim: 2026-03-29T01:00Z 2026-03-30T00:30Z
PyPI crontab: 2026-03-29T01:30Z 2026-03-30T00:30Z
Go robfig/cron: 2026-03-30T00:30Z 2026-03-31T00:30Z
Go gorhill/cronexpr: 2026-03-29T01:30Z 2026-03-30T00:30Z
Go adhocore/gronx: 2026-03-30T00:30Z 2026-03-31T00:30Z
Rust cron: 2026-03-30T00:30Z 2026-03-31T00:30Z
Rust croner: 2026-03-29T01:00Z 2026-03-30T00:30Z
Rust saffron: refused
Java Spring: 2026-03-30T00:30Z 2026-03-31T00:30Z
Java Quartz: 2026-03-30T00:30Z 2026-03-31T00:30Z
Java cron-utils: 2026-03-30T00:30Z 2026-03-31T00:30Z
SEEN
)
