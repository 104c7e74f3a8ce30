//! What stores pack in the same way: the texts of reports, and single submits that have gathered. Those of one kind and queue
//! with equal options become one batch.

use std::collections::BTreeMap;

use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX};
use gristmill_model::{NewBatch, PackedArray, Positions, Report};

/// The places of `subset`, which lies in `positions`, in the order of `positions`.
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
    indexes
}

/// Durations as they are stored: a JSON array.
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

/// What the jobs at `positions` printed, as it is stored: a JSON object, text by position. `None` where that is nothing.
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

/// Single submits with different options that are packed at the same time.
const OPEN_MERGES_MAX: usize = 32;

/// Single jobs that become one batch, and their callers, in the same order. At least one.
#[derive(Debug)]
pub struct Merge<Waiting> {
    /// The jobs.
    pub singles: Vec<NewBatch>,
    /// Their callers, in the same order.
    pub waiting: Vec<Waiting>,
    bytes: usize,
}

/// Adds a single job to the batch that it fits into, or begins one.
pub fn merge<Waiting>(merges: &mut Vec<Merge<Waiting>>, single: NewBatch, waiting: Waiting) {
    let bytes = single.payloads.as_str().len();
    // Only the latest are looked at, so that many different options do not make this quadratic.
    let open = merges.iter_mut().rev().take(OPEN_MERGES_MAX);
    match open.into_iter().find(|merge| merge.admits(&single, bytes)) {
        Some(merge) => {
            merge.bytes += bytes;
            merge.singles.push(single);
            merge.waiting.push(waiting);
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

/// The payloads of single jobs as one pack.
pub fn packed(singles: &[NewBatch]) -> PackedArray {
    match singles {
        [single] => single.payloads.clone(),
        _ => PackedArray::concat(singles.iter().map(|single| &single.payloads)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(text: &str) -> Positions {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_counted_through_the_gaps() {
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
