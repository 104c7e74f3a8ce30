//! One transaction of an operation: what it reads and locks at once, and what it writes with its COMMIT.
//!
//! A transaction takes two trips to the server, as a rule. The first carries BEGIN, the mark that tells later whether
//! it was committed, and what the operation reads and locks; the second all that it writes, and COMMIT.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gristmill_model::{BatchId, Timestamp};
use gristmill_store::rules::contents::Content;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::database::answers::Pending;
use crate::database::connection::{Mark, Param, Pooled, Writer};
use crate::database::handle_cache::{BatchHead, HandleCache};
use crate::database::sums::read_head;
use crate::database::writes::Writes;
use crate::failure::{Failure, Remedy, Result};

/// Whether an operation's answer has to wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It does: an acknowledged operation is on disk.
    Promised,
    /// It does not: a claim or a heartbeat that a crash of the server undoes leaves the jobs claimable as before, and
    /// the reports of such a lease are refused.
    Needless,
}

/// One operation's view of the database.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub connection: Pooled,
    begin: Pending<()>,
    mark: Pending<Vec<Row>>,
    /// The answers that nobody has waited for yet.
    behind: Vec<Pending<Vec<Row>>>,
    pub cache: Arc<HandleCache>,
    /// The moment of the operation.
    pub now: Timestamp,
    /// The writes that COMMIT carries.
    pub writes: Writes,
    /// The lanes in which it stores batches.
    pub lanes_used: BTreeSet<i64>,
    /// Whether the keys of all that ends by these writes were let go of.
    pub keys_are_released: bool,
    /// Whether jobs came of keys that were let go of, also by a flush.
    pub ran_again: bool,
}

/// The writer's row may have been taken away for its age. Where `$3`, COMMIT does not wait for the disk.
const MARK: &str = "INSERT INTO gristmill.writer (id, operation) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at \
     RETURNING CASE WHEN $3 THEN set_config('synchronous_commit', 'off', true) END";

impl Transaction {
    /// Begins. Nothing is waited for: what fails here shows by the end.
    pub async fn begin(
        mut connection: Pooled,
        cache: Arc<HandleCache>,
        now: Timestamp,
        durability: Durability,
    ) -> Result<Transaction> {
        let writer = connection.writer()?;
        writer.operation += 1;
        let params: Vec<Param> = vec![
            Box::new(writer.id.to_string()),
            Box::new(writer.operation),
            Box::new(durability == Durability::Needless),
        ];
        connection.prepare(MARK).await?;
        connection.is_amid = true;
        let begin = connection.begin("READ COMMITTED");
        let mark = connection.send(MARK, params).await?;
        Ok(Transaction {
            connection,
            begin,
            mark,
            behind: Vec::new(),
            cache,
            now,
            writes: Writes::default(),
            lanes_used: BTreeSet::new(),
            keys_are_released: false,
            ran_again: false,
        })
    }

