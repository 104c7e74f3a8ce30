//! One transaction of an operation: its reads and locks at once, and its writes with COMMIT.
//!
//! A transaction normally takes two round trips to the server. The first carries BEGIN, the mark that later shows
//! whether it was committed, and the operation's reads and locks; the second carries all writes and COMMIT.

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

/// Whether an operation's answer must wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It must: an acknowledged operation is on disk.
    Promised,
    /// It need not: if a crash of the server undoes a claim or a heartbeat, the jobs are claimable as before, and the
    /// reports of such a lease are refused.
    Needless,
}

/// One operation's view of the database.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub connection: Pooled,
    begin: Pending<()>,
    /// The answers that nobody has awaited yet; the first is that to the mark.
    behind: Vec<Pending<Vec<Row>>>,
    pub cache: Arc<HandleCache>,
    /// The time of the operation.
    pub now: Timestamp,
    /// The writes that COMMIT carries.
    pub writes: Writes,
    /// The lanes in which it stores batches.
    pub lanes_used: BTreeSet<i64>,
    /// Whether the keys of all jobs that end with these writes were released.
    pub keys_are_released: bool,
    /// Whether released keys made jobs claimable, including those of a flush.
    pub ran_again: bool,
}

/// Marks the transaction. The writer's row may have been deleted because of its age. If `$3`, COMMIT does not wait for
/// the disk.
const MARK: &str = "INSERT INTO gristmill.writer (id, operation) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET operation = excluded.operation, at = excluded.at \
     RETURNING CASE WHEN $3 THEN set_config('synchronous_commit', 'off', true) END";

impl Transaction {
    /// Begins the transaction without waiting. A failure of this shows at the end.
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
            behind: vec![mark],
            cache,
            now,
            writes: Writes::default(),
            lanes_used: BTreeSet::new(),
            keys_are_released: false,
            ran_again: false,
        })
    }

    /// Returns all rows of a query.
    pub async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.connection.rows(sql, params).await
    }

    /// Returns the first row of a query.
    pub async fn query_opt(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement; returns how many rows it changed.
    pub async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.connection.execute_prepared(sql, params).await
    }

    /// Runs a command that servers do not prepare.
    pub async fn command(&self, sql: &str) -> Result<()> {
        self.connection.command(sql).await
    }

    /// Runs a statement of a handler, whose only parameter takes JSON.
    pub async fn write_with_json(&self, sql: &str, items: &str) -> Result<()> {
        self.connection.execute_with_json(sql, items).await
    }

    /// Sends a query without waiting for its answer.
    pub async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        self.connection.send(sql, params).await
    }

    /// The heads of these batches. Missing batches are left out.
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

    /// Writes what has gathered, so that later statements see it.
    pub async fn flush(&mut self) -> Result<()> {
        self.release_keys().await?;
        self.keys_are_released = false;
        let writes = std::mem::take(&mut self.writes);
        self.writes.news = writes.news;
        let sent = writes.send(&self.connection).await?;
        first_cause(futures::future::join_all(sent).await)
    }

    /// Does the same as [`flush`](Transaction::flush) without waiting: a failure shows at the end.
    pub async fn flush_behind(&mut self) -> Result<()> {
        self.release_keys().await?;
        self.keys_are_released = false;
        let writes = std::mem::take(&mut self.writes);
        self.writes.news = writes.news;
        let sent = writes.send(&self.connection).await?;
        self.behind.extend(sent);
        Ok(())
    }

    /// Sends the gathered writes and commits, at once. After an error that does not show the server's decision, the
    /// result is unknown.
    pub async fn finish(mut self) -> std::result::Result<(), NotCommitted> {
        let mut answers = std::mem::take(&mut self.behind);
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

    /// The failure behind another one, perhaps that of a statement that nobody has awaited yet.
    pub async fn cause(&mut self, failure: Failure) -> Failure {
        cause(failure, std::mem::take(&mut self.behind)).await
    }

    /// Rolls the transaction back.
    pub async fn roll_back(mut self) {
        if self.connection.roll_back().await.is_ok() {
            self.connection.is_amid = false;
        }
    }
}

/// Why a transaction is not known to be committed.
#[derive(Debug)]
pub(crate) enum NotCommitted {
    /// It was not committed.
    Failed(Failure),
    /// The connection was lost during the commit.
    Unknown(Mark, Failure),
}

/// The failure among these answers behind another one, if the latter only says that an earlier statement failed.
async fn cause(failure: Failure, answers: Vec<Pending<Vec<Row>>>) -> Failure {
    if !failure.is_aftermath() {
        return failure;
    }
    let before = first_cause(futures::future::join_all(answers).await);
    before.err().unwrap_or(failure)
}

/// The failure that caused the others.
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
