#!/usr/bin/env bash
# Guess: where one day of two is enough, `0 0 */2 * 1` means each odd day and each Monday.
# Truth: cronsim and gronx, as Vixie cron itself, look at the first character: a field of days that begins with a star needs both to match,
# so it means Mondays on odd days. Ten others of those that take one of two mean each odd day and each Monday.
# Version and date: as pinned in cron/ask, 2026-11.
# Gristmill: either day is enough, unless a field is `*` or `?` alone (docs/scheduling.md).
set -euo pipefail
cd "$(dirname "$0")"
cron/ask '0 0 */2 * 1' UTC 2026-01-01T00:00:00Z 3 | tee /dev/stderr | diff - <(cat <<'SEEN'
npm cron: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
npm croner: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
npm cron-parser: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
npm node-cron: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
npm node-schedule: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
PyPI croniter: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
PyPI APScheduler: 2026-01-13T00:00Z 2026-01-27T00:00Z 2026-02-03T00:00Z
PyPI celery: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
PyPI cronsim: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
PyPI crontab: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
Go robfig/cron: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
Go gorhill/cronexpr: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
Go adhocore/gronx: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
Rust cron: 2026-01-11T00:00Z 2026-01-25T00:00Z 2026-02-01T00:00Z
Rust croner: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
Rust saffron: 2026-01-03T00:00Z 2026-01-04T00:00Z 2026-01-05T00:00Z
Java Spring: 2026-01-05T00:00Z 2026-01-19T00:00Z 2026-02-09T00:00Z
Java Quartz: refused
Java cron-utils: 2026-01-03T00:00Z 2026-01-05T00:00Z 2026-01-07T00:00Z
SEEN
)
