//! The gathered writes of a transaction: one statement per table, whatever the number of rows.

use gristmill_batching::{BatchStats, EndReason};
use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{
    BatchId, ChildBatch, JobError, JobState, PackedArray, Positions, Signal, Suspended, Tag, Timestamp, Wake,
};
use gristmill_store::hook::{HOOK, HOOK_PART};
use gristmill_store::rules::admission::BucketKey;
use gristmill_store::rules::dependency::Edge;
use gristmill_store::rules::ending::{Ending, FailedAttempt};
use gristmill_store::rules::family::{CHILDREN, bounds_of};
use gristmill_store::rules::open::{Blocked, Held};
use gristmill_store::rules::pauses::Pauses;
use tokio_postgres::Row;

use crate::database::answers::Pending;
use crate::database::connection::{Connection, Param};
use crate::database::handle_cache::BatchHead;
use crate::database::news::News;
use crate::database::packed_text::PackedText;
use crate::database::rows::{NewSlice, Slice};
use crate::database::sums::batch_sum;
use crate::failure::Result;
use crate::multirange::Multirange;

/// A statement and its parameters.
pub(crate) type Statement = (&'static str, Vec<Param>);

/// The rows to write. Each row may be changed once.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Batch statistics to add to the totals.
    pub hops: BatchStats,
    /// The changes of which others must be told.
    pub news: News,
    batches: Batches,
    slices_gone: SliceKeys,
    slices_cut: SlicesCut,
    slices: Slices,
    held_gone: HeldKeys,
    held_cut: HeldCut,
    held: HeldRows,
    blocked_gone: BlockedKeys,
    blocked: BlockedRows,
    kept_back: KeptBack,
    edges: Edges,
    suspensions: Suspensions,
    child_batches: ChildBatches,
    reports: Reports,
    failures: Failures,
    tags: Tags,
    buckets: Buckets,
}

/// Columns of rows, and the statement that writes them.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident { $($column:ident: $kind:ty),* $(,)? } $sql:literal) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        struct $name { $($column: Vec<$kind>),* }

        impl $name {
            #[allow(clippy::too_many_arguments, reason = "one a column")]
            fn push(&mut self, $($column: $kind),*) {
                $(self.$column.push($column);)*
            }

            fn add_to(self, statements: &mut Vec<Statement>) {
                if [$(self.$column.len()),*][0] > 0 {
                    let params: Vec<Param> = vec![$(Box::new(self.$column)),*];
                    statements.push(($sql, params));
                }
            }
        }
    };
}

columns! {
    Batches {
        id: i64, submitted_at: i64, run_at: i64, run_id: Option<i64>, lane_id: i32, count: i32, priority: i16,
        options: Option<String>, payloads: PackedText, sum: i64,
    }
    // Without a lane that exists and is not retired, the column is NULL, which is an error: see `lane_gone` in `failure.rs`.
    "INSERT INTO gristmill.batch (id, submitted_at, run_at, run_id, lane_id, count, priority, options, payloads, sum) \
     SELECT n.id, n.submitted_at, n.run_at, n.run_id, (SELECT l.id FROM gristmill.lane l WHERE l.id = n.lane_id AND NOT l.retired), \
     n.count, n.priority, n.options, n.payloads, n.sum \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::smallint[], $8::text[], \
     $9::text[], $10::bigint[]) n (id, submitted_at, run_at, run_id, lane_id, count, priority, options, payloads, sum)"
}

columns! {
    SliceKeys { batch: i64, id: i64 }
    "DELETE FROM gristmill.slice s USING unnest($1::bigint[], $2::bigint[]) k (batch_id, id) \
     WHERE s.batch_id = k.batch_id AND s.id = k.id"
}

columns! {
    SlicesCut { batch: i64, id: i64, count: i32, positions: Multirange }
    "UPDATE gristmill.slice s SET positions = k.positions, count = k.count \
     FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::int4multirange[]) k (batch_id, id, count, positions) \
     WHERE s.batch_id = k.batch_id AND s.id = k.id"
}

