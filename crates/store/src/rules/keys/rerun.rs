//! Jobs that run once more after the job that has their key.
//!
//! A [`Rerun`] is stored with the key of an open job. A submit with `rerun` stores one while that job runs. A debounced
//! submit stores one while that job is open and cannot take its payload. The store submits it when the job has ended:
//!
//! | the job ends as | `rerun` | debounced |
//! | --- | --- | --- |
//! | completed | in the same transaction | in the same transaction |
//! | dead, expired | dropped | at the next [`expire`](crate::Store::expire); until then it stays with the key |
//! | cancelled | dropped | dropped |

use std::collections::BTreeMap;

use gristmill_model::{
    BatchOptions, JobId, KeyedBatch, NewBatch, PackedArray, PackedBuilder, Positions, Tag, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::rules::keys::part::tags_of;

/// The owner of a key: a job that is open, whose period has not ended, or behind which another job waits.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The job.
    pub job: JobId,
    /// Whether the job has not ended.
    pub open: bool,
    /// The job that runs afterwards, in its stored form.
    pub rerun: Option<String>,
}

/// A job that runs once more after the job that has its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rerun {
    kind: String,
    queue: String,
    pub(super) payload: PackedArray,
    pub(super) options: BatchOptions,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<Tag>,
    /// Set if a debounced submit stored it. The SQL of the stores tests whether it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) debounced: Option<Waiting>,
}

/// The debounced payloads of a [`Rerun`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub first_at: Timestamp,
    pub count: u32,
}

/// A [`Rerun`] to store with the key of another job.
#[derive(Debug)]
pub struct PlannedRerun {
    /// The key.
    pub key: String,
    /// The job that has the key.
    pub owner: JobId,
    /// The job that runs afterwards.
    pub rerun: Rerun,
}

impl Rerun {
    /// Makes a rerun of the job at an index of a batch.
    pub fn of(batch: &NewBatch, index: u32) -> Self {
        let only = Positions::from(index..index + 1);
        Rerun {
            kind: batch.kind.clone(),
            queue: batch.queue.clone(),
            payload: batch.payloads.select(&only),
            options: batch.options.clone(),
            tags: tags_of(&batch.tags, &only),
            debounced: None,
        }
    }
}

/// Reads a stored rerun.
pub(super) fn read(text: &str) -> Result<Rerun, StoreError> {
    serde_json::from_str(text).map_err(damaged)
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::Database(format!("a stored rerun cannot be read: {error}"))
}

/// Makes the batches to submit, packed by kind, queue and options. `reruns` has keys and stored [`Rerun`]s.
pub fn reruns(reruns: &[(String, String)]) -> Result<Vec<KeyedBatch>, StoreError> {
    let mut packed: BTreeMap<(String, String, String), (Rerun, PackedBuilder, PackedBuilder)> =
        BTreeMap::new();
    for (key, text) in reruns {
        let rerun = read(text)?;
        // Jobs with tags of particular values are few.
        let equal = serde_json::to_string(&(&rerun.options, &rerun.tags)).map_err(damaged)?;
        let payload = rerun.payload.clone();
        let (_, payloads, keys) = packed
            .entry((rerun.kind.clone(), rerun.queue.clone(), equal))
            .or_insert_with(|| (rerun, PackedBuilder::new(), PackedBuilder::new()));
        payloads.extend(&payload);
        assert_eq!(payload.count(), 1, "a rerun is of one job");
        keys.push_value(key)?;
    }
    let batches = packed.into_values().map(|(rerun, payloads, keys)| KeyedBatch {
        batch: NewBatch {
            queue: rerun.queue,
            options: rerun.options,
            tags: rerun
                .tags
                .into_iter()
                .map(|tag| Tag::all(tag.name, tag.value))
                .collect(),
            ..NewBatch::new(rerun.kind, payloads.finish())
        },
        keys: keys.finish(),
    });
    Ok(batches.collect())
}