    /// All rows of a query.
    pub async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.connection.rows(sql, params).await
    }

    /// The first row of a query.
    pub async fn query_opt(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement; gives back how many rows it changed.
    pub async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.connection.execute_prepared(sql, params).await
    }

    /// Runs a command, which no server prepares.
    pub async fn command(&self, sql: &str) -> Result<()> {
        self.connection.command(sql).await
    }

    /// Runs a statement of a handler's, whose only parameter takes JSON.
    pub async fn write_with_json(&self, sql: &str, items: &str) -> Result<()> {
        self.connection.execute_with_json(sql, items).await
    }

    /// Sends a query and leaves its answer for later.
    pub async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        self.connection.send(sql, params).await
    }

    /// What holds for these batches. Those that there are not are left out.
    pub async fn heads(&self, batches: &[BatchId]) -> Result<HashMap<BatchId, Arc<BatchHead>>> {
        let mut heads = HashMap::new();
        let mut missing = Vec::new();
        for batch in batches {
            match self.cache.content(*batch) {
                Some(content) => {
                    heads.insert(*batch, content.head);
                }
                None => missing.push(batch.0),
            }
        }
        if missing.is_empty() {
            return Ok(heads);
        }
        let rows = self
            .query(
                "SELECT id, lane_id, priority, submitted_at, run_at, options, \
                 gristmill.batch_bytes(id, octet_length(payloads), options), count \
                 FROM gristmill.batch WHERE id = ANY ($1)",
                &[&missing],
            )
            .await?;
        for row in &rows {
            let (batch, head) = read_head(row, 0)?;
            let head = Arc::new(head);
            self.cache.keep(batch, Content::new(head.clone(), None));
            heads.insert(batch, head);
        }
        Ok(heads)
    }

    /// Locks batches whose positions come back, against concurrent changes from outside.
    pub async fn share_batches(&self, batches: &[BatchId]) -> Result<()> {
        let mut ids: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
        ids.sort_unstable();
        self.query(
            "SELECT id FROM gristmill.batch WHERE id = ANY ($1) ORDER BY id FOR SHARE",
            &[&ids],
        )
        .await?;
        Ok(())
    }

    /// Writes what has gathered, so that later statements see it.
    pub async fn flush(&mut self) -> Result<()> {
        self.release_keys().await?;
        self.keys_are_released = false;
        let writes = std::mem::take(&mut self.writes);
        (self.writes.woke, self.writes.freed) = (writes.woke, writes.freed);
        let sent = writes.send(&self.connection).await?;
        first_cause(futures::future::join_all(sent).await)
    }

    /// As [`flush`](Transaction::flush), without a wait: what fails shows by the end.
    pub async fn flush_behind(&mut self) -> Result<()> {
        self.release_keys().await?;
        self.keys_are_released = false;
        let writes = std::mem::take(&mut self.writes);
        (self.writes.woke, self.writes.freed) = (writes.woke, writes.freed);
        let sent = writes.send(&self.connection).await?;
        self.behind.extend(sent);
        Ok(())
    }

    /// Writes what has gathered and commits, in one go. An error that says nothing of the server's decision leaves it
    /// unknown.
    pub async fn finish(mut self) -> std::result::Result<(), NotCommitted> {
        let mut answers = vec![self.mark];
        answers.append(&mut self.behind);
        let writes = std::mem::take(&mut self.writes);
        match writes.send(&self.connection).await {
            Ok(writes) => answers.extend(writes),
            Err(failure) => return Err(NotCommitted::Failed(cause(failure, answers).await)),
        }
        let commit = self.connection.commit();
        let mark = self.connection.writer.as_ref().map(Writer::mark);
        let nothing = |()| Vec::new();
        let mut ended = vec![self.begin.await.map(nothing)];
        for answer in answers {
            ended.push(answer.await);
        }
        ended.push(commit.await.map(nothing));
        match first_cause(ended) {
            Ok(()) => {
                self.connection.is_amid = false;
                Ok(())
            }
            Err(failure) => match (failure.remedy(), mark) {
                (Remedy::Reconnect, Some(mark)) => Err(NotCommitted::Unknown(mark, failure)),
                _ => Err(NotCommitted::Failed(failure)),
            },
        }
    }

    /// The failure that another follows from: one of a statement that nobody has waited for yet, perhaps.
    pub async fn cause(&mut self, failure: Failure) -> Failure {
        cause(failure, std::mem::take(&mut self.behind)).await
    }

    /// Gives the transaction up.
    pub async fn roll_back(mut self) {
        if self.connection.roll_back().await.is_ok() {
            self.connection.is_amid = false;
        }
    }
}

/// Why a transaction is not known to be committed.
#[derive(Debug)]
pub(crate) enum NotCommitted {
    /// It was not.
    Failed(Failure),
    /// The connection was lost while it was.
    Unknown(Mark, Failure),
}

/// The failure among these answers that another follows from, if that only says that something failed before it.
async fn cause(failure: Failure, answers: Vec<Pending<Vec<Row>>>) -> Failure {
    if !failure.is_aftermath() {
        return failure;
    }
    let before = first_cause(futures::future::join_all(answers).await);
    before.err().unwrap_or(failure)
}

/// The failure that the others follow from.
fn first_cause(answers: Vec<Result<Vec<Row>>>) -> Result<()> {
    let mut aftermath = None;
    for answer in answers {
        match answer {
            Err(failure) if failure.is_aftermath() => {
                aftermath.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    aftermath.map_or(Ok(()), Err)
}