columns! {
    Slices {
        batch: i64, run_at: i64, expires_at: Option<i64>, lane_id: i32, attempt: i32, rescues: i32, count: i32,
        job_bytes: i32, rank: i32, positions: Multirange, awaited: bool, family: Option<i64>,
    }
    "INSERT INTO gristmill.slice (batch_id, run_at, expires_at, lane_id, attempt, rescues, count, job_bytes, rank, \
     positions, awaited, family) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::integer[]), unnest($5::integer[]), \
     unnest($6::integer[]), unnest($7::integer[]), unnest($8::integer[]), unnest($9::integer[]), unnest($10::int4multirange[]), \
     unnest($11::boolean[]), unnest($12::bigint[])"
}

columns! {
    HeldKeys { lease: i64, batch: i64, attempt: i32, first_position: i32 }
    "DELETE FROM gristmill.held h \
     USING unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[]) k (lease_id, batch_id, attempt, first_position) \
     WHERE h.lease_id = k.lease_id AND h.batch_id = k.batch_id AND h.attempt = k.attempt AND h.first_position = k.first_position"
}

columns! {
    HeldCut { lease: i64, batch: i64, attempt: i32, first_position: i32, count: i32, positions: Multirange }
    "UPDATE gristmill.held h SET positions = k.positions, count = k.count \
     FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::int4multirange[]) \
     k (lease_id, batch_id, attempt, first_position, count, positions) \
     WHERE h.lease_id = k.lease_id AND h.batch_id = k.batch_id AND h.attempt = k.attempt AND h.first_position = k.first_position"
}

columns! {
    HeldRows {
        lease: i64, batch: i64, attempt: i32, first_position: i32, worker: i64, run_at: i64, expires_at: Option<i64>,
        rescues: i32, count: i32, lane_id: i32, positions: Multirange, awaited: bool, rank: Option<i32>,
        claimed_at: i64, family: Option<i64>,
    }
    "INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, expires_at, \
     rescues, count, lane_id, positions, awaited, rank, claimed_at, family) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::integer[]), unnest($4::integer[]), unnest($5::bigint[]), \
     unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::integer[]), unnest($9::integer[]), unnest($10::integer[]), \
     unnest($11::int4multirange[]), unnest($12::boolean[]), unnest($13::integer[]), unnest($14::bigint[]), unnest($15::bigint[])"
}

columns! {
    BlockedKeys { batch: i64, part: i32 }
    "DELETE FROM gristmill.blocked b USING unnest($1::bigint[], $2::integer[]) k (batch_id, part) \
     WHERE b.batch_id = k.batch_id AND b.part = k.part"
}

columns! {
    BlockedRows {
        batch: i64, part: i32, attempt: i32, rescues: i32, count: i32, expires_at: Option<i64>, positions: Multirange,
        rank: Option<i32>, pauses: Option<String>, paused_until: Option<i64>, family: Option<i64>,
    }
    "INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions, rank, pauses, paused_until, family) \
     SELECT unnest($1::bigint[]), unnest($2::integer[]), unnest($3::integer[]), unnest($4::integer[]), unnest($5::integer[]), \
     unnest($6::bigint[]), unnest($7::int4multirange[]), unnest($8::integer[]), unnest($9::text[])::jsonb, unnest($10::bigint[]), \
     unnest($11::bigint[])"
}

columns! {
    KeptBack {
        batch: i64, attempt: i32, rescues: i32, count: i32, expires_at: Option<i64>, positions: Multirange, rank: i32,
        run_at: i64, pauses: String, paused_until: Option<i64>, family: Option<i64>,
    }
    "INSERT INTO gristmill.blocked (batch_id, part, attempt, rescues, count, expires_at, positions, rank, run_at, pauses, \
     paused_until, family) \
     SELECT k.batch_id, nextval('gristmill.blocked_part'), k.attempt, k.rescues, k.count, k.expires_at, k.positions, k.rank, \
     k.run_at, k.pauses::jsonb, k.paused_until, k.family FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], \
     $5::bigint[], $6::int4multirange[], $7::integer[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[]) \
     k (batch_id, attempt, rescues, count, expires_at, positions, rank, run_at, pauses, paused_until, family)"
}

