//! The operations that callers hand to the writer, and its replies.

use std::any::Any;

use gristmill_model::{JobId, NewBatch};
use gristmill_store::StoreError;
use gristmill_store::rules::waiting::Unclaimed;

use crate::failure::Result;
use crate::transaction::Transaction;

/// The answer of an operation; its caller knows the type.
pub(crate) type Answer = Box<dyn Any + Send>;

/// The code of an operation. It can run again if its transaction fails.
pub(crate) type Run = Box<dyn Fn(&mut Transaction<'_>) -> Result<Answer> + Send>;

/// The approximate size of a small operation in the writer's queue. Bytes.
pub(crate) const OPERATION_BYTES: usize = 200;

/// An operation.
pub(crate) struct Work {
    pub run: Run,
    pub durability: Durability,
}

impl Work {
    /// Gives back jobs that were claimed for a worker that no longer waits.
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

/// The size of batches in the writer's queue. Bytes.
pub(crate) fn weight_of(batches: &[NewBatch]) -> usize {
    batches.iter().map(|batch| batch.payloads.as_str().len()).sum()
}

/// Whether an operation's answer must wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It must: an acknowledged operation survives as [`Synchronous`](crate::Synchronous) promises.
    Promised,
    /// It need not: a claim or a heartbeat that is lost with the power was made by a process that ended with it, and
    /// the jobs are claimable as before. (A later sync includes all earlier writes, so no lease id that left a trace is
    /// given again.) This saves an idle worker's claim a sync, half of its latency.
    Needless,
}

/// A request to the writer.
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

/// A reply of the writer.
pub(crate) enum Reply {
    Single(JobId),
    Work(Answer),
    Closed,
}

pub(crate) type WriterReply = std::result::Result<Reply, StoreError>;
