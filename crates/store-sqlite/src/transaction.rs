//! One transaction of the writer, and the writer's memory between transactions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, BatchOptions, JobLabels, LeaseId, PackedArray, Positions, Timestamp};
use gristmill_store::options::{DebugRng, is_tagged};
use gristmill_store::rules::contents::{Content, Contents};
use gristmill_store::rules::controls::Controls;
use gristmill_store::rules::lanes::Lanes;
use rusqlite::{Connection, OptionalExtension};

use crate::failure::{Failure, Result};
use crate::labels::{BatchKeys, keys_of, tags_of_batch};
use crate::limits::LEASE_IDS_PER_BLOCK;
use crate::sums::{batch_columns, checked_payloads, damaged, in_batch};

/// The data that all jobs of a stored batch share.
#[derive(Debug)]
pub(crate) struct BatchHead {
    pub lane_id: i64,
    /// Its jobs.
    pub count: u32,
    pub priority: i64,
    pub submitted_at: Timestamp,
    /// When its first slice can be claimed.
    pub run_at: Timestamp,
    pub options: BatchOptions,
    /// Whether some of its jobs have tags.
    pub tagged: bool,
    /// The keys of its jobs, once they were read.
    pub keys: OnceLock<BatchKeys>,
}

impl BatchHead {
    /// The rank; a lower rank is claimed first.
    pub fn rank(&self) -> i64 {
        -self.priority
    }

    /// Reports whether its jobs have keys or tags.
    pub fn is_labelled(&self) -> bool {
        self.tagged || self.options.unique.is_some()
    }
}

/// The writer's memory between transactions.
#[derive(Debug)]
pub(crate) struct Memory {
    pub lanes: Lanes,
    pub controls: Controls,
    /// The ranks of lanes whose jobs age, each with a moment before which it has no claimable slice.
    pub ranks: HashMap<i64, BTreeMap<i64, i64>>,
    /// The lane after which the next claim begins that cannot look into all lanes at once; 0 for the first.
    pub look_after: i64,
    /// How many lanes had ever been deleted when these lanes were read.
    pub lanes_deleted: Option<i64>,
    /// The connection's data version when lanes and controls were last read.
    pub data_version: Option<i64>,
    pub rng: Box<dyn DebugRng>,
    /// Batches that the writer packed itself, not yet added to the totals.
    pub hops: BatchStats,
    contents: Contents<BatchHead>,
    lease_ids: Range<i64>,
}

impl Memory {
    pub fn new(rng: Box<dyn DebugRng>) -> Self {
        Memory {
            lanes: Lanes::default(),
            controls: Controls::default(),
            ranks: HashMap::new(),
            look_after: 0,
            lanes_deleted: None,
            data_version: None,
            rng,
            hops: BatchStats::default(),
            contents: Contents::default(),
            lease_ids: 0..0,
        }
    }

    /// Records a new slice.
    pub fn add_rank(&mut self, lane_id: i64, rank: i64, run_at: i64) {
        if let Some(ranks) = self.ranks.get_mut(&lane_id) {
            let first = ranks.entry(rank).or_insert(run_at);
            *first = run_at.min(*first);
        }
    }

    /// Records the first moment of a rank; `None` if the rank has no slices.
    pub fn know_rank(&mut self, lane_id: i64, rank: i64, run_at: Option<i64>) {
        if let Some(ranks) = self.ranks.get_mut(&lane_id) {
            match run_at {
                Some(run_at) => ranks.insert(rank, run_at),
                None => ranks.remove(&rank),
            };
        }
    }

    /// Forgets everything that may have been rolled back. Lease ids that were taken and not given are lost, which does
    /// no harm.
    pub fn forget(&mut self) {
        self.lanes = Lanes::default();
        self.controls = Controls::default();
        self.ranks.clear();
        self.lanes_deleted = None;
        self.data_version = None;
        self.contents = Contents::default();
        self.lease_ids = 0..0;
    }
}

/// One operation's view of the database, inside of the writer's transaction.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub connection: &'a Connection,
    pub memory: &'a mut Memory,
    /// The time of the operation.
    pub now: Timestamp,
    /// Whether jobs may have become claimable, now or later.
    pub woke: bool,
    /// Lanes in which due jobs have become claimable.
    pub supplied: BTreeSet<i64>,
    /// Whether slots may have become free that a worker waits for.
    pub freed: bool,
}

impl<'a> Transaction<'a> {
    pub fn new(connection: &'a Connection, memory: &'a mut Memory, now: Timestamp) -> Self {
        Transaction {
            connection,
            memory,
            now,
            woke: false,
            supplied: BTreeSet::new(),
            freed: false,
        }
    }
}

