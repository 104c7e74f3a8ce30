//! A worker of the store, with outcomes, retries and deaths, in several lives.

use std::collections::BTreeMap;

use gristmill_batching::BatchStats;
use gristmill_model::{
    FailedJob, JobError, LeasedSlice, Positions, Receipt, Report, Rng, SplitMix64, Timestamp, WorkerId,
};
use gristmill_store::Store;
use gristmill_store_sqlite::{SqliteStore, Synchronous};

use crate::error::RecordError;
use crate::jobs;
use crate::limits::EXCHANGES_MAX;
use crate::note::Note;
use crate::volume::Volume;

/// The number of lives of the worker. A life ends without a farewell, and the next life rescues its jobs.
const LIVES: usize = 3;

/// The number of batches that a life submits.
const BATCHES: u64 = 3;

/// The number of jobs in a batch.
const BATCH_JOBS: u64 = 15;

/// The number of exchanges in a life. The last life works until no jobs are left.
const EXCHANGES: usize = 6;

/// One job in this many fails on each attempt.
const FAILS_EVERY: u64 = 5;

pub(super) async fn record(volume: &Volume, synchronous: Synchronous, seed: u64) -> Result<(), RecordError> {
    let mut rng = SplitMix64::new(seed);
    let mut next = 0;
    for life in 0..LIVES {
        let store = jobs::open(volume, synchronous)?;
        let dead = store.workers().await?.iter().map(|row| row.id).collect();
        store.rescue(Timestamp(0), dead).await?;
        for _ in 0..BATCHES {
            let numbers: Vec<u64> = (next..next + BATCH_JOBS).collect();
            next += BATCH_JOBS;
            volume.note(Note::Submitting(numbers.clone()));
            let ids = store.submit(vec![jobs::batch(&numbers)], None).await?;
            let batch = ids.iter().map(|id| id.0).max().unwrap_or_default();
            volume.note(Note::Submitted { numbers, batch });
        }
        let worker = store.register_worker(jobs::worker()).await?;
        let exchanges = if life + 1 == LIVES {
            EXCHANGES_MAX
        } else {
            EXCHANGES
        };
        work(volume, &store, worker, exchanges, &mut rng).await?;
        store.compact(1).await?;
        store.close().await?;
    }
    Ok(())
}

async fn work(
    volume: &Volume,
    store: &SqliteStore,
    worker: WorkerId,
    exchanges: usize,
    rng: &mut SplitMix64,
) -> Result<(), RecordError> {
    let mut reports: Vec<Report> = Vec::new();
    let mut claimed: Vec<LeasedSlice> = Vec::new();
    for _ in 0..exchanges {
        let want = jobs::want(3 + rng.below(8) as u32);
        let exchanged = store.exchange(worker, reports, Some(want)).await?;
        assert_eq!(
            claimed.len(),
            exchanged.receipts.len(),
            "each report of a slice has a receipt"
        );
        for (slice, receipt) in claimed.iter().zip(&exchanged.receipts) {
            note_receipt(volume, slice, receipt);
        }
        store.heartbeat(worker, BatchStats::default()).await?;
        let Some(lease) = exchanged.lease else { break };
        claimed = lease.slices;
        reports = claimed.iter().map(report).collect();
    }
    Ok(())
}

fn by_position(slice: &LeasedSlice) -> BTreeMap<u32, u64> {
    slice
        .positions
        .iter()
        .zip(jobs::numbers(&slice.payloads))
        .collect()
}

fn fails(number: u64) -> bool {
    number.is_multiple_of(FAILS_EVERY)
}

fn report(slice: &LeasedSlice) -> Report {
    let numbers = by_position(slice);
    let (failed, completed): (Vec<u32>, Vec<u32>) = numbers
        .keys()
        .copied()
        .partition(|position| fails(numbers[position]));
    let completed: Positions = completed.into_iter().collect();
    Report {
        failed: failed
            .into_iter()
            .map(|position| FailedJob {
                position,
                error: JobError::new("Refused", format!("not {}", numbers[&position])),
                duration_us: 1,
            })
            .collect(),
        ..jobs::completed(slice, &completed)
    }
}

fn note_receipt(volume: &Volume, slice: &LeasedSlice, receipt: &Receipt) {
    let numbers = by_position(slice);
    let of = |positions: &Positions, failed: bool| -> Vec<u64> {
        let numbers = positions
            .iter()
            .filter_map(|position| numbers.get(&position).copied());
        numbers.filter(|number| fails(*number) == failed).collect()
    };
    volume.note(Note::Completed(of(&receipt.accepted, false)));
    volume.note(Note::Died(of(&receipt.dead, true)));
}
