//! Which kinds are flows, and when the next job expires.

use std::sync::Arc;

use gristmill_model::Timestamp;

use crate::database::snapshot::Snapshot;
use crate::failure::Result;

/// The kinds of which a job has suspended as a flow.
pub(crate) async fn flow_kinds(snapshot: &Snapshot) -> Result<Vec<Arc<str>>> {
    let rows = snapshot
        .query(
            "SELECT DISTINCT l.kind FROM (SELECT DISTINCT batch_id FROM gristmill.suspension WHERE flow IS NOT NULL) s \
             JOIN gristmill.batch b ON b.id = s.batch_id JOIN gristmill.lane l ON l.id = b.lane_id",
            &[],
        )
        .await?;
    let kinds = rows.iter().map(|row| Ok(Arc::from(row.try_get::<_, &str>(0)?)));
    let mut kinds: Vec<Arc<str>> = kinds.collect::<Result<_>>()?;
    // By bytes, as in the other store: the database sorts by its locale.
    kinds.sort_unstable();
    Ok(kinds)
}

/// The first moment at which a job expires, or a cleanup after a flow ends.
pub(crate) async fn next_expiry(snapshot: &Snapshot) -> Result<Option<Timestamp>> {
    let row = snapshot
        .query_opt(
            "SELECT least((SELECT min(expires_at) FROM gristmill.slice WHERE expires_at IS NOT NULL), \
             (SELECT min(expires_at) FROM gristmill.blocked WHERE expires_at IS NOT NULL), \
             (SELECT min(ends_at) FROM gristmill.cleanup WHERE ends_at IS NOT NULL))",
            &[],
        )
        .await?;
    let next = row.map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?;
    Ok(next.flatten().map(Timestamp))
}
