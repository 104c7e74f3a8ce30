//! The most common submit: one batch alone. It needs only two rows, so it is one statement, which is a transaction of
//! its own and takes one round trip.

use std::sync::Arc;

use gristmill_model::{BatchId, NewBatch, Positions};
use gristmill_store::StoreError;
use gristmill_store::options::options_text;
use gristmill_store::rules::lanes::LaneName;
use tokio_postgres::Row;

use crate::database::connection::Param;
use crate::database::handle_cache::BatchHead;
use crate::database::packed_text::PackedText;
use crate::database::pools::Purpose;
use crate::database::sums::batch_sum;
use crate::database::writes::lane;
use crate::database::{Attempt, Database, Known};
use crate::failure::{Failure, Remedy, Result};
use crate::multirange::Multirange;
use crate::submit::head_of;

/// Stores a batch and its slice. The operation number in the writer's row becomes the negated id of the batch; by that
/// a lost answer is looked up.
const LONE: &str = include_str!("../statements/single_statement_submit.sql");

impl Database {
    /// Stores one batch that [`is_lone`](crate::submit::is_lone). `None` if its lane is gone and nothing was stored;
    /// then a transaction makes it again.
    pub async fn submit_lone(
        self: &Arc<Self>,
        batch: &NewBatch,
    ) -> std::result::Result<Option<(BatchId, BatchHead)>, StoreError> {
        let Some(lane) = self.cache.lanes().find(LaneName::of(batch)) else {
            return Ok(None);
        };
        let head = head_of(batch, lane, self.now());
        let options = options_text(&batch.options, !batch.tags.is_empty())
            .map_err(|error| Failure::from(error).at(self.address.as_str()))?;
        let batch = Lone {
            batch,
            head: &head,
            options: options.as_deref(),
        };
        let stored = match self.claim_for_waiting(&batch) {
            Some(claim) => self.submit_claimed(batch, claim).await?,
            None => {
                let attempt = move || self.send_lone(LONE, move |writer| batch.params(writer), read_stored);
                match self.until_known(attempt).await? {
                    Known::Answered(batch) => batch,
                    Known::Committed((), operation) => Some(BatchId(-operation)),
                }
            }
        };
        Ok(stored.map(|stored| (stored, head)))
    }

    /// Sends a statement that stores a batch, and waits for its answer. `read` takes the batch's id from it and whether
    /// others must be woken. `None` if the batch's lane is gone.
    pub async fn send_lone<T>(
        self: &Arc<Self>,
        sql: &str,
        params: impl Fn(&str) -> Vec<Param>,
        read: impl Fn(&Row) -> Result<StoredLone<T>>,
    ) -> Attempt<Option<T>, ()> {
        let sent = async {
            let mut connection = self.writer(Purpose::Work).await?;
            let mark = connection.writer()?.lone_mark();
            let stored = connection.send(sql, params(&mark.writer)).await?;
            connection.is_amid = true;
            Ok((connection, mark, stored))
        };
        let (mut connection, mark, stored) = match sent.await {
            Ok(sent) => sent,
            Err(failure) => return Attempt::Failed(failure),
        };
        // Right behind the commit: others cannot see the batch before it.
        let told = self.tell_others_over(&connection).await;
        let stored = stored.await.and_then(|rows| match rows.first() {
            Some(row) => read(row).map(Some),
            None => Ok(None),
        });
        let mut wakes = true;
        let attempt = match stored {
            Ok(None) => {
                connection.is_amid = false;
                Attempt::Done(None)
            }
            Ok(Some(stored)) => {
                connection.is_amid = false;
                if let Some(writer) = &mut connection.writer {
                    writer.lone_batch = stored.batch.0;
                }
                wakes = stored.wakes;
                Attempt::Done(Some(stored.answer))
            }
            Err(failure) if failure.remedy() == Remedy::Reconnect => Attempt::Unknown((), mark, failure),
            Err(failure) => {
                connection.is_amid = false;
                Attempt::Failed(failure)
            }
        };
        if wakes || told.is_some() {
            self.work_came_over(connection, told);
        }
        attempt
    }
}

/// A batch that [`is_lone`](crate::submit::is_lone), and the rest of its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lone<'a> {
    pub batch: &'a NewBatch,
    pub head: &'a BatchHead,
    pub options: Option<&'a str>,
}

/// The answer of a statement that stores a lone batch.
pub(crate) struct StoredLone<T> {
    pub batch: BatchId,
    /// Whether somebody else may claim the batch.
    pub wakes: bool,
    pub answer: T,
}

fn read_stored(row: &Row) -> Result<StoredLone<BatchId>> {
    let batch = BatchId(-row.try_get::<_, i64>(0)?);
    Ok(StoredLone {
        batch,
        wakes: true,
        answer: batch,
    })
}

impl Lone<'_> {
    /// The parameters of the statement: the writer, and the columns of both rows.
    pub fn params(&self, writer: &str) -> Vec<Param> {
        let (batch, head) = (self.batch, self.head);
        let count = batch.payloads.count();
        vec![
            Box::new(writer.to_owned()),
            Box::new(head.submitted_at.0),
            Box::new(head.run_at.0),
            Box::new(lane(head.lane_id)),
            Box::new(count.cast_signed()),
            Box::new(head.priority),
            Box::new(self.options.map(str::to_owned)),
            Box::new(PackedText(batch.payloads.clone())),
            Box::new(batch.options.expires_at.map(|moment| moment.0)),
            Box::new(head.job_bytes.cast_signed()),
            Box::new(head.rank()),
            Box::new(Multirange(Positions::all(count))),
            Box::new(batch_sum(head, self.options, &batch.payloads)),
        ]
    }
}
