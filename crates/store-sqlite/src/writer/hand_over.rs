//! The callers' way to the writer, and its start.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use gristmill_batching::{
    EnqueueError, GroupCommitError, GroupLimits, Seat, Submitter, Ticket, group_commit,
};
use gristmill_model::limits::{
    TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX, WRITER_BYTES_MAX, WRITER_OPERATIONS_MAX,
};
use gristmill_store::StoreError;
use gristmill_store::rules::waiting::{Unclaimed, WaitingWorkers};
use gristmill_store::wakeups::WorkCounter;
use rusqlite::Connection;

use crate::open::LAYOUT;
use crate::open::place::OpenFiles;
use crate::options::{SqliteOptions, Synchronous};
use crate::submit::last_submit;
use crate::transaction::Memory;
use crate::writer::operation::{OPERATION_BYTES, Operation, Work, WriterReply};
use crate::writer::{Writer, run};

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

/// The largest operation that a caller carries out itself. Bytes. A larger one takes longer than the hand-over.
const ALONE_BYTES_MAX: usize = 64 << 10;

/// A caller counts as lone after this number of operations, one after the other.
const LONE_OPERATIONS_MIN: u32 = 8;
/// Once in this many operations, a lone caller lets other tasks of its thread run: each of them would be alone, too, because an
/// operation is over before the next one begins. A yield also wakes another thread of the executor, which costs as much as a
/// hand-over.
const LONE_OPERATIONS_PER_YIELD: u32 = 16;
/// Once in this many operations, the writer's thread carries out the operation of a lone caller, and checkpoints the log if it is
/// long. Until then, these operations add at most 16 MB of payloads to the log.
const LONE_OPERATIONS_PER_CHECKPOINT: u32 = 256;

/// Hands operations to the writer.
///
/// A small transaction takes about 25 us with `synchronous=NORMAL`, and a hand-over to the writer's thread and back takes as long
/// again. So a lone caller with a single job carries out its operation itself. Where COMMIT waits for the disk, that would keep
/// the executor's thread from other work. With concurrent callers, the writer commits many jobs at once.
///
/// A lone caller of another operation first looks for its reply for a moment, as long as that pays, before its thread is put to
/// sleep.
pub(crate) struct HandOver {
    submitter: Submitter<Operation, WriterReply>,
    seat: Arc<Seat<Writer>>,
    synchronous: Synchronous,
    under_way: AtomicUsize,
    /// Single jobs that came one after the other.
    lone: AtomicU32,
    operations: AtomicUsize,
    looks: AtomicU32,
}

impl fmt::Debug for HandOver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HandOver").finish_non_exhaustive()
    }
}

/// Starts the thread of a writer on a connection that `options` opened.
pub(crate) fn start(
    connection: Connection,
    options: SqliteOptions,
    files: Arc<OpenFiles>,
    work: Arc<WorkCounter>,
    waiting: Arc<WaitingWorkers>,
) -> std::result::Result<(HandOver, JoinHandle<()>), StoreError> {
    let path = files.path().to_path_buf();
    let latest = last_submit(&connection).map_err(|failure| failure.at(&path, options.busy_timeout_ms))?;
    let (submitter, committer) = group_commit(GroupLimits {
        operations_max: TRANSACTION_OPERATIONS_MAX,
        weight_max: TRANSACTION_BYTES_MAX,
        queue_operations_max: WRITER_OPERATIONS_MAX,
        queue_weight_max: WRITER_BYTES_MAX,
    });
    let synchronous = options.synchronous;
    let writer = Writer {
        connection,
        memory: Memory::new(options.rng),
        latest: latest.unwrap_or(options.clock.now()),
        clock: options.clock,
        path: path.clone(),
        busy_timeout_ms: options.busy_timeout_ms,
        synchronous: options.synchronous,
        syncs: options.synchronous == Synchronous::Full,
        checkpoint_pages: options.checkpoint_pages,
        checkpoints: true,
        files,
        layout: LAYOUT.id(),
        layout_seen: None,
        on_work: Box::new(move || work.add()),
        waiting,
    };
    let seat = Arc::new(Seat::new(writer));
    let of_thread = seat.clone();
    let thread = std::thread::Builder::new()
        .name("gristmill-store".to_owned())
        .spawn(move || run(&of_thread, committer))
        .map_err(|error| StoreError::Open {
            path,
            reason: format!(
                "its writer's thread cannot be started: {error}; raise the limit of processes and threads (ulimit -u)"
            ),
        })?;
    Ok((HandOver::new(submitter, seat, synchronous), thread))
}

impl HandOver {
    pub fn new(
        submitter: Submitter<Operation, WriterReply>,
        seat: Arc<Seat<Writer>>,
        synchronous: Synchronous,
    ) -> Self {
        HandOver {
            submitter,
            seat,
            synchronous,
            under_way: AtomicUsize::new(0),
            lone: AtomicU32::new(0),
            operations: AtomicUsize::new(0),
            looks: AtomicU32::new(LOOKS_MAX),
        }
    }

    /// Hands an operation over and waits for its reply.
    pub async fn submit(&self, operation: Operation, bytes: usize) -> WriterReply {
        let under_way = UnderWay::new(&self.under_way);
        let is_short = matches!(operation, Operation::Single(_)) && bytes <= ALONE_BYTES_MAX;
        if self.is_lone(&under_way, is_short).await
            && let Some(Some((reply, unclaimed))) =
                self.seat.try_work(|writer| writer.serve_alone(&operation))
        {
            unclaimed.into_iter().for_each(|one| self.give_back(one));
            return reply;
        }
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

    /// Reports whether the caller carries out its operation itself.
    async fn is_lone(&self, under_way: &UnderWay<'_>, is_short: bool) -> bool {
        if !under_way.is_alone() {
            // This orders nothing, and a lost update costs a few hand-overs.
            self.lone.store(0, Ordering::Relaxed);
            return false;
        }
        if !is_short || self.synchronous != Synchronous::Normal {
            return false;
        }
        let lone = self.lone.fetch_add(1, Ordering::Relaxed);
        if lone < LONE_OPERATIONS_MIN || lone.is_multiple_of(LONE_OPERATIONS_PER_CHECKPOINT) {
            return false;
        }
        if lone.is_multiple_of(LONE_OPERATIONS_PER_YIELD) {
            // Other tasks of this thread that are about to call become known.
            yield_once().await;
        }
        self.under_way.load(Ordering::Relaxed) == 1
    }

    /// Makes the writer's thread give back jobs that nobody waits for any more. If the queue is full, a task waits for space;
    /// without a runtime, or once the store is closed, the worker's jobs come back after it has ended.
    pub fn give_back(&self, unclaimed: Unclaimed) {
        let worker = unclaimed.worker;
        let operation = Operation::Work(Work::give_back(unclaimed));
        let reason = match self.submitter.enqueue(operation, OPERATION_BYTES) {
            Ok(_) => return,
            Err(EnqueueError::Full(operation)) => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    let submitter = self.submitter.clone();
                    runtime.spawn(async move { submitter.submit(operation, OPERATION_BYTES).await });
                    return;
                }
                Err(_) => "the writer's queue is full",
            },
            Err(EnqueueError::Closed(_)) => "the store is closed",
        };
        tracing::warn!(
            worker = worker.0,
            reason,
            "jobs that were claimed for a worker that no longer waits come back once it has ended"
        );
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

/// Lets other tasks of the thread run. The task wakes itself: tokio's `yield_now` leaves that to its runtime, and a caller that blocks a
/// thread of the runtime, by another executor, would then wait for ever.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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
