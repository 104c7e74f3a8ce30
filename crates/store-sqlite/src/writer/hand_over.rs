//! The callers' way to the writer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use gristmill_batching::{EnqueueError, GroupCommitError, Submitter, Ticket};
use gristmill_store::StoreError;

use crate::writer::operation::{Operation, WriterReply};

/// How often a lone caller looks for the reply before it releases its thread. A look with its pauses takes 0.1 to 0.2
/// us, depending on the processor, so this is 60 to 120 us, enough for a small transaction that is not synced. Half as
/// many were too few: each wait without success ends in a wake-up, which makes the next wait longer.
const LOOKS_MAX: u32 = 600;
/// How often a caller looks if the last replies took longer.
const LOOKS_MIN: u32 = 2;
/// Once in this many operations, the whole wait is tried again.
const OPERATIONS_PER_PROBE: usize = 64;
/// Pauses of the processor between two looks.
const PAUSES_PER_LOOK: u32 = 4;

/// Hands operations to the writer.
///
/// A small transaction of a lone caller takes about 25 us with `synchronous=NORMAL`, and putting the thread of the
/// executor to sleep and waking it takes as long again. So a caller that is alone first looks for its reply for a
/// moment, as long as that pays. With concurrent callers the thread has other work.
#[derive(Debug)]
pub(crate) struct HandOver {
    submitter: Submitter<Operation, WriterReply>,
    under_way: AtomicUsize,
    operations: AtomicUsize,
    looks: AtomicU32,
}

impl HandOver {
    pub fn new(submitter: Submitter<Operation, WriterReply>) -> Self {
        HandOver {
            submitter,
            under_way: AtomicUsize::new(0),
            operations: AtomicUsize::new(0),
            looks: AtomicU32::new(LOOKS_MAX),
        }
    }

    /// Hands an operation over and waits for its reply.
    pub async fn submit(&self, operation: Operation, bytes: usize) -> WriterReply {
        let under_way = UnderWay::new(&self.under_way);
        let reply = match self.submitter.enqueue(operation, bytes) {
            Ok(ticket) if under_way.is_alone() => self.look_then_wait(ticket).await,
            Ok(ticket) => ticket.await,
            Err(EnqueueError::Full(operation)) => self.submitter.submit(operation, bytes).await,
            Err(EnqueueError::Closed(_)) => Err(GroupCommitError::Closed),
        };
        match reply {
            Ok(reply) => reply,
            Err(GroupCommitError::Closed) => Err(StoreError::Closed),
            Err(GroupCommitError::Abandoned) => Err(StoreError::Database(
                "the writer has stopped in the middle of an operation".to_owned(),
            )),
        }
    }

    /// Hands over an operation for whose reply nobody waits. If the queue is full, a task waits for space; without a
    /// runtime, the worker's jobs come back once it has ended.
    pub fn give_back(&self, operation: Operation, bytes: usize) {
        if let Err(EnqueueError::Full(operation)) = self.submitter.enqueue(operation, bytes)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let submitter = self.submitter.clone();
            runtime.spawn(async move { submitter.submit(operation, bytes).await });
        }
    }

    async fn look_then_wait(&self, ticket: Ticket<WriterReply>) -> Result<WriterReply, GroupCommitError> {
        let mut ticket = pin!(ticket);
        if let Some(reply) = self.look(ticket.as_mut()) {
            return reply;
        }
        ticket.await
    }

    fn look(
        &self,
        mut ticket: Pin<&mut Ticket<WriterReply>>,
    ) -> Option<Result<WriterReply, GroupCommitError>> {
        // These numbers order nothing, and a lost update costs a few looks.
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let usual = self.looks.load(Ordering::Relaxed);
        let looks = if number.is_multiple_of(OPERATIONS_PER_PROBE) {
            LOOKS_MAX
        } else {
            usual
        };
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..looks {
            if let Poll::Ready(reply) = ticket.as_mut().poll(&mut context) {
                // Straight back to the whole wait: a reply that takes 125 looks is never found by doubling a few.
                self.looks.store(LOOKS_MAX, Ordering::Relaxed);
                return Some(reply);
            }
            for _ in 0..PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
        }
        self.looks.store((usual / 2).max(LOOKS_MIN), Ordering::Relaxed);
        None
    }
}

/// Counts an operation for as long as its caller waits.
struct UnderWay<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        let before = count.fetch_add(1, Ordering::Relaxed);
        UnderWay { count, before }
    }

    fn is_alone(&self) -> bool {
        self.before == 0
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
