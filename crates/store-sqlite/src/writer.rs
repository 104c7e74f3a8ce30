//! The one thread that writes: it takes all operations that have gathered, carries them out in one transaction, and
//! replies after COMMIT. A lone caller with a small operation that needs no sync takes its place for a moment (`hand_over.rs`).
//!
//! If workers of this process wait for jobs that the transaction supplies, it also claims for them, and hands the
//! claims over after COMMIT. If that fails, the transaction is retried without these claims.
//!
//! An operation that fails or panics is rolled back alone. The writer tries three ways, each more expensive than the
//! one before:
//!
//! 1. All operations in one transaction. Those that refuse before they write anything (a run that
//!    exists, a worker that is unknown) just answer so.
//! 2. Where one failed after it had begun to write: once more, with a savepoint for each. (A savepoint
//!    costs a copy of each page that changes under it, which is why they are not there from the start.)
//! 3. Where the transaction as a whole cannot be committed (a full disk): each in a transaction of its
//!    own, so that every operation gets its own answer, and what fits is done.

mod close;
pub(crate) mod hand_over;
pub(crate) mod merge;
pub(crate) mod operation;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::{Committer, Seat};
use gristmill_model::limits::HAND_OVERS_PER_TRANSACTION_MAX;
use gristmill_model::{Clock, Timestamp};
use gristmill_store::rules::waiting::{Unclaimed, WaitingWorker, WaitingWorkers};
use gristmill_store::{Exchanged, StoreError};
use rusqlite::Connection;

use crate::failure::{Failure, Result};
use crate::layout;
use crate::open::place::OpenFiles;
use crate::options::Synchronous;
use crate::query::ended::data_version;
use crate::transaction::{Memory, Transaction};
use crate::writer::merge::{Unit, merge};
use crate::writer::operation::{Operation, Reply, Work, WriterReply};

/// The connection that writes, with all that belongs to it. One thread at a time has it.
pub(crate) struct Writer {
    pub connection: Connection,
    pub memory: Memory,
    pub clock: Arc<dyn Clock>,
    /// The latest time of the clock at which jobs may have become due.
    pub latest: Timestamp,
    pub path: PathBuf,
    pub busy_timeout_ms: u32,
    pub synchronous: Synchronous,
    /// Whether the connection is set to sync at COMMIT.
    pub syncs: bool,
    /// The length of the write-ahead log at which the writer's thread checkpoints it. Pages.
    pub checkpoint_pages: u32,
    /// Whether the connection is set to checkpoint the log at COMMIT.
    pub checkpoints: bool,
    /// The files that the connection has opened.
    pub files: Arc<OpenFiles>,
    /// The layout of the file when this program opened it.
    pub layout: String,
    /// The connection's data version when the layout was last compared.
    pub layout_seen: Option<i64>,
    /// Called after a COMMIT that may have made jobs claimable.
    pub on_work: Box<dyn Fn() + Send>,
    /// Waiting workers: the transaction that supplies jobs also claims them for these workers.
    pub waiting: Arc<WaitingWorkers>,
}

/// The thread's work, until the store is closed or all its handles are gone.
pub(crate) fn run(seat: &Seat<Writer>, mut committer: Committer<Operation, WriterReply>) {
    while let Some(group) = committer.next_group() {
        let merged = merge(group);
        let Some((replies, unclaimed)) = seat.work(|writer| writer.serve_group(&merged.units())) else {
            // A panic of a lone caller. The committer's end answers everything as closed.
            tracing::error!("the store's writer has panicked");
            return;
        };
        for (responder, reply) in merged.responders.into_iter().zip(replies) {
            responder.reply(reply);
        }
        if !unclaimed.is_empty() {
            seat.work(|writer| writer.give_back(unclaimed));
        }
        if let Some(closing) = merged.closing {
            // The committer's end answers everything that is queued behind it as closed.
            drop((seat.remove(), committer));
            closing.reply(Ok(Reply::Closed));
            return;
        }
    }
    drop(seat.remove());
}

/// The replies to the operations of a group, in their order.
#[derive(Default)]
struct Outcome {
    replies: Vec<WriterReply>,
    /// Whether jobs may have become claimable, besides those in `supplied`.
    woke: bool,
    /// Lanes in which due jobs have become claimable.
    supplied: BTreeSet<i64>,
    /// The claims for waiting workers.
    handed_over: Vec<(WaitingWorker, Exchanged)>,
}

