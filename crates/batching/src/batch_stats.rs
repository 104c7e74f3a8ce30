//! Counts of the batches that each hop moved, their sizes, and the reasons for their ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

/// The reason why a batch ended. It is written in lower case (`full`) in JSON and in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndReason {
    /// The batch holds as many items as a batch may hold.
    Full,
    /// No more items were waiting.
    Drained,
    /// The next item would have exceeded the limit of bytes (or of another weight).
    Bytes,
    /// The time of the batch was over.
    Deadline,
    /// An external limit was reached, such as `--limit` or a rate limit.
    Limit,
}

impl EndReason {
    /// All reasons, in the order in which they are shown.
    pub const ALL: [EndReason; 5] = [
        EndReason::Full,
        EndReason::Drained,
        EndReason::Bytes,
        EndReason::Deadline,
        EndReason::Limit,
    ];

    /// The written form: `full`, `drained`, `bytes`, `deadline` or `limit`.
    pub const fn as_str(self) -> &'static str {
        match self {
            EndReason::Full => "full",
            EndReason::Drained => "drained",
            EndReason::Bytes => "bytes",
            EndReason::Deadline => "deadline",
            EndReason::Limit => "limit",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The batches that one hop (submit, claim, run, commit, ...) has moved. Counts never wrap: they stop at the largest `u64`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopStats {
    /// Number of batches.
    pub batches: u64,
    /// Number of items in all batches.
    pub items: u64,
    /// Number of items in the largest batch.
    pub items_max: u64,
    /// Number of batches by the reason of their end. A reason that never occurred has no entry.
    pub end_reasons: BTreeMap<EndReason, u64>,
}

impl HopStats {
    /// Adds one batch of `items` that ended for `end_reason`.
    pub fn record(&mut self, items: usize, end_reason: EndReason) {
        let items = items as u64;
        self.batches = self.batches.saturating_add(1);
        self.items = self.items.saturating_add(items);
        self.items_max = self.items_max.max(items);
        let count = self.end_reasons.entry(end_reason).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &HopStats) {
        self.batches = self.batches.saturating_add(other.batches);
        self.items = self.items.saturating_add(other.items);
        self.items_max = self.items_max.max(other.items_max);
        for (&end_reason, &batches) in &other.end_reasons {
            let count = self.end_reasons.entry(end_reason).or_default();
            *count = count.saturating_add(batches);
        }
    }

    /// Mean number of items in a batch; 0 before the first batch.
    pub fn items_mean(&self) -> f64 {
        if self.batches == 0 {
            0.0
        } else {
            self.items as f64 / self.batches as f64
        }
    }
}

/// The counts of every hop, by its name. This plain value is shown, sent and stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchStats {
    /// The hops' statistics by name, such as `submit` or `commit`.
    pub hops: BTreeMap<String, HopStats>,
}

impl BatchStats {
    /// Adds one batch of `items` that ended for `end_reason` to `hop`.
    pub fn record(&mut self, hop: &str, items: usize, end_reason: EndReason) {
        match self.hops.get_mut(hop) {
            Some(stats) => stats.record(items, end_reason),
            None => self
                .hops
                .entry(hop.to_owned())
                .or_default()
                .record(items, end_reason),
        }
    }

    /// Adds the counts of `other` (another worker, another process), hop by hop.
    pub fn merge(&mut self, other: &BatchStats) {
        for (hop, stats) in &other.hops {
            self.hops.entry(hop.clone()).or_default().merge(stats);
        }
    }

    /// The statistics of one hop, if it has moved anything.
    pub fn hop(&self, hop: &str) -> Option<&HopStats> {
        self.hops.get(hop)
    }
}

/// Batch statistics into which many threads record at the same time. Names of hops are literals of the program, so
/// their number is bounded.
#[derive(Debug, Default)]
pub struct AtomicBatchStats {
    hops: RwLock<BTreeMap<&'static str, HopRecorder>>,
}

impl AtomicBatchStats {
    /// Makes empty statistics.
    pub fn new() -> AtomicBatchStats {
        AtomicBatchStats::default()
    }

    /// The recorder of one hop. A hot path keeps it, so that it looks the name up only once.
    pub fn hop(&self, hop: &'static str) -> HopRecorder {
        if let Some(recorder) = self.hops.read().unwrap_or_else(PoisonError::into_inner).get(hop) {
            return recorder.clone();
        }
        self.hops
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(hop)
            .or_default()
            .clone()
    }

    /// Adds one batch of `items` that ended for `end_reason` to `hop`.
    pub fn record(&self, hop: &'static str, items: usize, end_reason: EndReason) {
        self.hop(hop).record(items, end_reason);
    }