impl Transaction<'_> {
    /// Runs one cached statement; returns how many rows it changed.
    pub fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// Returns the first row of a cached query.
    pub fn row<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        map: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row(params, map).optional()?)
    }

    /// Returns all rows of a cached query.
    pub fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        map: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params, map)?;
        Ok(rows.collect::<rusqlite::Result<Vec<T>>>()?)
    }

    /// The head of a batch; an error if there is none.
    pub fn head(&mut self, batch: BatchId) -> Result<Arc<BatchHead>> {
        Ok(self.content(batch, false)?.head)
    }

    /// A batch with its payloads.
    pub fn with_payloads(&mut self, batch: BatchId) -> Result<Content<BatchHead>> {
        self.content(batch, true)
    }

    /// Keeps a batch in memory that was just submitted, because most are claimed soon.
    pub fn keep(&mut self, batch: BatchId, head: BatchHead, payloads: &PackedArray) {
        let content = Content::new(Arc::new(head), Some(payloads.clone()));
        self.memory.contents.put(batch, content);
    }

    /// The keys and tags of a batch whose payloads are in memory. Searches nothing if it has none.
    pub fn labels(&mut self, batch: BatchId, content: &Content<BatchHead>) -> Result<Option<Arc<JobLabels>>> {
        let (head, payloads) = (&content.head, content.payloads.as_ref());
        if !head.is_labelled() || content.labels.is_some() {
            return Ok(content.labels.clone());
        }
        let keys = match (head.options.unique, head.keys.get()) {
            (None, _) => None,
            (Some(_), Some(known)) => Some(known.keys.clone()),
            (Some(_), None) => keys_of(self.connection, batch)?.map(|stored| stored.keys),
        };
        let tags = if head.tagged {
            in_batch(batch, "tagged", tags_of_batch(self.connection, batch))?
        } else {
            Vec::new()
        };
        let positions = Positions::all(payloads.map_or(0, PackedArray::count));
        let labels = JobLabels::new(positions, keys, tags)
            .map_err(|error| damaged(batch, "keyed", error.to_string()))?;
        let labels = Arc::new(labels);
        self.memory
            .contents
            .put(batch, content.clone().with_labels(labels.clone()));
        Ok(Some(labels))
    }

    fn content(&mut self, batch: BatchId, with_payloads: bool) -> Result<Content<BatchHead>> {
        if let Some(content) = self.memory.contents.get(batch)
            && (content.payloads.is_some() || !with_payloads)
        {
            return Ok(content.clone());
        }
        let mut statement = self.connection.prepare_cached(if with_payloads {
            concat!(
                "SELECT b.lane_id, b.priority, b.submitted_at, b.run_at, b.options, b.count, ",
                batch_columns!(),
                " FROM batch b WHERE b.id = ?1"
            )
        } else {
            "SELECT lane_id, priority, submitted_at, run_at, options, count FROM batch WHERE id = ?1"
        })?;
        let mut rows = statement.query([batch.0])?;
        let found = in_batch(batch, "batch", rows.next().map_err(Failure::from))?;
        let row = found.ok_or_else(|| missing(batch))?;
        let payloads = if with_payloads {
            Some(checked_payloads(batch, row, 6)?)
        } else {
            None
        };
        let head = in_batch(batch, "batch", read_head(row))?;
        let content = Content::new(Arc::new(head), payloads);
        self.memory.contents.put(batch, content.clone());
        Ok(content)
    }

    /// A lease id that no process was ever given.
    pub fn next_lease_id(&mut self) -> Result<LeaseId> {
        if self.memory.lease_ids.is_empty() {
            let end = self.row(
                "UPDATE sequence SET next_value = next_value + ?1 WHERE name = 'lease' RETURNING next_value",
                [LEASE_IDS_PER_BLOCK],
                |row| row.get::<_, i64>(0),
            )?;
            let end = end.ok_or_else(|| Failure::Damaged("the sequence of leases is missing".to_owned()))?;
            self.memory.lease_ids = end - LEASE_IDS_PER_BLOCK..end;
        }
        let id = self.memory.lease_ids.start;
        self.memory.lease_ids.start += 1;
        Ok(LeaseId(id))
    }
}

/// Reads a batch's options: `NULL` if all are default.
pub(crate) fn read_options(row: &rusqlite::Row<'_>, column: usize) -> Result<BatchOptions> {
    match row
        .get_ref(column)?
        .as_str_or_null()
        .map_err(rusqlite::Error::from)?
    {
        None => Ok(BatchOptions::default()),
        Some(text) => Ok(serde_json::from_str(text)?),
    }
}

/// Reads a row that begins with lane, priority, submission, moment, options and count.
fn read_head(row: &rusqlite::Row<'_>) -> Result<BatchHead> {
    Ok(BatchHead {
        lane_id: row.get(0)?,
        count: row.get(5)?,
        priority: row.get(1)?,
        submitted_at: Timestamp(row.get(2)?),
        run_at: Timestamp(row.get(3)?),
        options: read_options(row, 4)?,
        tagged: is_tagged(row.get_ref(4)?.as_str_or_null().map_err(rusqlite::Error::from)?)?,
        keys: OnceLock::new(),
    })
}

fn missing(batch: BatchId) -> Failure {
    damaged(batch, "batch", "it has slices, leases or reports, and no row")
}