impl Outcome {
    fn failed(units: &[Unit<'_>], error: &StoreError) -> Outcome {
        let operations = units.iter().map(Unit::len).sum();
        Outcome {
            replies: std::iter::repeat_with(|| Err(error.clone()))
                .take(operations)
                .collect(),
            ..Outcome::default()
        }
    }
}

/// The ways to try a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Plainly, with claims for waiting workers.
    HandingOver,
    Plain,
    Savepoints,
}

/// Why a transaction failed.
enum Stop {
    /// It could not begin; a retry would take as long and fail in the same way.
    CannotBegin(StoreError),
    /// It was rolled back.
    RolledBack(StoreError),
}

impl Writer {
    /// Carries out an operation of a lone caller, in its thread: the reply, and the claims that nobody waits for any more, which
    /// the writer's thread gives back. `None` if another process writes at the moment: that is worth a wait only where no
    /// caller's thread is held up.
    pub fn serve_alone(&mut self, operation: &Operation) -> Option<(WriterReply, Vec<Unclaimed>)> {
        let unit = match operation {
            Operation::Single(single) => Unit::Singles(std::slice::from_ref(single)),
            Operation::Work(work) => Unit::Work(work),
            Operation::Close => return None,
        };
        // A checkpoint waits for the disk.
        self.set_checkpoints(false).ok()?;
        // An error here would be one of the busy handler, which SQLite sets without work.
        let wait = |writer: &Writer, milliseconds: u32| {
            let _ = writer
                .connection
                .busy_timeout(Duration::from_millis(milliseconds.into()));
        };
        wait(self, 0);
        let (mut replies, unclaimed) = self.serve(&[unit]);
        wait(self, self.busy_timeout_ms);
        let reply = replies.pop()?;
        let is_locked = matches!(reply, Err(StoreError::Locked { .. }));
        assert!(
            !is_locked || unclaimed.is_empty(),
            "nothing is claimed without a transaction"
        );
        (!is_locked).then_some((reply, unclaimed))
    }

