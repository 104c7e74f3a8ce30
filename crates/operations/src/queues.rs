//! The number of jobs by queue, kind and state.

use gristmill_engine::Engine;
use gristmill_store::KindCounts;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::refused::Refused;
use crate::stats::QueueCounts;

/// The allowed age of the answer.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct QueuesQuery {
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 100 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 0, maximum = 60_000))]
    pub age_ms_max: Option<u64>,
}

/// The queues that the token gives access to.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queues {
    /// By queue and kind.
    queues: Vec<QueueCounts>,
}

impl Queues {
    /// Those of these queues that the caller may see.
    pub fn of(kinds: &[KindCounts], access: &Access) -> Queues {
        let own = kinds.iter().filter(|kind| access.queues.contains(&kind.queue));
        let mut queues: Vec<QueueCounts> = own.map(Into::into).collect();
        queues.sort_by(|a, b| (&a.queue, &a.kind).cmp(&(&b.queue, &b.kind)));
        Queues { queues }
    }
}

/// Lists queues.
pub async fn queues(
    engine: &Engine,
    access: &Access,
    QueuesQuery { .. }: QueuesQuery,
) -> Result<Queues, Refused> {
    Ok(Queues::of(&engine.store().kind_counts(false).await?, access))
}
