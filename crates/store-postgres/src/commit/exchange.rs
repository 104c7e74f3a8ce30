//! Exchanges: they commit reports and claim jobs, in one transaction. It takes two round trips, or three if jobs wait for reported
//! ones.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::{
    BatchId, Lease, LeaseId, LeasedSlice, PackedArray, Positions, Receipt, Report, Timestamp, WorkerId,
};
use gristmill_store::rules::contents::Content;
use gristmill_store::rules::ending::is_simple;
use gristmill_store::rules::keys::debounce::{Added, with_added};
use gristmill_store::rules::lanes::group;
use gristmill_store::rules::pack::indexes_of;
use gristmill_store::{Exchanged, StoreError, Want};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::claim::{Claimed, Look, next_run_at};
use crate::database::Database;
use crate::database::answers::Pending;
use crate::database::connection::Param;
use crate::database::handle_cache::{BatchHead, HandleCache};
use crate::database::pools::Purpose;
use crate::database::rows::Taken;
use crate::database::sums::read_batch_of;
use crate::database::transaction::{Durability, Transaction};
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::graph::family::Origins;
use crate::multirange::Multirange;
use crate::query::tag::labels_of;
use crate::submit::debounce::{ADDED, read_added};

/// The worker, which cannot be deleted until COMMIT, and a new lease id.
const WORKER: &str = "SELECT name, CASE WHEN $2 THEN nextval('gristmill.lease_id') END FROM gristmill.worker \
     WHERE id = $1 FOR KEY SHARE";

/// Batches with their payloads; for large batches of which only few jobs are wanted, with the payloads of these jobs.
/// Others are kept in memory for the next claims: it costs the server more to pick a few items than to send the whole
/// batch. A few items of a batch cannot be compared with its sum.
const BATCHES: &str = "SELECT b.id, b.lane_id, b.priority, b.submitted_at, b.run_at, b.options, \
     gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options), b.count, w.few, \
     CASE WHEN w.few THEN gristmill.selected(b.payloads, k.positions) ELSE b.payloads END, CASE WHEN NOT w.few THEN b.sum END \
     FROM unnest($1::bigint[], $2::int4multirange[], $3::integer[]) k (id, positions, count) \
     JOIN gristmill.batch b ON b.id = k.id CROSS JOIN LATERAL (SELECT k.count * 4 < b.count \
     AND octet_length(b.payloads) > 1048576) w (few)";

/// A committed exchange without the payloads, which may still be on their way.
pub(crate) struct Outline {
    receipts: Vec<Receipt>,
    lease: LeaseId,
    claimed_at: Timestamp,
    pub taken: Vec<Taken>,
    /// The memos of the slices that finalize, by their place.
    memos: HashMap<usize, PackedArray>,
    next_run_at: Option<Pending<Vec<Row>>>,
    pub next_at: Option<Timestamp>,
    limited: bool,
    /// The batches in memory.
    pub contents: HashMap<BatchId, Claimable>,
    /// The wanted positions of the other batches.
    missing: BTreeMap<BatchId, Positions>,
    payloads: Option<Pending<Vec<Row>>>,
}

/// A batch with claimed jobs.
pub(crate) struct Claimable {
    pub content: Content<BatchHead>,
    /// The jobs whose payloads it has, if not all.
    pub only: Option<Positions>,
}

impl Outline {
    /// The outline of an exchange that has claimed nothing yet.
    pub fn new(lease: LeaseId, claimed_at: Timestamp) -> Self {
        Outline {
            receipts: Vec::new(),
            lease,
            claimed_at,
            taken: Vec::new(),
            memos: HashMap::new(),
            next_run_at: None,
            next_at: None,
            limited: false,
            contents: HashMap::new(),
            missing: BTreeMap::new(),
            payloads: None,
        }
    }

    /// Returns reports that release the claimed jobs of these batches.
    fn released(&self, batches: &BTreeSet<BatchId>) -> Vec<Report> {
        let parts = self
            .taken
            .iter()
            .filter(|part| batches.contains(&part.slice.batch));
        let reports = parts.map(|part| Report {
            released: part.positions.clone(),
            ..Report::new(self.lease, part.slice.batch, part.slice.attempt)
        });
        reports.collect()
    }

    /// Adds the claimed jobs of a slice.
    pub fn add(&mut self, cache: &HandleCache, part: Taken) {
        let batch = part.slice.batch;
        if let Entry::Vacant(entry) = self.contents.entry(batch) {
            match cache.content(batch).filter(|content| content.payloads.is_some()) {
                Some(content) => {
                    entry.insert(Claimable { content, only: None });
                }
                None => {
                    let wanted = self.missing.entry(batch).or_default();
                    *wanted = wanted.union(&part.positions);
                }
            }
        }
        assert!(!part.positions.is_empty(), "a claimed slice has jobs");
        self.taken.push(part);
    }
}

