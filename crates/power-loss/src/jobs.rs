//! The jobs of all workloads. Each job has a number as its payload, and the same number as its value.

use std::sync::Arc;

use gristmill_model::{
    BatchOptions, Completed, LeasedSlice, NewBatch, PackedArray, PackedBuilder, Positions, Report,
    RetryPolicy, SystemClock,
};
use gristmill_store::{NewWorker, StoreError, Want};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

use crate::limits::CHECKPOINT_PAGES;
use crate::volume::Volume;

/// The file of the store.
pub const FILE: &str = "jobs.db";

/// The kind of the jobs.
pub const KIND: &str = "number";

/// Opens the store of a volume like a program does.
pub fn open(volume: &Volume, synchronous: Synchronous) -> Result<SqliteStore, StoreError> {
    let options = SqliteOptions {
        synchronous,
        checkpoint_pages: CHECKPOINT_PAGES,
        ..SqliteOptions::new(Arc::new(SystemClock), 1)
    };
    SqliteStore::open(volume.path(FILE), options)
}

/// A batch of jobs with two attempts and no delay.
pub fn batch(numbers: &[u64]) -> NewBatch {
    let mut builder = PackedBuilder::new();
    for number in numbers {
        // A number is always a valid item.
        let _ = builder.push(&number.to_string());
    }
    let retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 0,
        ..RetryPolicy::default()
    };
    NewBatch {
        options: BatchOptions {
            retry,
            ..BatchOptions::default()
        },
        ..NewBatch::new(KIND, builder.finish())
    }
}

/// The numbers of packed items, in order. Leaves out items that are not numbers.
pub fn numbers(items: &PackedArray) -> Vec<u64> {
    items.items().filter_map(|item| item.parse().ok()).collect()
}

/// A new worker.
pub fn worker() -> NewWorker {
    NewWorker {
        name: "power-loss".to_owned(),
        host: "a machine before the cut".to_owned(),
        process_id: 1,
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    }
}

/// A claim for jobs of any kind.
pub fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec!["default".into(), "extract".into()],
        kinds: Vec::new(),
        priority_min: None,
    }
}

/// A report that these jobs of a slice completed. The value of each job is its payload.
pub fn completed(slice: &LeasedSlice, positions: &Positions) -> Report {
    let indexes = slice.positions.indexes_of(positions);
    assert_eq!(
        indexes.len(),
        positions.len(),
        "a report names only positions of its slice"
    );
    let completed = Completed {
        positions: positions.clone(),
        values: slice.payloads.select(&indexes),
        durations_us: vec![1; positions.len() as usize],
    };
    Report {
        completed: (!positions.is_empty()).then_some(completed),
        ..Report::new(slice.lease, slice.batch, slice.attempt)
    }
}