columns! {
    Edges {
        prerequisite: i64, first_position: i32, batch: i64, part: i32, on_failure: &'static str, positions: Option<Multirange>,
    }
    "INSERT INTO gristmill.edge (prerequisite_id, first_position, batch_id, part, on_failure, positions) \
     SELECT unnest($1::bigint[]), unnest($2::integer[]), unnest($3::bigint[]), unnest($4::integer[]), unnest($5::text[]), \
     unnest($6::int4multirange[])"
}

columns! {
    Suspensions {
        batch: i64, family: i64, on_failure: &'static str, flow: Option<&'static str>, parents: String, memos: PackedText,
        cleanup_ms: Option<i64>,
    }
    "INSERT INTO gristmill.suspension (batch_id, family, on_failure, flow, parents, memos, cleanup_ms) SELECT a, b, c, d, e::int[], f, g \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[]) k (a, b, c, d, e, f, g)"
}

columns! {
    ChildBatches {
        batch: i64, parent: i64, family: i64, event: Option<String>, bounds: String, parents: Option<String>, together: bool, is_step: bool,
    }
    "WITH steps AS (INSERT INTO gristmill.step_batch (batch_id) \
     SELECT n.batch_id FROM unnest($1::bigint[], $8::boolean[]) n (batch_id, is_step) WHERE n.is_step) \
     INSERT INTO gristmill.child_batch (batch_id, parent_id, family, event, bounds, parents, together) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::text[]), unnest($5::text[])::integer[], \
     unnest($6::text[])::integer[], unnest($7::boolean[])"
}

columns! {
    Reports {
        batch: i64, first_position: i32, attempt: i32, finished_at: i64, count: i32, state: &'static str,
        worker: Option<String>, positions: Multirange, durations: Option<String>, sum_us: Option<i64>,
        buckets: Option<String>, logs: Option<String>, values: Option<PackedText>, sum: Option<i64>,
    }
    "INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, worker, positions, durations, \
     durations_sum_us, duration_buckets, logs, \"values\", sum) \
     SELECT unnest($1::bigint[]), unnest($2::integer[]), unnest($3::integer[]), unnest($4::bigint[]), unnest($5::integer[]), \
     unnest($6::text[]), unnest($7::text[]), unnest($8::int4multirange[]), unnest($9::text[]), unnest($10::bigint[]), \
     unnest($11::text[]), unnest($12::text[]), unnest($13::text[]), unnest($14::bigint[])"
}

columns! {
    Failures {
        batch: i64, lease: i64, duration_us: i64, failed_at: i64, position: i32, attempt: i32, worker: Option<String>,
        error: String, log: Option<String>, retried_at: Option<i64>,
    }
    "INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, worker, error, log, retried_at) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::integer[]), \
     unnest($6::integer[]), unnest($7::text[]), unnest($8::text[]), unnest($9::text[]), unnest($10::bigint[])"
}

columns! {
    Tags { name: String, value: String, batch: i64, count: i32, positions: Option<Multirange> }
    "INSERT INTO gristmill.tag (name, value, batch_id, count, positions) \
     SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::integer[]), unnest($5::int4multirange[])"
}

columns! {
    Buckets { control: i64, group: String, empty_at_ns: i64 }
    "INSERT INTO gristmill.bucket (control_id, job_group, empty_at_ns) \
     SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::bigint[]) \
     ON CONFLICT (control_id, job_group) DO UPDATE SET empty_at_ns = excluded.empty_at_ns"
}

