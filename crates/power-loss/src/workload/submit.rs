//! Submits of all kinds.

use futures::future::try_join_all;
use gristmill_model::{BatchId, JobId, KeyedBatch, PackedBuilder, Rng, SplitMix64, Unique};
use gristmill_store::{Change, Selection, Store, StoreError};
use gristmill_store_sqlite::{SqliteStore, Synchronous};

use crate::error::RecordError;
use crate::jobs;
use crate::note::Note;
use crate::volume::Volume;

/// The number of times the store is opened and closed.
const SESSIONS: usize = 3;

/// The number of rounds in a session. Each round submits in every way, and cancels a job.
const ROUNDS: usize = 4;

/// The number of callers that submit at the same time, so that their submits share one transaction.
const CALLERS: usize = 4;

pub(super) async fn record(volume: &Volume, synchronous: Synchronous, seed: u64) -> Result<(), RecordError> {
    let (mut rng, mut next) = (SplitMix64::new(seed), 0);
    for session in 0..SESSIONS {
        let store = jobs::open(volume, synchronous)?;
        let mut open = Vec::new();
        for round in 0..ROUNDS {
            let mut take = |count: u64| {
                next += count;
                (next - count..next).collect::<Vec<u64>>()
            };
            let submits = (0..CALLERS).map(|_| submit(volume, &store, take(1 + rng.below(30))));
            try_join_all(submits.collect::<Vec<_>>()).await?;
            let singles = (0..CALLERS).map(|_| submit_one(volume, &store, take(1)[0]));
            open.extend(try_join_all(singles.collect::<Vec<_>>()).await?);
            submit_keyed(volume, &store, &format!("{session}-{round}"), take(5)).await?;
            let cancelled = open.swap_remove(rng.below(open.len() as u64) as usize);
            cancel(volume, &store, cancelled).await?;
        }
        store.close().await?;
    }
    Ok(())
}

async fn submit(volume: &Volume, store: &SqliteStore, numbers: Vec<u64>) -> Result<(), StoreError> {
    volume.note(Note::Submitting(numbers.clone()));
    let (first, second) = numbers.split_at(numbers.len().div_ceil(2));
    let parts = [first, second].into_iter().filter(|part| !part.is_empty());
    let ids = store.submit(parts.map(jobs::batch).collect(), None).await?;
    note_submitted(volume, numbers, ids);
    Ok(())
}

async fn submit_one(volume: &Volume, store: &SqliteStore, number: u64) -> Result<(u64, JobId), StoreError> {
    volume.note(Note::Submitting(vec![number]));
    let job = store.submit_one(jobs::batch(&[number])).await?;
    note_submitted(volume, vec![number], vec![job.batch]);
    Ok((number, job))
}

/// Submits three jobs with keys. Then submits a job with one of these keys and a job with a new key.
async fn submit_keyed(
    volume: &Volume,
    store: &SqliteStore,
    prefix: &str,
    numbers: Vec<u64>,
) -> Result<(), RecordError> {
    let (first, second) = numbers.split_at(3);
    for (numbers, keys, stored) in [
        (first, &[0, 1, 2][..], first),
        (second, &[1, 3][..], &second[1..]),
    ] {
        let mut packed = PackedBuilder::new();
        for key in keys {
            packed.push_value(&format!("{prefix}-{key}"))?;
        }
        volume.note(Note::Submitting(stored.to_vec()));
        let batch = KeyedBatch::new(jobs::batch(numbers), packed.finish(), Unique::default());
        let submitted = store.submit_keyed(vec![batch]).await?;
        let ids = submitted.iter().filter_map(|submitted| submitted.batch).collect();
        note_submitted(volume, stored.to_vec(), ids);
    }
    Ok(())
}

async fn cancel(volume: &Volume, store: &SqliteStore, (number, job): (u64, JobId)) -> Result<(), StoreError> {
    store.change(Selection::Jobs(vec![job]), Change::Cancel).await?;
    volume.note(Note::Cancelled(vec![number]));
    Ok(())
}

fn note_submitted(volume: &Volume, numbers: Vec<u64>, ids: Vec<BatchId>) {
    assert!(!ids.is_empty(), "an acknowledged submit has the id of a batch");
    let batch = ids.iter().map(|id| id.0).max().unwrap_or_default();
    volume.note(Note::Submitted { numbers, batch });
}