    /// The counts up to now. A batch that is being recorded may be in only some of the counts. Once the recording
    /// threads are still, all counts agree. Hops without batches are left out.
    pub fn snapshot(&self) -> BatchStats {
        let hops = self.hops.read().unwrap_or_else(PoisonError::into_inner);
        let hops = hops
            .iter()
            .map(|(&hop, recorder)| (hop.to_owned(), recorder.snapshot()));
        BatchStats {
            hops: hops.filter(|(_, stats)| stats.batches > 0).collect(),
        }
    }
}

/// Records the batches of one hop, from any number of threads. Clones record into the same counts.
#[derive(Debug, Clone, Default)]
pub struct HopRecorder {
    counters: Arc<HopCounters>,
}

#[derive(Debug, Default)]
struct HopCounters {
    items: AtomicU64,
    items_max: AtomicU64,
    end_reasons: [AtomicU64; EndReason::ALL.len()],
}

impl HopRecorder {
    /// Adds one batch of `items` that ended for `end_reason`.
    pub fn record(&self, items: usize, end_reason: EndReason) {
        // The counters order nothing else in the program, so relaxed access is enough.
        self.counters.items.fetch_add(items as u64, Ordering::Relaxed);
        self.counters.items_max.fetch_max(items as u64, Ordering::Relaxed);
        self.counters.end_reasons[end_reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of this hop up to now; see [`AtomicBatchStats::snapshot`].
    pub fn snapshot(&self) -> HopStats {
        let counts = EndReason::ALL.map(|end_reason| {
            (
                end_reason,
                self.counters.end_reasons[end_reason as usize].load(Ordering::Relaxed),
            )
        });
        HopStats {
            batches: counts.iter().map(|(_, batches)| batches).sum(),
            items: self.counters.items.load(Ordering::Relaxed),
            items_max: self.counters.items_max.load(Ordering::Relaxed),
            end_reasons: counts.into_iter().filter(|&(_, batches)| batches > 0).collect(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_same_form_in_text_and_json() {
        for (position, end_reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(
                serde_json::to_string(&end_reason).unwrap(),
                format!("\"{end_reason}\"")
            );
            assert_eq!(end_reason as usize, position, "ALL indexes the counters");
        }
        assert_eq!(format!("{:>8}", EndReason::Full), "    full");
    }

    #[test]
    fn a_snapshot_survives_json() {
        let mut stats = BatchStats::default();
        stats.record("submit", 3, EndReason::Drained);
        stats.record("submit", 10, EndReason::Full);
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(
            json,
            r#"{"submit":{"batches":2,"items":13,"items_max":10,"end_reasons":{"full":1,"drained":1}}}"#
        );
        assert_eq!(serde_json::from_str::<BatchStats>(&json).unwrap(), stats);
        assert_eq!(stats.hop("submit").unwrap().items_mean(), 6.5);
        assert_eq!(HopStats::default().items_mean(), 0.0);
    }

    #[test]
    fn merging_equals_recording_in_one_place() {
        let batches = [
            ("claim", 5, EndReason::Limit),
            ("run", 7, EndReason::Deadline),
            ("run", 2, EndReason::Bytes),
        ];
        let (mut left, mut right, mut whole) = (
            BatchStats::default(),
            BatchStats::default(),
            BatchStats::default(),
        );
        for (position, (hop, items, end_reason)) in batches.into_iter().enumerate() {
            whole.record(hop, items, end_reason);
            if position % 2 == 0 { &mut left } else { &mut right }.record(hop, items, end_reason);
        }
        left.merge(&right);
        assert_eq!(left, whole);
    }

    #[test]
    fn counts_stop_at_the_largest_number_instead_of_wrapping() {
        let mut stats = HopStats {
            batches: u64::MAX,
            items: u64::MAX - 1,
            ..HopStats::default()
        };
        stats.merge(&stats.clone());
        stats.record(9, EndReason::Full);
        assert_eq!((stats.batches, stats.items), (u64::MAX, u64::MAX));
    }

    #[test]
    fn threads_record_into_one_place_and_nothing_is_lost() {
        let stats = AtomicBatchStats::new();
        let unused = stats.hop("commit");
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let stats = &stats;
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        stats.record("submit", thread, EndReason::ALL[thread]);
                    }
                });
            }
        });
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.hops.len(), 1, "a hop without batches is left out");
        let submit = snapshot.hop("submit").unwrap();
        assert_eq!(
            (submit.batches, submit.items, submit.items_max),
            (4_000, 6_000, 3)
        );
        assert!(submit.end_reasons.values().all(|&batches| batches == 1_000));
        unused.record(1, EndReason::Full);
        assert_eq!(stats.snapshot().hop("commit").unwrap().batches, 1);
    }
}