columns! {
    Hops {
        hop: String, batches: i64, items: i64, items_max: i64, full: i64, drained: i64, bytes: i64, deadline: i64, limit: i64,
    }
    "INSERT INTO gristmill.hop_stat AS h (hop, batches, items, items_max, ended_full, ended_drained, ended_bytes, ended_deadline, \
     ended_limit) \
     SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), \
     unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]) \
     ON CONFLICT (hop) DO UPDATE SET batches = h.batches + excluded.batches, items = h.items + excluded.items, \
     items_max = greatest(h.items_max, excluded.items_max), ended_full = h.ended_full + excluded.ended_full, \
     ended_drained = h.ended_drained + excluded.ended_drained, ended_bytes = h.ended_bytes + excluded.ended_bytes, \
     ended_deadline = h.ended_deadline + excluded.ended_deadline, ended_limit = h.ended_limit + excluded.ended_limit"
}

/// A row of the table of batches.
#[derive(Debug)]
pub(crate) struct NewBatchRow<'a> {
    pub id: BatchId,
    pub run: Option<i64>,
    pub head: &'a BatchHead,
    pub options: Option<String>,
    pub payloads: &'a PackedArray,
}

impl Writes {
    /// Stores a batch.
    pub fn insert_batch(&mut self, row: NewBatchRow<'_>) {
        let sum = batch_sum(row.head, row.options.as_deref(), row.payloads);
        self.batches.push(
            row.id.0,
            row.head.submitted_at.0,
            row.head.run_at.0,
            row.run,
            lane(row.head.lane_id),
            row.payloads.count().cast_signed(),
            row.head.priority,
            row.options,
            PackedText(row.payloads.clone()),
            sum,
        );
    }

    /// Stores the tags of a batch of `count` jobs.
    pub fn insert_tags(&mut self, batch: BatchId, count: u32, tags: &[Tag]) {
        for tag in tags {
            let jobs = tag.positions.as_ref().map_or(count, Positions::len);
            self.tags.push(
                tag.name.clone(),
                tag.value.clone(),
                batch.0,
                jobs.cast_signed(),
                tag.positions.clone().map(Multirange),
            );
        }
    }

    /// Makes positions of a batch claimable.
    pub fn insert_slice(&mut self, batch: BatchId, head: &BatchHead, slice: NewSlice<'_>) {
        if slice.positions.is_empty() {
            return;
        }
        assert!(slice.attempt > 0 && slice.rescues <= RESCUES_MAX);
        self.slices.push(
            batch.0,
            slice.run_at.0,
            slice.expires_at.map(|moment| moment.0),
            lane(head.lane_id),
            slice.attempt.cast_signed(),
            slice.rescues.cast_signed(),
            slice.positions.len().cast_signed(),
            head.job_bytes.cast_signed(),
            slice.rank,
            Multirange(slice.positions.clone()),
            slice.is_awaited,
            slice.family,
        );
        self.news.jobs_made += u64::from(slice.positions.len());
    }

    /// Leaves `rest` of a slice.
    pub fn shorten(&mut self, slice: &Slice, rest: &Positions) {
        assert!(slice.positions.contains_all(rest), "a slice only shrinks");
        if rest.is_empty() {
            self.slices_gone.push(slice.batch.0, slice.id)
        } else {
            let count = rest.len().cast_signed();
            self.slices_cut
                .push(slice.batch.0, slice.id, count, Multirange(rest.clone()))
        }
    }

    /// Makes jobs wait until all edges are settled. Does nothing without jobs.
    pub fn block(&mut self, blocked: &Blocked, edges: &[Edge]) {
        if blocked.positions.is_empty() {
            return;
        }
        assert!(blocked.attempt > 0, "the attempt of a blocked job counts from 1");
        let (batch, part) = (blocked.batch.0, blocked.part.cast_signed());
        let paused_until = blocked.pauses.as_ref().and_then(Pauses::until);
        self.blocked.push(
            batch,
            part,
            blocked.attempt.cast_signed(),
            blocked.rescues.cast_signed(),
            blocked.positions.len().cast_signed(),
            blocked.expires_at.map(|moment| moment.0),
            Multirange(blocked.positions.clone()),
            blocked.rank,
            blocked.pauses.as_ref().map(Pauses::text),
            paused_until.map(|until| until.0),
            blocked.family,
        );
        for edge in edges {
            let first = edge.positions.as_ref().and_then(Positions::first).unwrap_or(0);
            self.edges.push(
                edge.prerequisite.0,
                first.cast_signed(),
                batch,
                part,
                edge.on_failure.name(),
                edge.positions.clone().map(Multirange),
            );
        }
    }

