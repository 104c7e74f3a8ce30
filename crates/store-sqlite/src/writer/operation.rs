//! What callers hand to the writer, and its replies.

use std::any::Any;

use gristmill_model::{JobId, NewBatch};
use gristmill_store::StoreError;
use gristmill_store::rules::waiting::Unclaimed;

use crate::failure::Result;
use crate::transaction::Transaction;

/// What an operation answers; its caller knows the type.
pub(crate) type Answer = Box<dyn Any + Send>;

/// What an operation does. It can be carried out again, should its transaction fail.
pub(crate) type Run = Box<dyn Fn(&mut Transaction<'_>) -> Result<Answer> + Send>;

/// An operation.
pub(crate) struct Work {
    pub run: Run,
    pub durability: Durability,
}

impl Work {
    /// Gives back what was claimed for a worker that does not wait any more.
    pub fn give_back(unclaimed: Unclaimed) -> Work {
        let reports = unclaimed.reports();
        Work {
            run: Box::new(move |transaction| {
                let exchanged = transaction.exchange(unclaimed.worker, &reports, None)?;
                Ok(Box::new(exchanged) as Answer)
            }),
            durability: Durability::Needless,
        }
    }
}

/// What batches weigh in the writer's queue. Bytes.
pub(crate) fn weight_of(batches: &[NewBatch]) -> usize {
    batches.iter().map(|batch| batch.payloads.as_str().len()).sum()
}

/// Whether an operation's answer has to wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It does: an acknowledged operation survives as [`Synchronous`](crate::Synchronous) promises.
    Promised,
    /// It does not: a claim or a heartbeat that a loss of power undoes was made by a process that ended with it, and
    /// the jobs are claimable as before. (Whatever is synced later syncs what was written before it, so no lease id that
    /// left a trace is given again.) Spares an idle worker's claim a sync, half of its latency.
    Needless,
}

/// What callers hand to the writer.
#[allow(
    clippy::large_enum_variant,
    reason = "where operations are many, they are single jobs"
)]
pub(crate) enum Operation {
    /// A single job, to be packed with others.
    Single(NewBatch),
    /// Anything else.
    Work(Work),
    /// The last operation.
    Close,
}

/// What the writer replies.
pub(crate) enum Reply {
    Single(JobId),
    Work(Answer),
    Closed,
}

pub(crate) type WriterReply = std::result::Result<Reply, StoreError>;
