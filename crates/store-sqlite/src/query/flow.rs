//! Which kinds are flows, and when the next job expires.

use std::sync::Arc;

use gristmill_model::Timestamp;
use rusqlite::Connection;

use crate::failure::Result;

/// The kinds of which a job has suspended as a flow.
pub(crate) fn flow_kinds(connection: &Connection) -> Result<Vec<Arc<str>>> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT l.kind FROM (SELECT DISTINCT batch_id FROM suspension WHERE flow IS NOT NULL) s \
         CROSS JOIN batch b ON b.id = s.batch_id JOIN lane l ON l.id = b.lane_id ORDER BY l.kind",
    )?;
    let kinds = statement.query_map([], |row| row.get::<_, String>(0))?;
    Ok(kinds
        .map(|kind| kind.map(Arc::from))
        .collect::<rusqlite::Result<_>>()?)
}

/// The first moment at which a job expires, or a cleanup after a flow ends.
pub(crate) fn next_expiry(connection: &Connection) -> Result<Option<Timestamp>> {
    let mut statement = connection.prepare_cached(
        "SELECT min(expires_at) FROM ( \
         SELECT min(expires_at) AS expires_at FROM slice WHERE expires_at IS NOT NULL \
         UNION ALL SELECT min(expires_at) FROM blocked WHERE expires_at IS NOT NULL \
         UNION ALL SELECT min(ends_at) FROM cleanup WHERE ends_at IS NOT NULL)",
    )?;
    let next: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(next.map(Timestamp))
}