impl Database {
    /// Commits reports, then claims. [`fill_in`](Database::fill_in) adds the payloads.
    pub async fn exchange(
        self: &Arc<Self>,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> std::result::Result<Outline, StoreError> {
        if reports.is_empty()
            && let Some(want) = &want
            && let Some(outline) = self.claim_all(worker, want).await?
        {
            return Ok(outline);
        }
        let durability = if reports.is_empty() {
            Durability::Needless
        } else {
            Durability::Promised
        };
        let origins = self.origins(&reports).await?;
        self.prepare_children(&reports, &origins).await?;
        let origins = Arc::new(origins);
        let (reports, want) = (Arc::new(reports), Arc::new(want));
        self.write(Purpose::Work, durability, move |transaction| {
            let (reports, want) = (reports.clone(), want.clone());
            let origins = origins.clone();
            async move {
                transaction
                    .exchange(worker, &reports, want.as_ref().as_ref(), &origins)
                    .await
            }
            .boxed()
        })
        .await
    }

    /// Adds the payloads.
    pub async fn fill_in(
        self: &Arc<Self>,
        worker: WorkerId,
        mut outline: Outline,
    ) -> std::result::Result<Exchanged, StoreError> {
        let mut damaged = BTreeSet::new();
        if !outline.missing.is_empty() {
            let sent = match outline.payloads.take() {
                Some(payloads) => payloads.await.ok(),
                None => None,
            };
            let rows = match sent {
                Some(rows) => rows,
                // Their connection was lost, or nobody has asked for them yet.
                None => {
                    let wanted = params(&outline.missing);
                    let wanted: Vec<&(dyn ToSql + Sync)> = wanted
                        .iter()
                        .map(|param| &**param as &(dyn ToSql + Sync))
                        .collect();
                    self.read(|snapshot| {
                        let wanted = &wanted;
                        async move { snapshot.query(BATCHES, wanted).await }
                    })
                    .await?
                }
            };
            for row in &rows {
                match self.add_row(&mut outline, row) {
                    Err(Failure::Refused(StoreError::Damaged { batch, .. })) => drop(damaged.insert(batch)),
                    added => added.map_err(|failure| failure.at(self.address.as_str()))?,
                }
            }
        }
        let added = self.added(&outline.contents).await?;
        self.add_labels(&mut outline.contents, &mut damaged).await?;
        let next_run_at = match outline.next_run_at.take() {
            // If the connection was lost with the answer, the worker decides when to look again.
            Some(pending) => pending.await.and_then(|rows| next_run_at(&rows)).ok().flatten(),
            None => None,
        };
        let next_run_at = next_run_at.into_iter().chain(outline.next_at).min();
        if !damaged.is_empty() {
            let released = outline.released(&damaged);
            self.quarantine_claimed(worker, &damaged, released).await;
        }
        // A missing batch is damaged, or was deleted meanwhile; the next heartbeat tells the worker.
        let slices: Vec<LeasedSlice> = outline
            .taken
            .iter()
            .enumerate()
            .filter_map(|(number, part)| self.leased(&outline, &added, number, part).transpose())
            .collect::<std::result::Result<_, _>>()?;
        Ok(Exchanged {
            receipts: outline.receipts,
            lease: if slices.is_empty() {
                None
            } else {
                Some(Lease {
                    id: outline.lease,
                    slices,
                })
            },
            next_run_at,
            limited: outline.limited,
        })
    }

    fn add_row(&self, outline: &mut Outline, row: &Row) -> Result<()> {
        let (batch, head, payloads) = read_batch_of(row, 0, [9, 10])?;
        let only = if row.try_get(8)? {
            outline.missing.get(&batch).cloned()
        } else {
            None
        };
        let content = Content::new(Arc::new(head), Some(payloads));
        if only.is_none() {
            self.cache.keep(batch, content.clone());
        }
        outline.contents.insert(batch, Claimable { content, only });
        Ok(())
    }

    /// The payloads that were added to claimed jobs of debounced batches. They do not change any more, because the jobs
    /// have started.
    async fn added(
        &self,
        contents: &HashMap<BatchId, Claimable>,
    ) -> std::result::Result<HashMap<BatchId, Added>, StoreError> {
        let debounced = contents.iter().filter(|(_, claimable)| {
            let unique = claimable.content.head.options.unique;
            unique.is_some_and(|unique| unique.debounce.is_some())
        });
        let debounced: Vec<i64> = debounced.map(|(batch, _)| batch.0).collect();
        if debounced.is_empty() {
            return Ok(HashMap::new());
        }
        self.read(|snapshot| {
            let debounced = &debounced;
            async move { read_added(&snapshot.query(ADDED, &[debounced]).await?) }
        })
        .await
    }

    /// Adds the keys and tags of the batches that have some, unless they are in memory.
    async fn add_labels(
        &self,
        contents: &mut HashMap<BatchId, Claimable>,
        damaged: &mut BTreeSet<BatchId>,
    ) -> std::result::Result<(), StoreError> {
        let missing = contents.iter().filter(|(_, claimable)| {
            claimable.content.head.is_labelled() && claimable.content.labels.is_none()
        });
        let (batches, tagged): (Vec<i64>, Vec<bool>) = missing
            .map(|(batch, claimable)| (batch.0, claimable.content.head.tagged))
            .unzip();
        if batches.is_empty() {
            return Ok(());
        }
        let any_tagged = tagged.contains(&true);
        let labels = self
            .read(|snapshot| {
                let batches = &batches;
                async move { labels_of(&snapshot, batches, any_tagged).await }
            })
            .await?;
        for (batch, labels) in labels {
            let Some(labels) = labels else {
                contents.remove(&batch);
                damaged.insert(batch);
                continue;
            };
            if let Some(claimable) = contents.get_mut(&batch) {
                claimable.content = claimable.content.clone().with_labels(Arc::new(labels));
                if claimable.only.is_none() {
                    self.cache.keep(batch, claimable.content.clone());
                }
            }
        }
        Ok(())
    }

    fn leased(
        &self,
        outline: &Outline,
        added: &HashMap<BatchId, Added>,
        number: usize,
        part: &Taken,
    ) -> std::result::Result<Option<LeasedSlice>, StoreError> {
        let Some(Claimable { content, only }) = outline.contents.get(&part.slice.batch) else {
            return Ok(None);
        };
        let selected = match only {
            None => content.select(&part.positions),
            Some(only) => content.select(&indexes_of(&part.positions, only)),
        };
        let Some(mut payloads) = selected else {
            return Ok(None);
        };
        let unique = content.head.options.unique;
        if let (Some(debounce), Some(added)) = (
            unique.and_then(|unique| unique.debounce),
            added.get(&part.slice.batch),
        ) {
            payloads = with_added(&payloads, &part.positions, added, debounce)?;
        }
        let Some(lane) = self.cache.lanes().get(part.slice.lane_id).cloned() else {
            return Ok(None);
        };
        let memos = outline.memos.get(&number).cloned();
        for (what, texts) in [("payloads", Some(&payloads)), ("memos", memos.as_ref())] {
            let count = texts.map_or(part.positions.len(), PackedArray::count);
            if count != part.positions.len() {
                return Err(StoreError::Damaged {
                    batch: part.slice.batch,
                    table: "slice",
                    what: format!("{} claimed jobs have {count} {what}", part.positions.len()),
                });
            }
        }
        let standing = part.slice.standing();
        Ok(Some(LeasedSlice {
            lease: outline.lease,
            batch: part.slice.batch,
            kind: lane.kind,
            queue: lane.queue,
            group: group(lane.group),
            positions: part.positions.clone(),
            payloads,
            attempt: part.slice.attempt,
            rescues: part.slice.rescues,
            timeout_ms: standing.timeout_ms(&content.head.options, outline.claimed_at),
            priority: i16::try_from(-part.slice.rank).unwrap_or(i16::MIN),
            retry: content.head.options.retry,
            submitted_at: content.head.submitted_at,
            memos,
            deadline: standing.deadline(&content.head.options, outline.claimed_at),
            labels: content.labels.clone(),
            traceparent: content.head.options.traceparent,
        }))
    }
}

/// The parameters of [`BATCHES`].
fn params(missing: &BTreeMap<BatchId, Positions>) -> Vec<Param> {
    let counts = missing.values().map(|positions| positions.len().cast_signed());
    vec![
        Box::new(missing.keys().map(|batch| batch.0).collect::<Vec<_>>()),
        Box::new(missing.values().cloned().map(Multirange).collect::<Vec<_>>()),
        Box::new(counts.collect::<Vec<_>>()),
    ]
}

impl Transaction {
    /// Commits a worker's reports, then claims for it.
    pub async fn exchange(
        &mut self,
        worker: WorkerId,
        reports: &[Report],
        want: Option<&Want>,
        origins: &Origins,
    ) -> Result<Outline> {
        let params: Vec<Param> = vec![Box::new(worker.0), Box::new(want.is_some())];
        let registered = self.send(WORKER, params).await?;
        let all: Vec<&Report> = reports.iter().collect();
        let simple = reports.iter().all(is_simple);
        let accepted = if simple && !reports.is_empty() {
            Some(self.send_reports(worker, &all).await)
        } else {
            None
        };
        // Jobs that other reports give back can be claimed at once, so their claim comes after them. So does that of the jobs
        // that wait for reported ones: where the last report had such jobs, the claim does not look too early.
        let look = match want {
            Some(want) if simple && (reports.is_empty() || !self.cache.settles()) => {
                self.send_look(want).await
            }
            _ => Ok(None),
        };
        // After a statement that fails, later ones cannot even be sent. The first answer tells the cause, so none is passed over.
        let registered = registered.await?;
        let name: Option<Arc<str>> = match registered.first() {
            Some(row) => Some(row.try_get::<_, &str>(0)?.into()),
            None => None,
        };
        if want.is_some() && name.is_none() {
            return Err(StoreError::WorkerUnknown(worker).into());
        }
        let accepted = match accepted {
            Some(accepted) => Some(accepted?.await?),
            None => None,
        };
        let mut look = match look? {
            Some(look) => Some(look.arrive().await?),
            None => None,
        };
        // Whether a report is stored after the look, like one that is partly refused.
        let late = accepted.as_ref().map_or(0, Vec::len) < reports.len();
        let mut ended = Ended::default();
        let receipts = match accepted {
            Some(accepted) => {
                self.receive(worker, name.as_ref(), &all, &accepted, origins, &mut ended)
                    .await?
            }
            None => {
                self.commit_reports(worker, name.as_ref(), &all, origins, &mut ended)
                    .await?
            }
        };
        let settling = self.send_settle(ended).await?;
        if !reports.is_empty() {
            self.cache.remember_settling(settling.is_some());
        }
        let is_stale = settling.is_some() || late || look.is_none();
        let look_again = match want {
            Some(want) => self.look_again(want, is_stale).await,
            None => Ok(None),
        };
        if let Some(settling) = settling {
            self.settled(settling).await?;
        }
        if let Some(again) = look_again? {
            look = Some(again.arrive().await?);
        }
        let mut claimed = Claimed::default();
        let mut lease = LeaseId(0);
        if let (Some(want), Some(look), Some(row)) = (want, look, registered.first()) {
            lease = LeaseId(row.try_get(1)?);
            claimed = self.claim(worker, lease.0, want, look).await?;
            self.writes.news.claimed_itself(claimed.jobs_new);
        }
        self.outline(receipts, lease, claimed).await
    }

