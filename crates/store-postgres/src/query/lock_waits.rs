//! Operations that wait for locks of other transactions, and these transactions.

use gristmill_store::LockWaits;

use crate::database::snapshot::Snapshot;
use crate::failure::Result;
use crate::limits::LOCK_HOLDERS_MAX;

/// Waits of all processes that use the store as this role. The server does not show those of other roles.
const LOCK_WAITS: &str = "WITH waiting AS MATERIALIZED ( \
         SELECT pid, extract(epoch FROM clock_timestamp() - query_start) * 1000 AS waited_ms FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name LIKE 'gristmill %' AND wait_event_type = 'Lock') \
     SELECT (SELECT count(*) FROM waiting), (SELECT coalesce(max(greatest(waited_ms, 0)), 0)::bigint FROM waiting), \
     ARRAY(SELECT format('process %s of role %s (%s)', a.pid, a.usename, a.application_name) FROM pg_stat_activity a \
         WHERE a.pid IN (SELECT unnest(pg_blocking_pids(w.pid)) FROM waiting w) \
         AND a.pid NOT IN (SELECT w.pid FROM waiting w) ORDER BY a.pid LIMIT $1)";

pub(crate) async fn lock_waits(snapshot: &Snapshot) -> Result<LockWaits> {
    let Some(row) = snapshot.query_opt(LOCK_WAITS, &[&LOCK_HOLDERS_MAX]).await? else {
        return Ok(LockWaits::default());
    };
    Ok(LockWaits {
        writers: row.try_get::<_, i64>(0)?.unsigned_abs(),
        longest_ms: row.try_get::<_, i64>(1)?.unsigned_abs(),
        holders: row.try_get(2)?,
    })
}
