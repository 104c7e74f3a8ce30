//! The portions of an input. `gristmill submit` stores each in one transaction.

use gristmill_batching::EndReason;
use gristmill_model::PackedBuilder;

use crate::input::{BatchReader, InputBatch};
use crate::span::show_count;

/// The bytes of payloads after which a portion takes no further batch. The whole portion is in memory, and other
/// writers of the store wait some seconds for it.
pub(super) const PORTION_BYTES_MAX: usize = 256 << 20;

/// Reads an input in portions.
pub(super) struct Portions {
    reader: BatchReader,
    /// The number of items that are still to be skipped.
    skipped: u64,
}

impl Portions {
    /// Cuts an input into portions, after its first `skipped` items.
    pub fn new(reader: BatchReader, skipped: u64) -> Portions {
        Portions { reader, skipped }
    }

    /// The next batches: up to the end of the input, to the limit, or to a moment at which a pipe has no bytes. Empty
    /// at the end.
    pub fn next(&mut self) -> anyhow::Result<Vec<InputBatch>> {
        let (mut portion, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES_MAX
            && let Some(batch) = self.reader.next_batch()?
        {
            let ends = batch.end_reason == EndReason::Deadline;
            bytes += batch.payloads.as_str().len();
            portion.extend(self.rest_of(batch)?);
            if ends && !portion.is_empty() {
                break;
            }
        }
        Ok(portion)
    }

    fn rest_of(&mut self, mut batch: InputBatch) -> anyhow::Result<Option<InputBatch>> {
        let count = batch.payloads.count();
        let skipped = u32::try_from(self.skipped).unwrap_or(u32::MAX).min(count);
        self.skipped -= u64::from(skipped);
        if skipped == count {
            return Ok(None);
        }
        if skipped > 0 {
            let mut rest = PackedBuilder::new();
            for payload in batch.payloads.items().skip(skipped as usize) {
                rest.push(payload)?;
            }
            batch.payloads = rest.finish();
            batch.rejected.retain(|rejected| rejected.position >= skipped);
            for rejected in &mut batch.rejected {
                rejected.position -= skipped;
            }
        }
        Ok(Some(batch))
    }
}

/// Describes the stored part of a submit that an error stopped. The store refused `failed` items, or did not answer for them.
pub(super) fn left_behind(stored: u64, failed: u64, skipped: u64, is_unknown: bool) -> String {
    let rest = format!("submit the rest with --skip {}", skipped + stored);
    match (stored, is_unknown) {
        (0, false) => "nothing is submitted".to_owned(),
        (0, true) => format!("the {} items may or may not be submitted", show_count(failed)),
        (_, false) => format!(
            "the first {} items are submitted, and no others; {rest}",
            show_count(stored)
        ),
        (_, true) => format!(
            "the first {} items are submitted, and the {} items behind them may or may not be: look for their jobs; {rest}, or more",
            show_count(stored),
            show_count(failed)
        ),
    }
}
