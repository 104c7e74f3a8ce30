//! Packing that all stores share: the texts of reports, and single submits that have gathered. Single jobs with the
//! same kind, queue and options become one batch.

use std::collections::BTreeMap;

use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX};
use gristmill_model::{NewBatch, PackedArray, Positions, Report};

/// Finds the indexes of `subset` in `positions`, as far as they are in it.
pub fn indexes_of(subset: &Positions, positions: &Positions) -> Positions {
    let mut indexes = Positions::new();
    let mut ranges = positions.ranges().iter();
    let mut range = 0..0;
    let mut before = 0;
    for part in positions.intersection(subset).ranges() {
        while range.end <= part.start {
            before += range.end - range.start;
            match ranges.next() {
                Some(next) => range = next.clone(),
                None => return indexes,
            }
        }
        indexes.insert_range(before + part.start - range.start..before + part.end - range.start);
    }
    debug_assert_eq!(indexes, positions.indexes_of(subset));
    indexes
}

/// Packs durations as they are stored: a JSON array.
pub(crate) fn pack_durations(durations_us: impl Iterator<Item = u32>) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(durations_us.size_hint().0 * 4 + 2);
    text.push('[');
    for (index, duration_us) in durations_us.enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{duration_us}");
    }
    text.push(']');
    text
}

/// Packs the logs of the jobs at `positions` as they are stored: a JSON object of texts by position; `None` if there
/// are none.
pub(crate) fn pack_logs(report: &Report, positions: &Positions) -> serde_json::Result<Option<String>> {
    let logs: BTreeMap<u32, &str> = report
        .logs
        .iter()
        .filter(|log| positions.contains(log.position))
        .map(|log| (log.position, log.text.as_str()))
        .collect();
    Ok(if logs.is_empty() {
        None
    } else {
        Some(serde_json::to_string(&logs)?)
    })
}

/// Maximum number of batches with different options to which a single submit is compared.
const OPEN_MERGES_MAX: usize = 32;

/// Single jobs that become one batch, with their callers in the same order. At least one.
#[derive(Debug)]
pub struct Merge<Waiting> {
    /// The jobs.
    pub singles: Vec<NewBatch>,
    /// Their callers, in the same order.
    pub waiting: Vec<Waiting>,
    bytes: usize,
}

/// Adds a single job to the batch that it fits, or begins a new one.
pub fn merge<Waiting>(merges: &mut Vec<Merge<Waiting>>, single: NewBatch, waiting: Waiting) {
    let bytes = single.payloads.as_str().len();
    // Only the latest batches are tried, so that many different options do not take quadratic time.
    let open = merges.iter_mut().rev().take(OPEN_MERGES_MAX);
    match open.into_iter().find(|merge| merge.admits(&single, bytes)) {
        Some(merge) => {
            merge.bytes += bytes;
            merge.singles.push(single);
            merge.waiting.push(waiting);
            assert_eq!(merge.singles.len(), merge.waiting.len());
        }
        None => merges.push(Merge {
            singles: vec![single],
            waiting: vec![waiting],
            bytes,
        }),
    }
}

impl<Waiting> Merge<Waiting> {
    fn admits(&self, single: &NewBatch, bytes: usize) -> bool {
        let first = &self.singles[0];
        first.kind == single.kind
            && first.queue == single.queue
            && first.options == single.options
            && single.options.hooks.is_none()
            && first.after == single.after
            && first.tags == single.tags
            && single.tags.iter().all(|tag| tag.positions.is_none())
            && first.rejected.is_empty()
            && single.rejected.is_empty()
            && self.singles.len() < BATCH_JOBS_MAX as usize
            && self.bytes + bytes <= BATCH_BYTES_TARGET
    }
}

/// Packs the payloads of single jobs.
pub fn packed(singles: &[NewBatch]) -> PackedArray {
    let packed = match singles {
        [single] => single.payloads.clone(),
        _ => PackedArray::concat(singles.iter().map(|single| &single.payloads)),
    };
    assert_eq!(
        packed.count() as usize,
        singles.len(),
        "a single submit has one payload"
    );
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(text: &str) -> Positions {
        text.parse().unwrap()
    }

    #[test]
    fn indexes_skip_the_gaps() {
        let all = positions("3-5,10,20-29");
        for (subset, indexes) in [
            ("3-5,10,20-29", "0-13"),
            ("4,10", "1,3"),
            ("5,20-21,29", "2,4-5,13"),
            ("", ""),
        ] {
            assert_eq!(
                indexes_of(&positions(subset), &all),
                positions(indexes),
                "{subset}"
            );
        }
    }

    #[test]
    fn durations_are_json() {
        assert_eq!(
            pack_durations([7, 0, 4_000_000_000].into_iter()),
            "[7,0,4000000000]"
        );
        assert_eq!(pack_durations(std::iter::empty()), "[]");
    }
}
