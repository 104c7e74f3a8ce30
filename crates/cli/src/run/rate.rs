//! The rate limit of a run's queue, while the run works.

use std::sync::Arc;

use gristmill_model::{Control, Effect, Scope};
use gristmill_store::{ControlFilter, Store, StoreError};

use crate::arguments::rate::Rate;

/// Limits the attempts that begin on the queue.
pub async fn set(store: &Arc<dyn Store>, queue: &str, rate: Rate) -> Result<(), StoreError> {
    let control = Control {
        scope: scope_of(queue),
        effect: Effect::Rate {
            jobs: rate.jobs,
            period_ms: rate.period_ms,
            burst: (rate.jobs / 10).max(1),
        },
    };
    store.put_controls(vec![control]).await
}

/// Lifts the limit.
pub async fn lift(store: &Arc<dyn Store>, queue: &str) -> Result<(), StoreError> {
    let filter = ControlFilter {
        effects: vec!["rate"],
        scope: Some(scope_of(queue)),
        reason: None,
    };
    store.delete_controls(filter).await.map(|_| ())
}

fn scope_of(queue: &str) -> Scope {
    Scope {
        queue: Some(queue.to_owned()),
        ..Scope::default()
    }
}
