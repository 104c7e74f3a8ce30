//! The queues that a caller may touch. A server takes them from the caller's token; a program with a store of its own has all.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use gristmill_model::{BatchId, KeyScope, RunId};
use gristmill_store::{JobFilter, Page, Store};

use crate::refused::Refused;

/// The queues that a caller may access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueScope {
    /// All queues, written `*`.
    All,
    /// Only these queues.
    Named(BTreeSet<String>),
}

impl QueueScope {
    /// The scope of a token's list of queues. A `*` in it stands for all.
    pub fn new<'a>(queues: impl IntoIterator<Item = &'a str>) -> Self {
        let named: BTreeSet<String> = queues.into_iter().map(str::to_owned).collect();
        if named.contains("*") {
            QueueScope::All
        } else {
            QueueScope::Named(named)
        }
    }

    /// Reports whether `queue` is in the scope.
    pub fn contains(&self, queue: &str) -> bool {
        match self {
            QueueScope::All => true,
            QueueScope::Named(named) => named.contains(queue),
        }
    }
}

impl fmt::Display for QueueScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueScope::All => formatter.write_str("*"),
            QueueScope::Named(named) => {
                formatter.write_str(&named.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A caller, as far as operations know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Its name in refusals: the subject of a token.
    pub subject: Arc<str>,
    /// The queues that the caller may use.
    pub queues: QueueScope,
}

impl Access {
    /// The access of a program to its own store.
    pub fn all() -> Self {
        Access {
            subject: "local".into(),
            queues: QueueScope::All,
        }
    }

    /// Refuses a queue that is not in the caller's scope.
    pub fn check_queue(&self, queue: &str) -> Result<(), Refused> {
        if self.queues.contains(queue) {
            return Ok(());
        }
        let queue: String = queue.chars().take(80).collect();
        Err(Refused::forbidden(
            format!(
                "the token of `{}` does not give access to the queue `{queue}`",
                self.subject
            ),
            format!("its queues are: {}", self.queues),
        ))
    }

    /// Refuses keys of a kind, because they could reach jobs on queues outside of the caller's scope.
    pub fn check_key_scope(&self, scope: KeyScope) -> Result<(), Refused> {
        if scope == KeyScope::Kind && self.queues != QueueScope::All {
            return Err(Refused::forbidden(
                "keys of a kind apply to all queues, and the token gives access to some queues only",
                "give `unique` with the scope `queue`",
            ));
        }
        Ok(())
    }

    /// Refuses callers without access to all queues.
    pub fn check_all_queues(&self) -> Result<(), Refused> {
        match self.queues {
            QueueScope::All => Ok(()),
            QueueScope::Named(_) => Err(Refused::forbidden(
                format!(
                    "this operation needs all queues, and the token of `{}` gives access only to: {}",
                    self.subject, self.queues
                ),
                "use a token whose queues are `*`",
            )),
        }
    }

    /// The queue of a filter: the named one, or the caller's only one, or all (`None`).
    pub fn filter_queue(&self, named: Option<String>) -> Result<Option<String>, Refused> {
        match (named, &self.queues) {
            (Some(queue), _) => self.check_queue(&queue).map(|()| Some(queue)),
            (None, QueueScope::All) => Ok(None),
            (None, QueueScope::Named(own)) if own.len() == 1 => Ok(own.first().cloned()),
            (None, QueueScope::Named(_)) => Err(Refused::invalid(
                "the request names no queue, and the token does not give access to all",
                format!("name one of its queues: {}", self.queues),
            )),
        }
    }
}

/// Reports whether the caller may see a batch. A batch of another queue looks like a missing one. Different answers
/// would tell the caller how many batches others submit.
pub async fn has_batch(store: &dyn Store, access: &Access, batch: BatchId) -> Result<bool, Refused> {
    if access.queues == QueueScope::All {
        return Ok(true);
    }
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    let page = Page {
        after: None,
        limit: 1,
    };
    match store.jobs(&filter, page).await?.first() {
        Some(row) => Ok(access.queues.contains(&row.queue)),
        None => Ok(false),
    }
}

/// The id of the run with this name. A run whose first batch is outside of the caller's queues looks like a missing one.
pub async fn run_id(store: &dyn Store, access: &Access, name: &str) -> Result<RunId, Refused> {
    let none = || Refused::not_found("run", name);
    let run = store.run(name).await?.ok_or_else(none)?.id;
    if access.queues != QueueScope::All {
        let first = store.run_batches(run, None, 1).await?;
        if first.iter().any(|row| !access.queues.contains(&row.queue)) {
            return Err(none());
        }
    }
    Ok(run)
}