    /// Carries out the units of a group in the writer's thread, which may wait for the disk.
    fn serve_group(&mut self, units: &[Unit<'_>]) -> (Vec<WriterReply>, Vec<Unclaimed>) {
        if let Err(error) = self.set_checkpoints(true) {
            tracing::warn!(%error, "the write-ahead log is not checkpointed");
        }
        self.serve(units)
    }

    fn set_checkpoints(&mut self, wanted: bool) -> std::result::Result<(), StoreError> {
        if wanted != self.checkpoints {
            let pages = if wanted { self.checkpoint_pages } else { 0 };
            self.connection
                .pragma_update(None, "wal_autocheckpoint", pages)
                .map_err(|error| Failure::from(error).at(&self.path, self.busy_timeout_ms))?;
            self.checkpoints = wanted;
        }
        Ok(())
    }

    /// Carries out the units and hands over what was claimed for workers that wait: the replies, and the claims that nobody
    /// waits for any more.
    fn serve(&mut self, units: &[Unit<'_>]) -> (Vec<WriterReply>, Vec<Unclaimed>) {
        let mut outcome = self.carry_out(units);
        let mut unclaimed = Vec::new();
        for (waiting, exchanged) in outcome.handed_over.drain(..) {
            unclaimed.extend(waiting.answer(exchanged));
        }
        if outcome.woke || !outcome.supplied.is_empty() {
            (self.on_work)();
        }
        (outcome.replies, unclaimed)
    }

    fn carry_out(&mut self, units: &[Unit<'_>]) -> Outcome {
        let ways: &[Way] = match units.len() {
            0 => return Outcome::default(),
            1 => &[Way::HandingOver, Way::Plain],
            _ => &[Way::HandingOver, Way::Plain, Way::Savepoints],
        };
        let skipped = usize::from(self.waiting.is_empty());
        for way in &ways[skipped..] {
            match self.together(units, *way) {
                Ok(outcome) => return outcome,
                Err(Stop::CannotBegin(error)) => return Outcome::failed(units, &error),
                Err(Stop::RolledBack(error)) => match units {
                    [alone] if alone.len() == 1 && *way != Way::HandingOver => {
                        return Outcome::failed(units, &error);
                    }
                    _ => {
                        tracing::warn!(%error, units = units.len(), ?way, "a transaction was rolled back and is tried again")
                    }
                },
            }
        }
        self.one_by_one(units)
    }

    /// Carries out all units in one transaction.
    fn together(&mut self, units: &[Unit<'_>], way: Way) -> std::result::Result<Outcome, Stop> {
        let outcome = self.commit_or_roll_back(units, way)?;
        self.check_files()?;
        Ok(outcome)
    }

    /// Commits all units. A panic outside of an operation, such as one of the clock, rolls the transaction back like an error:
    /// without this, the panic of one caller would close the store for all. It covers nothing after COMMIT, because what is
    /// committed must not be tried again.
    fn commit_or_roll_back(&mut self, units: &[Unit<'_>], way: Way) -> std::result::Result<Outcome, Stop> {
        let commit = AssertUnwindSafe(|| self.commit(units, way));
        catch_unwind(commit).unwrap_or_else(|panic| {
            let text = gristmill_store::rules::panic_text(&*panic);
            Err(self.roll_back(StoreError::Panicked(text)))
        })
    }

    fn commit(&mut self, units: &[Unit<'_>], way: Way) -> std::result::Result<Outcome, Stop> {
        self.set_sync(units).map_err(Stop::CannotBegin)?;
        self.command("BEGIN IMMEDIATE").map_err(Stop::CannotBegin)?;
        self.check_layout()?;
        let mut outcome = Outcome::default();
        let (now, latest) = (self.clock.now(), self.latest);
        if now.is_set_back_from(latest) {
            self.guarded(|transaction| transaction.keep_due(latest))
                .map_err(|error| self.roll_back(error))?;
            outcome.woke = true;
        }
        for unit in units {
            if way == Way::Savepoints {
                self.command_or_roll_back("SAVEPOINT operation")?;
            }
            let changes_before = self.connection.total_changes();
            match self.attempt(*unit, &mut outcome) {
                Ok(replies) => outcome.replies.extend(replies.into_iter().map(Ok)),
                Err(error) => {
                    let wrote = self.connection.total_changes() != changes_before;
                    if self.connection.is_autocommit() || (wrote && way != Way::Savepoints) {
                        return Err(self.roll_back(error));
                    }
                    if wrote {
                        self.command_or_roll_back("ROLLBACK TO operation")?;
                        self.memory.forget();
                    }
                    let refusals = Outcome::failed(&[*unit], &error).replies;
                    outcome.replies.extend(refusals);
                }
            }
            if way == Way::Savepoints {
                self.command_or_roll_back("RELEASE operation")?;
            }
        }
        if way == Way::HandingOver {
            self.claim_for_waiting(&mut outcome)
                .map_err(|error| self.roll_back(error))?;
        }
        self.command_or_roll_back("COMMIT")?;
        self.latest = if now.is_set_back_from(latest) {
            now
        } else {
            latest.max(now)
        };
        Ok(outcome)
    }

    /// Stops once a newer program has changed the layout of the file, and forgets lanes that another process has
    /// deleted. Usually nobody else has written since the last transaction, and no row is read.
    fn check_layout(&mut self) -> std::result::Result<(), Stop> {
        let seen = data_version(&self.connection)
            .and_then(|version| {
                if self.layout_seen == Some(version) {
                    Ok(true)
                } else {
                    self.layout_seen = Some(version);
                    self.memory.forget_deleted_lanes(&self.connection)?;
                    Ok(layout::id(&self.connection)? == self.layout)
                }
            })
            .map_err(|failure| failure.at(&self.path, self.busy_timeout_ms));
        let error = match seen {
            Ok(true) => return Ok(()),
            Ok(false) => StoreError::LayoutChanged {
                path: self.path.clone(),
            },
            Err(error) => error,
        };
        self.layout_seen = None;
        let (Stop::RolledBack(error) | Stop::CannotBegin(error)) = self.roll_back(error);
        Err(Stop::CannotBegin(error))
    }

    /// Acknowledges nothing once the file or its log is no longer at its path: the commits are then in a file that
    /// others do not find. Checked after COMMIT, so that no acknowledged operation is in such a file.
    fn check_files(&mut self) -> std::result::Result<(), Stop> {
        self.files.check().map_err(|error| {
            self.memory.forget();
            Stop::CannotBegin(error)
        })
    }

    /// Makes COMMIT wait for the disk if one of the units needs it. Possible only between transactions.
    fn set_sync(&mut self, units: &[Unit<'_>]) -> std::result::Result<(), StoreError> {
        let needed = self.synchronous == Synchronous::Full && units.iter().any(Unit::needs_sync);
        if needed != self.syncs {
            let mode = if needed {
                Synchronous::Full
            } else {
                Synchronous::Normal
            };
            self.connection
                .pragma_update(None, "synchronous", mode.pragma())
                .map_err(|error| Failure::from(error).at(&self.path, self.busy_timeout_ms))?;
            self.syncs = needed;
        }
        Ok(())
    }

    /// Carries out each operation in a transaction of its own.
    fn one_by_one(&mut self, units: &[Unit<'_>]) -> Outcome {
        let mut all = Outcome::default();
        for operation in units.iter().flat_map(|unit| unit.split()) {
            let one = self.together(&[operation], Way::Plain).unwrap_or_else(|stop| {
                let (Stop::CannotBegin(error) | Stop::RolledBack(error)) = stop;
                Outcome::failed(&[operation], &error)
            });
            all.woke |= one.woke;
            all.supplied.extend(one.supplied);
            all.replies.extend(one.replies);
        }
        all
    }

    /// Runs one unit.
    fn attempt(
        &mut self,
        unit: Unit<'_>,
        outcome: &mut Outcome,
    ) -> std::result::Result<Vec<Reply>, StoreError> {
        self.guarded(|transaction| {
            let replies = unit.run(transaction)?;
            outcome.woke |= transaction.woke || transaction.freed;
            outcome.supplied.append(&mut transaction.supplied);
            Ok(replies)
        })
    }

    /// Claims the jobs that this transaction has supplied for workers that wait for them, in the order in which the
    /// workers came.
    fn claim_for_waiting(&mut self, outcome: &mut Outcome) -> std::result::Result<(), StoreError> {
        let waiting = self.waiting.clone();
        for _ in 0..HAND_OVERS_PER_TRANSACTION_MAX {
            let lanes = &self.memory.lanes;
            let supplied = outcome.supplied.iter().filter_map(|lane| lanes.get(*lane));
            let supplied: Vec<_> = supplied.collect();
            let wants_some = |waiting: &WaitingWorker| supplied.iter().any(|lane| waiting.want.admits(lane));
            let Some(waiting) = waiting.take(wants_some) else {
                return Ok(());
            };
            let claimed = self.guarded(|transaction| {
                transaction.supplied = std::mem::take(&mut outcome.supplied);
                let claimed = transaction.exchange(waiting.worker, &[], Some(&waiting.want));
                outcome.supplied.append(&mut transaction.supplied);
                claimed
            });
            match claimed {
                Ok(exchanged) if exchanged.lease.is_some() => outcome.handed_over.push((waiting, exchanged)),
                // The worker looks itself, and finds out why there is nothing for it.
                Ok(_) | Err(StoreError::WorkerUnknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives back the claims for workers that no longer wait.
    fn give_back(&mut self, mut unclaimed: Vec<Unclaimed>) {
        // Each round removes at least one waiting worker, so the loop ends.
        while let Some(one) = unclaimed.pop() {
            let work = Work::give_back(one);
            let mut outcome = self.carry_out(&[Unit::Work(&work)]);
            for (waiting, exchanged) in outcome.handed_over.drain(..) {
                unclaimed.extend(waiting.answer(exchanged));
            }
            if outcome.woke || !outcome.supplied.is_empty() {
                (self.on_work)();
            }
        }
    }

    /// Works on the transaction; a panic becomes an error like others.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> std::result::Result<T, StoreError> {
        let (connection, memory, clock) = (&self.connection, &mut self.memory, &self.clock);
        let run = AssertUnwindSafe(|| work(&mut Transaction::new(connection, memory, clock.now())));
        match catch_unwind(run) {
            Ok(result) => result.map_err(|failure: Failure| failure.at(&self.path, self.busy_timeout_ms)),
            Err(panic) => {
                self.memory.forget();
                Err(StoreError::Panicked(gristmill_store::rules::panic_text(&*panic)))
            }
        }
    }

    fn roll_back(&mut self, error: StoreError) -> Stop {
        self.memory.forget();
        // SQLite has rolled back itself after some errors, such as a full disk.
        if !self.connection.is_autocommit()
            && let Err(error) = self.command("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        Stop::RolledBack(error)
    }

    fn command_or_roll_back(&mut self, sql: &str) -> std::result::Result<(), Stop> {
        self.command(sql).map_err(|error| self.roll_back(error))
    }

    fn command(&self, sql: &str) -> std::result::Result<(), StoreError> {
        let run = || -> Result<()> {
            self.connection.prepare_cached(sql)?.execute([])?;
            Ok(())
        };
        run().map_err(|failure| failure.at(&self.path, self.busy_timeout_ms))
    }
}
