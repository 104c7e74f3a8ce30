//! Cached values: a job reuses the value of a job with the same payload in its own lane.
//!
//! A lane is a queue, a kind and a group, so a value never crosses from one tenant, or from one set of workers, to another.
//!
//! A submit looks up the digests of a batch's payloads with one statement. Jobs with a known value complete by a report
//! of the submit itself, on attempt 0.

use std::collections::BTreeMap;

use gristmill_model::limits::{CACHED_BYTES_PER_BATCH_MAX, CACHED_VALUE_BYTES_MAX};
use gristmill_model::{JobState, NewBatch, PackedArray, PackedBuilder, Positions, Timestamp};
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::rules::ending::Ending;
use crate::rules::lanes::LaneName;

/// Bytes of a digest. They are enough that two payloads never have the same digest by chance.
const DIGEST_BYTES: usize = 16;

/// Computes the digest by which a payload of a lane is found, in hexadecimal.
fn digest(lane: LaneName<'_>, payload: &str) -> String {
    let mut hash = Sha256::new();
    for name in [lane.queue, lane.kind, lane.group] {
        hash.update(name.as_bytes());
        // No name contains a line feed.
        hash.update(b"\n");
    }
    hash.update(payload.as_bytes());
    let bytes = hash.finalize();
    bytes[..DIGEST_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The digests of a batch whose jobs reuse values, one for each job.
#[derive(Debug)]
pub struct Lookup {
    /// The digests, by position.
    pub digests: Vec<String>,
    /// The time after which values must have been stored.
    pub stored_after: Timestamp,
}

impl Lookup {
    /// Makes the lookup of a batch with the option `cached_ms`.
    pub fn of(batch: &NewBatch, payloads: &PackedArray, now: Timestamp) -> Option<Lookup> {
        let cached_ms = batch.options.cached_ms?;
        let lane = LaneName::of(batch);
        Some(Lookup {
            digests: payloads.items().map(|payload| digest(lane, payload)).collect(),
            stored_after: now.plus_ms(-i64::try_from(cached_ms).unwrap_or(i64::MAX)),
        })
    }
}

/// The values that were found, by position.
#[derive(Debug, Default)]
pub struct Hits(BTreeMap<u32, String>);

impl Hits {
    /// Adds a value.
    pub fn add(&mut self, position: u32, value: String) {
        self.0.insert(position, value);
    }

    /// The jobs that complete with found values, and their ending. Rejected jobs stay as they are.
    pub fn ending(self, batch: &NewBatch) -> Result<Option<(Positions, Ending)>, StoreError> {
        let (mut positions, mut values) = (Positions::new(), PackedBuilder::new());
        for (position, value) in self.0 {
            let is_rejected = batch
                .rejected
                .iter()
                .any(|rejected| rejected.position == position);
            if !is_rejected && values.bytes() + value.len() <= CACHED_BYTES_PER_BATCH_MAX {
                values.push(&value)?;
                positions.insert(position);
            }
        }
        // There was no attempt.
        let ending = Ending {
            values: Some(values.finish()),
            ..Ending::of(JobState::Completed, 0)
        };
        assert_eq!(
            ending.values.as_ref().map_or(0, PackedArray::count),
            positions.len(),
            "each job has the value that was found for it"
        );
        Ok((!positions.is_empty()).then_some((positions, ending)))
    }
}

/// Values to keep, by the digests of their payloads.
pub type Kept = BTreeMap<String, String>;

/// The values to keep of completed jobs of a lane. `payloads` has the payloads of all jobs of their batch.
pub fn kept(lane: LaneName<'_>, payloads: &PackedArray, positions: &Positions, values: &PackedArray) -> Kept {
    let payloads = payloads.select(positions);
    assert_eq!(
        payloads.count(),
        values.count(),
        "each completed job has a payload and a value"
    );
    let pairs = payloads.items().zip(values.items());
    let small = pairs.filter(|(_, value)| value.len() <= CACHED_VALUE_BYTES_MAX);
    small
        .map(|(payload, value)| (digest(lane, payload), value.to_owned()))
        .collect()
}

/// The time until which values are kept.
pub fn kept_until(now: Timestamp, cached_ms: u64) -> Timestamp {
    now.plus_ms(i64::try_from(cached_ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane<'a>(queue: &'a str, kind: &'a str, group: &'a str) -> LaneName<'a> {
        LaneName { queue, kind, group }
    }

    #[test]
    fn digests_differ_by_lane_and_payload() {
        let all = [
            (lane("q", "a", ""), "1"),
            (lane("q", "a", ""), "2"),
            (lane("q", "a", ""), "\"1\""),
            (lane("q", "b", ""), "1"),
            (lane("r", "a", ""), "1"),
            (lane("q", "a", "b"), "1"),
            (lane("a", "q", ""), "1"),
            (lane("q", "", "a"), "1"),
        ];
        let digests: std::collections::BTreeSet<String> =
            all.iter().map(|(lane, payload)| digest(*lane, payload)).collect();
        assert_eq!(digests.len(), all.len());
        assert!(digests.iter().all(|digest| digest.len() == 2 * DIGEST_BYTES));
        assert_eq!(digest(all[0].0, "1"), digest(lane("q", "a", ""), "1"));
    }
}