    /// Makes the end of a batch submit the job of its hook.
    pub fn await_end(&mut self, batch: BatchId) {
        let part = HOOK_PART.cast_signed();
        self.edges.push(batch.0, 0, batch.0, part, HOOK, None);
    }

    /// Deletes a blocked part.
    pub fn unblock(&mut self, blocked: &Blocked) {
        self.blocked_gone
            .push(blocked.batch.0, blocked.part.cast_signed());
    }

    /// Stores what jobs that are suspended together remember.
    pub fn insert_suspension(&mut self, batch: BatchId, family: i64, suspended: &Suspended) {
        assert_eq!(suspended.memos.count(), suspended.positions.len());
        self.suspensions.push(
            batch.0,
            family,
            suspended.on_failure.name(),
            suspended.flow.map(Wake::name),
            array(suspended.positions.iter()),
            PackedText(suspended.memos.clone()),
            suspended.cleanup_ms.map(u64::cast_signed),
        );
    }

    /// Stores the parents of the children in a batch: they belong to a family of the batch `parent`, and to the named
    /// ones of its parents or to all.
    pub fn insert_child_batch(
        &mut self,
        batch: BatchId,
        (parent, family): (BatchId, i64),
        parents: Option<&Positions>,
        children: &ChildBatch,
    ) {
        assert_eq!(children.shares.iter().sum::<u32>(), children.payloads.count());
        let event = children.options.signal.as_ref().and_then(Signal::event);
        self.child_batches.push(
            batch.0,
            parent.0,
            family,
            event.map(str::to_owned),
            array(bounds_of(&children.shares).into_iter()),
            parents.map(|parents| array(parents.iter())),
            children.together,
            children.is_step,
        );
    }

    /// Makes a part of a batch wait for its children.
    pub fn wait_for_children(&mut self, parent: BatchId, part: u32, children: BatchId) {
        self.edges
            .push(children.0, 0, parent.0, part.cast_signed(), CHILDREN, None);
    }

    /// Puts positions under a lease.
    pub fn hold(&mut self, now: Timestamp, held: &Held, lane_id: i64) {
        assert!(held.positions.contains(held.first_position), "a row has its key");
        assert!(held.attempt > 0, "a claimed job is on an attempt");
        self.held.push(
            held.lease,
            held.batch.0,
            held.attempt.cast_signed(),
            held.first_position.cast_signed(),
            held.worker.0,
            held.run_at.0,
            held.expires_at.map(|moment| moment.0),
            held.rescues.cast_signed(),
            held.positions.len().cast_signed(),
            lane(lane_id),
            Multirange(held.positions.clone()),
            held.is_awaited,
            held.rank,
            now.0,
            held.family,
        );
    }

    /// Takes positions out of a lease.
    pub fn let_go(&mut self, held: &Held, positions: &Positions) {
        let rest = held.without(positions);
        let (attempt, first) = (held.attempt.cast_signed(), held.first_position.cast_signed());
        if rest.is_empty() {
            self.held_gone.push(held.lease, held.batch.0, attempt, first)
        } else {
            let count = rest.len().cast_signed();
            self.held_cut
                .push(held.lease, held.batch.0, attempt, first, count, Multirange(rest))
        }
    }