    /// Sends another look behind everything that the reports change, if the first one `is_stale`.
    async fn look_again(&mut self, want: &Want, is_stale: bool) -> Result<Option<Look<Pending<Vec<Row>>>>> {
        self.release_keys().await?;
        // Jobs that were kept behind keys can be claimed at once, too.
        if !is_stale && !self.ran_again {
            return Ok(None);
        }
        self.flush_behind().await?;
        self.send_look(want).await
    }

    /// Stores the reports that were accepted at once, and looks at the others.
    async fn receive(
        &mut self,
        worker: WorkerId,
        name: Option<&Arc<str>>,
        reports: &[&Report],
        accepted: &[Row],
        origins: &Origins,
        ended: &mut Ended,
    ) -> Result<Vec<Receipt>> {
        let mut receipts: Vec<Option<Receipt>> = vec![None; reports.len()];
        for row in accepted {
            let number = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            let report = number.checked_sub(1).and_then(|index| reports.get(index));
            let report =
                report.ok_or_else(|| Failure::Damaged(format!("report {number} was accepted, of fewer")))?;
            let receipt = self.store_completed(name, report)?;
            if row.try_get(1)? {
                ended.add(report.batch, &receipt.accepted);
            }
            receipts[number - 1] = Some(receipt);
        }
        let mut rest = Vec::new();
        for (report, receipt) in reports.iter().zip(&receipts) {
            if receipt.is_none() {
                rest.push(*report);
            }
        }
        let mut others = if rest.is_empty() {
            Vec::new()
        } else {
            self.commit_reports(worker, name, &rest, origins, ended).await?
        }
        .into_iter();
        let receipts = receipts
            .into_iter()
            .map(|receipt| receipt.or_else(|| others.next()));
        Ok(receipts.map(Option::unwrap_or_default).collect())
    }

    /// Asks for the payloads that are not in memory; they come with COMMIT.
    async fn outline(&self, receipts: Vec<Receipt>, lease: LeaseId, claimed: Claimed) -> Result<Outline> {
        let mut outline = Outline::new(lease, self.now);
        for part in claimed.taken {
            outline.add(&self.cache, part);
        }
        if !outline.missing.is_empty() {
            outline.payloads = Some(self.send(BATCHES, params(&outline.missing)).await?);
        }
        outline.memos = self.memos_of(&outline.taken).await?;
        Ok(Outline {
            receipts,
            next_run_at: claimed.next_run_at,
            next_at: claimed.next_at,
            limited: claimed.limited,
            ..outline
        })
    }
}
