#!/usr/bin/env bash
# Guess: `0 0 13 * 5` means the 13th and each Friday everywhere, as in Vixie cron.
# Truth: six of 19 libraries take the 13th only if it is that day of the week (node-cron, APScheduler, celery, crontab, Rust cron, Spring);
# Quartz refuses it; the others take both. Which day 5 is differs too: see cron-weekday-one.
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: either day is enough, as in Vixie cron; `+5` asks for both (docs/scheduling.md has the table).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '0 0 13 * 5' UTC 2026-01-01T00:00:00Z 3 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
npm croner: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
npm cron-parser: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
npm node-cron: 2026-02-13T00:00Z 2026-03-13T00:00Z 2026-11-13T00:00Z
npm node-schedule: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
PyPI croniter: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
PyPI APScheduler: 2026-06-13T00:00Z 2027-02-13T00:00Z 2027-03-13T00:00Z
PyPI celery: 2026-02-13T00:00Z 2026-03-13T00:00Z 2026-11-13T00:00Z
PyPI cronsim: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
PyPI crontab: 2026-02-13T00:00Z 2026-03-13T00:00Z 2026-11-13T00:00Z
Go robfig/cron: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
Go gorhill/cronexpr: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
Go adhocore/gronx: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
Rust cron: 2026-08-13T00:00Z 2027-05-13T00:00Z 2028-01-13T00:00Z
Rust croner: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
Rust saffron: 2026-01-08T00:00Z 2026-01-13T00:00Z 2026-01-15T00:00Z
Java Spring: 2026-02-13T00:00Z 2026-03-13T00:00Z 2026-11-13T00:00Z
Java Quartz: refused
Java cron-utils: 2026-01-02T00:00Z 2026-01-09T00:00Z 2026-01-13T00:00Z
SEEN
)