    /// Makes returned positions claimable, or keeps them paused if they were paused meanwhile.
    pub fn bring_back(&mut self, now: Timestamp, held: &Held, head: &BatchHead, slice: NewSlice<'_>) {
        assert!(held.positions.contains_all(slice.positions));
        match &held.pauses {
            Some(pauses) if !pauses.are_over(now) && !slice.positions.is_empty() => self.kept_back.push(
                held.batch.0,
                slice.attempt.cast_signed(),
                slice.rescues.cast_signed(),
                slice.positions.len().cast_signed(),
                slice.expires_at.map(|moment| moment.0),
                Multirange(slice.positions.clone()),
                slice.rank,
                slice.run_at.0,
                pauses.text(),
                pauses.until().map(|until| until.0),
                slice.family,
            ),
            _ => self.insert_slice(held.batch, head, slice),
        }
    }

    /// Makes positions claimable again, on the same attempt and in their old place in line.
    pub fn give_back(
        &mut self,
        now: Timestamp,
        held: &Held,
        head: &BatchHead,
        positions: &Positions,
        rescues: u32,
        expires_at: Option<Timestamp>,
    ) {
        self.bring_back(
            now,
            held,
            head,
            NewSlice {
                positions,
                rank: held.rank.unwrap_or(head.rank()),
                run_at: held.run_at,
                attempt: held.attempt,
                rescues,
                expires_at,
                is_awaited: held.is_awaited,
                family: held.family,
            },
        );
    }

    /// Stores the end of positions. Does nothing without positions.
    pub fn insert_report(&mut self, now: Timestamp, batch: BatchId, positions: &Positions, ending: Ending) {
        let Some(first) = positions.first() else {
            return;
        };
        let ending = Ending {
            worker: ending.worker.as_deref().map(|worker| without_nul(worker).into()),
            ..ending
        };
        let sum = ending.sum(batch, positions, now);
        let (each, sum_us, buckets) = match ending.durations {
            Some(durations) => (
                Some(durations.each),
                Some(durations.sum_us.cast_signed()),
                Some(durations.buckets),
            ),
            None => (None, None, None),
        };
        self.reports.push(
            batch.0,
            first.cast_signed(),
            ending.attempt.cast_signed(),
            now.0,
            positions.len().cast_signed(),
            ending.state.name(),
            ending.worker.as_deref().map(str::to_owned),
            Multirange(positions.clone()),
            each,
            sum_us,
            buckets,
            ending.logs,
            ending.values.map(PackedText),
            sum,
        );
    }

    /// The jobs of a batch that end with this.
    pub fn ended_of(&self, batch: BatchId) -> Positions {
        let reports = self.reports.batch.iter().zip(&self.reports.positions);
        let own = reports.filter(|(id, _)| **id == batch.0);
        own.fold(Positions::new(), |all, (_, positions)| all.union(&positions.0))
    }

    /// The positions of batches that end with this, and whether they completed. Those of batches that are new are not
    /// among them.
    pub fn ended(&self) -> impl Iterator<Item = (BatchId, &Positions, bool)> {
        let Reports {
            batch,
            positions,
            state,
            ..
        } = &self.reports;
        let ended = batch.iter().zip(positions).zip(state);
        ended
            .filter(|((batch, _), _)| !self.batches.id.contains(batch))
            .map(|((batch, positions), state)| {
                let completed = *state == JobState::Completed.name();
                (BatchId(*batch), &positions.0, completed)
            })
    }

    /// The jobs that complete with these writes: the batch, the positions and the values.
    pub fn completed(&self) -> impl Iterator<Item = (BatchId, &Positions, &PackedArray)> {
        let Reports {
            batch,
            positions,
            state,
            values,
            ..
        } = &self.reports;
        let completed = batch.iter().zip(positions).zip(state).zip(values);
        completed
            .filter(|(((batch, _), _), _)| !self.batches.id.contains(batch))
            .filter(|((_, state), _)| **state == JobState::Completed.name())
            .filter_map(|(((batch, positions), _), values)| {
                Some((BatchId(*batch), &positions.0, &values.as_ref()?.0))
            })
    }

