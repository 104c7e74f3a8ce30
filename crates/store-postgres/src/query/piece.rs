//! The places of the jobs of batches.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::{BatchId, JobState, Timestamp};
use gristmill_store::rules::piece::Piece;

use crate::database::columns::{number, read_pauses, read_state};
use crate::database::snapshot::Snapshot;
use crate::failure::Result;
use crate::multirange::Multirange;

/// The places of all jobs of these batches. A report is identified by its first position.
pub(crate) async fn pieces(
    snapshot: &Snapshot,
    now: Timestamp,
    batches: &[i64],
) -> Result<HashMap<BatchId, Vec<Piece>>> {
    let rows = snapshot
        .query(
            "SELECT batch_id, positions, attempt, state, finished_at, worker, first_position, 0, NULL, NULL::bigint \
             FROM gristmill.reported WHERE batch_id = ANY ($1) \
             UNION ALL SELECT batch_id, positions, attempt, 'waiting', run_at, NULL, 0, rank, NULL, NULL \
             FROM gristmill.slice WHERE batch_id = ANY ($1) \
             UNION ALL SELECT batch_id, positions, attempt, 'blocked', 0, NULL, 0, rank, pauses::text, NULL \
             FROM gristmill.blocked WHERE batch_id = ANY ($1) \
             UNION ALL SELECT h.batch_id, h.positions, h.attempt, 'running', 0, w.name, 0, h.rank, h.pauses::text, h.claimed_at \
             FROM gristmill.held h LEFT JOIN gristmill.worker w ON w.id = h.worker_id WHERE h.batch_id = ANY ($1)",
            &[&batches],
        )
        .await?;
    let mut all: HashMap<BatchId, Vec<Piece>> = HashMap::new();
    for row in &rows {
        let positions = row.try_get::<_, Multirange>(1)?.0;
        let attempt = number(row, 2)?;
        let moment = Timestamp(row.try_get(4)?);
        let worker: Option<Arc<str>> = row.try_get::<_, Option<&str>>(5)?.map(Arc::from);
        let rank = row.try_get::<_, Option<i32>>(7)?.map(i64::from);
        let piece = match read_state(row, 3)? {
            JobState::Waiting => Piece::claimable(positions, attempt, rank.unwrap_or(0), moment, now),
            JobState::Blocked => Piece::blocked(positions, attempt, rank, read_pauses(row, 8)?),
            JobState::Running => {
                let claimed_at = row.try_get::<_, Option<i64>>(9)?.map(Timestamp);
                Piece::running(positions, attempt, rank, claimed_at, worker, read_pauses(row, 8)?)
            }
            state => Piece {
                positions,
                state,
                attempt,
                rank: None,
                run_at: None,
                pauses: None,
                finished_at: Some(moment),
                claimed_at: None,
                worker,
                report: Some(i64::from(row.try_get::<_, i32>(6)?)),
            },
        };
        all.entry(BatchId(row.try_get(0)?)).or_default().push(piece);
    }
    Ok(all)
}
