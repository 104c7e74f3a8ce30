//! What the checks are written with.

use std::sync::Arc;

use gristmill_model::{
    BatchId, Completed, FailedJob, JobError, JobId, Lease, LeasedSlice, NewBatch, PackedArray, PackedBuilder,
    Positions, Report, WorkerId,
};

use crate::{Exchanged, NewWorker, Store, Want};

/// The kind that checks submit where the kind does not matter.
pub const KIND: &str = "work";

/// Payloads `0`, `1`, … of `count` jobs.
pub fn payloads(count: u32) -> PackedArray {
    let mut builder = PackedBuilder::new();
    for number in 0..count {
        builder.push(&number.to_string()).unwrap();
    }
    builder.finish()
}

/// A batch of `count` jobs.
pub fn batch(count: u32) -> NewBatch {
    NewBatch::new(KIND, payloads(count))
}

/// A batch of a kind.
pub fn batch_of(kind: &str, count: u32) -> NewBatch {
    NewBatch::new(kind, payloads(count))
}

/// Positions as they are written.
pub fn positions(text: &str) -> Positions {
    text.parse().unwrap()
}

/// The id of a job.
pub fn job(batch: BatchId, position: u32) -> JobId {
    JobId { batch, position }
}

/// Submits one batch.
pub async fn submit(store: &dyn Store, batch: NewBatch) -> BatchId {
    store.submit(vec![batch], None).await.unwrap()[0]
}

/// Registers a worker.
pub async fn worker(store: &dyn Store) -> WorkerId {
    let worker = NewWorker {
        name: "tester".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: "boot:1".to_owned(),
    };
    store.register_worker(worker).await.unwrap()
}

/// A wish for jobs of any kind on the default queue.
pub fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec![Arc::from("default")],
        kinds: Vec::new(),
    }
}

/// Claims, without reports.
pub async fn claim(store: &dyn Store, worker: WorkerId, jobs_max: u32) -> Option<Lease> {
    exchange(store, worker, Vec::new(), Some(want(jobs_max)))
        .await
        .lease
}

/// An exchange that must hold.
pub async fn exchange(
    store: &dyn Store,
    worker: WorkerId,
    reports: Vec<Report>,
    want: Option<Want>,
) -> Exchanged {
    store.exchange(worker, reports, want).await.unwrap()
}

/// What a lease holds, as `batch:positions` texts in order.
pub fn held(lease: &Option<Lease>) -> Vec<String> {
    let slices = lease.iter().flat_map(|lease| &lease.slices);
    slices
        .map(|slice| format!("{}:{}", slice.batch, slice.positions))
        .collect()
}

/// A report of nothing yet on a slice.
pub fn report(slice: &LeasedSlice) -> Report {
    Report::new(slice.lease, slice.batch, slice.attempt)
}

/// A report that all jobs of a slice completed, each with its own payload as its value.
pub fn completed(slice: &LeasedSlice) -> Report {
    completed_at(slice, &slice.positions)
}

/// A report that these jobs of a slice completed, each with its own payload as its value and its position as its
/// duration.
pub fn completed_at(slice: &LeasedSlice, positions: &Positions) -> Report {
    let indexes = slice.positions.iter().enumerate();
    let indexes = indexes
        .filter(|(_, position)| positions.contains(*position))
        .map(|(index, _)| index as u32);
    Report {
        completed: Some(Completed {
            positions: positions.clone(),
            values: slice.payloads.select(&indexes.collect()),
            durations_us: positions.iter().collect(),
        }),
        ..report(slice)
    }
}

/// A report that these jobs of a slice failed with this error.
pub fn failed_at(slice: &LeasedSlice, positions: &Positions, error: &JobError) -> Report {
    Report {
        failed: positions
            .iter()
            .map(|position| FailedJob {
                position,
                error: error.clone(),
                duration_us: position,
            })
            .collect(),
        ..report(slice)
    }
}

/// A report that gives these jobs of a slice back.
pub fn released_at(slice: &LeasedSlice, positions: &Positions) -> Report {
    Report {
        released: positions.clone(),
        ..report(slice)
    }
}

/// An error of no importance.
pub fn error() -> JobError {
    JobError::new("ValueError", "no")
}