    /// Stores one failed attempt.
    pub fn insert_failure(
        &mut self,
        now: Timestamp,
        batch: BatchId,
        failed: &FailedAttempt<'_>,
    ) -> Result<()> {
        self.failures.push(
            batch.0,
            failed.lease,
            i64::from(failed.duration_us),
            now.0,
            failed.position.cast_signed(),
            failed.attempt.cast_signed(),
            failed.worker.map(without_nul),
            error_text(failed.error)?,
            failed.log.map(without_nul),
            failed.retried_at.map(|moment| moment.0),
        );
        Ok(())
    }

    /// Stores when a bucket was empty.
    pub fn put_bucket(&mut self, key: &BucketKey, empty_at_ns: i64) {
        self.buckets.push(key.0, key.1.to_string(), empty_at_ns);
    }

    /// Returns all writes as statements, in an order in which none gets in another's way.
    pub fn into_statements(self) -> Vec<Statement> {
        let mut statements = Vec::new();
        self.slices_gone.add_to(&mut statements);
        self.slices_cut.add_to(&mut statements);
        self.held_gone.add_to(&mut statements);
        self.held_cut.add_to(&mut statements);
        self.blocked_gone.add_to(&mut statements);
        self.batches.add_to(&mut statements);
        self.blocked.add_to(&mut statements);
        self.kept_back.add_to(&mut statements);
        self.edges.add_to(&mut statements);
        self.suspensions.add_to(&mut statements);
        self.child_batches.add_to(&mut statements);
        self.slices.add_to(&mut statements);
        self.held.add_to(&mut statements);
        self.reports.add_to(&mut statements);
        self.failures.add_to(&mut statements);
        self.tags.add_to(&mut statements);
        self.buckets.add_to(&mut statements);
        rows_of(&self.hops).add_to(&mut statements);
        statements
    }

    /// Sends all writes. It prepares all statements first, because a failing statement would fail the preparation of
    /// later ones.
    pub async fn send(self, connection: &Connection) -> Result<Vec<Pending<Vec<Row>>>> {
        let statements = self.into_statements();
        for (sql, _) in &statements {
            connection.prepare(sql).await?;
        }
        let mut sent = Vec::with_capacity(statements.len());
        for (sql, params) in statements {
            sent.push(connection.send(sql, params).await?);
        }
        Ok(sent)
    }
}

/// The rows to which statistics are added, ordered by name, so that two transactions never wait for each other.
fn rows_of(stats: &BatchStats) -> Hops {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut rows = Hops::default();
    for (hop, stats) in &stats.hops {
        let ended = |reason: EndReason| number(stats.end_reasons.get(&reason).copied().unwrap_or(0));
        rows.push(
            without_nul(hop),
            number(stats.batches),
            number(stats.items),
            number(stats.items_max),
            ended(EndReason::Full),
            ended(EndReason::Drained),
            ended(EndReason::Bytes),
            ended(EndReason::Deadline),
            ended(EndReason::Limit),
        );
    }
    rows
}

/// Writes numbers as PostgreSQL writes an array.
fn array(numbers: impl Iterator<Item = u32>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("{{{}}}", numbers.join(","))
}

/// The number of a lane as `integer`: there are at most [`LANES_MAX`](gristmill_store::rules::lanes::LANES_MAX).
pub(crate) fn lane(id: i64) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

/// Replaces NUL characters, which PostgreSQL's texts cannot hold. Output and messages of jobs may have them, and must
/// not fail because of that.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The stored form of an error. JSON could hold a NUL as `\u0000`, but then SQL could not unpack it.
fn error_text(error: &JobError) -> Result<String> {
    let text = serde_json::to_string(error)?;
    if !text.contains("\\u0000") {
        return Ok(text);
    }
    let error = JobError {
        error_type: without_nul(&error.error_type),
        message: without_nul(&error.message),
        traceback: error.traceback.as_deref().map(without_nul),
        ..error.clone()
    };
    Ok(serde_json::to_string(&error)?)
}
