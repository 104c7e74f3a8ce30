//! The metrics of a store for monitoring.
//!
//! They cost one read of each lane and of each piece of open work. Ended jobs are counted when they end. A handle
//! gathers its counts by batch in memory, and adds them to one row for each lane with the heartbeats of its workers. So
//! a prune lowers no count of a kind and queue with jobs, and a killed process loses the counts of its last seconds. A
//! prune forgets kinds and queues without jobs, and their counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, Positions, Receipt, Report, Timestamp};
use serde::{Deserialize, Serialize};

/// The upper bounds of the counted durations of jobs, in seconds. Longer durations are counted last.
pub const DURATION_BOUNDS_SECONDS: [f64; DURATION_BOUNDS] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0,
];
const DURATION_BOUNDS: usize = 14;

/// Maximum batches whose counts a handle gathers before it adds them to the store's counts.
pub const GATHERED_BATCHES_MAX: usize = 4_096;

/// Jobs that workers have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndedJobs {
    /// Completed jobs.
    pub completed: u64,
    /// Jobs that are dead after their last attempt.
    pub dead: u64,
    /// The sum of the durations of completed jobs, in microseconds.
    pub duration_sum_us: u64,
    /// Number of completed jobs by duration: one number for each bound, and one for longer durations.
    pub duration_counts: [u64; DURATION_BOUNDS + 1],
}

/// The metrics of the jobs of one kind on one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneMetrics {
    /// Their kind.
    pub kind: Arc<str>,
    /// Their queue.
    pub queue: Arc<str>,
    /// Jobs that have not begun or wait for a retry: due, scheduled, blocked or paused.
    pub waiting: u64,
    /// Jobs that can be claimed now.
    pub due: u64,
    /// Jobs that workers hold.
    pub running: u64,
    /// Pieces of open work, each a row. Counting the jobs costs as much.
    pub pieces: u64,
    /// The time from which the oldest due job could be claimed.
    pub oldest_due_at: Option<Timestamp>,
    /// Jobs that have ended since the store was created.
    pub ended: EndedJobs,
}

/// The metrics of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreMetrics {
    /// The metrics by kind and queue, in the order of their first jobs, so that a limit always leaves the same ones.
    pub lanes: Vec<LaneMetrics>,
    /// Batches by hop and the reason of their end, since the store was created.
    pub hops: BatchStats,
    /// Registered workers.
    pub workers: u64,
    /// Bytes of the database on disk.
    pub size_bytes: u64,
}

/// The counts that a handle has gathered, by batch.
#[derive(Debug, Default)]
pub struct GatheredEnds(HashMap<BatchId, EndedJobs>);

/// The completed jobs of a report, until its receipt arrives.
#[derive(Debug)]
pub struct ReportedEnds {
    batch: BatchId,
    completed: Positions,
    durations_us: Vec<u32>,
}

impl EndedJobs {
    /// Counts a completed job.
    pub fn complete(&mut self, duration_us: u32) {
        let seconds = f64::from(duration_us) / 1e6;
        self.duration_counts[DURATION_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds)] += 1;
        self.duration_sum_us += u64::from(duration_us);
        self.completed += 1;
    }

    /// Adds other counts.
    pub fn add(&mut self, more: &EndedJobs) {
        self.completed += more.completed;
        self.dead += more.dead;
        self.duration_sum_us += more.duration_sum_us;
        for (count, more) in self.duration_counts.iter_mut().zip(more.duration_counts) {
            *count += more;
        }
    }
}

impl ReportedEnds {
    /// Takes the completed jobs of these reports.
    pub fn of(reports: &[Report]) -> Vec<ReportedEnds> {
        let of_report = |report: &Report| ReportedEnds {
            batch: report.batch,
            completed: report
                .completed
                .as_ref()
                .map_or_else(Positions::new, |completed| completed.positions.clone()),
            durations_us: report
                .completed
                .as_ref()
                .map_or_else(Vec::new, |completed| completed.durations_us.clone()),
        };
        reports.iter().map(of_report).collect()
    }
}

impl GatheredEnds {
    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the accepted jobs of reports.
    pub fn add(&mut self, reported: &[ReportedEnds], receipts: &[Receipt]) {
        assert_eq!(reported.len(), receipts.len(), "each report has a receipt");
        for (reported, receipt) in reported.iter().zip(receipts) {
            let dead = u64::from(receipt.dead.len());
            if dead == 0 && reported.completed.is_empty() {
                continue;
            }
            let ended = self.0.entry(reported.batch).or_default();
            ended.dead += dead;
            let is_whole = receipt.refused.is_empty() && receipt.failed.is_empty();
            for (position, duration_us) in reported.completed.iter().zip(&reported.durations_us) {
                let has_completed =
                    is_whole || receipt.accepted.contains(position) && !receipt.failed.contains(position);
                if has_completed {
                    ended.complete(*duration_us);
                }
            }
        }
    }

    /// Whether the counts must be added to the store's before more are gathered.
    pub fn is_full(&self) -> bool {
        self.0.len() >= GATHERED_BATCHES_MAX
    }

    /// Takes the counts.
    pub fn take(&mut self) -> Vec<(BatchId, EndedJobs)> {
        std::mem::take(&mut self.0).into_iter().collect()
    }

    /// Puts back counts that could not be added to the store's. Drops counts beyond the limit.
    pub fn put_back(&mut self, ended: Vec<(BatchId, EndedJobs)>) {
        for (batch, ended) in ended {
            if self.0.len() < GATHERED_BATCHES_MAX || self.0.contains_key(&batch) {
                self.0.entry(batch).or_default().add(&ended);
            }
        }
    }
}

/// Adds up the counts by lane. Batches that were deleted since have no lane, and are left out.
pub fn by_lane(ended: &[(BatchId, EndedJobs)], lanes: &HashMap<BatchId, i64>) -> BTreeMap<i64, EndedJobs> {
    let mut all: BTreeMap<i64, EndedJobs> = BTreeMap::new();
    for (batch, ended) in ended {
        if let Some(lane) = lanes.get(batch) {
            all.entry(*lane).or_default().add(ended);
        }
    }
    all
}

/// Metrics of lanes that are being gathered, by lane id.
#[derive(Debug, Default)]
pub struct LanesBuilder {
    lanes: BTreeMap<i64, LaneMetrics>,
}

impl LanesBuilder {
    /// The metrics of a lane.
    pub fn lane(&mut self, id: i64) -> &mut LaneMetrics {
        self.lanes.entry(id).or_default()
    }

    /// Joins the lanes of all groups with one kind and queue.
    pub fn finish(self) -> Vec<LaneMetrics> {
        let mut places: HashMap<(Arc<str>, Arc<str>), usize> = HashMap::new();
        let mut all: Vec<LaneMetrics> = Vec::new();
        for lane in self.lanes.into_values() {
            let key = (lane.kind.clone(), lane.queue.clone());
            match places.get(&key) {
                Some(place) => all[*place].add(&lane),
                None => {
                    places.insert(key, all.len());
                    all.push(lane);
                }
            }
        }
        all
    }
}

impl LaneMetrics {
    /// Adds other metrics.
    pub fn add(&mut self, other: &LaneMetrics) {
        self.waiting += other.waiting;
        self.due += other.due;
        self.running += other.running;
        self.pieces += other.pieces;
        let oldest = self.oldest_due_at.into_iter().chain(other.oldest_due_at);
        self.oldest_due_at = oldest.min();
        self.ended.add(&other.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_their_bounds() {
        let mut ended = EndedJobs::default();
        for duration_us in [0, 1_000, 1_001, 3_000_000_000, u32::MAX] {
            ended.complete(duration_us);
        }
        let counts = &ended.duration_counts;
        assert_eq!((counts[0], counts[1]), (2, 1));
        assert_eq!((counts[13], counts[14]), (1, 1));
        assert_eq!((ended.completed, counts.iter().sum::<u64>()), (5, 5));
    }

    #[test]
    fn counts_that_cannot_be_added_are_kept_within_the_limit() {
        let mut gathered = GatheredEnds::default();
        let one = EndedJobs {
            dead: 1,
            ..EndedJobs::default()
        };
        let many = (0..GATHERED_BATCHES_MAX as i64 + 5).map(|id| (BatchId(id), one.clone()));
        gathered.put_back(many.collect());
        gathered.put_back(vec![(BatchId(0), one)]);
        assert!(gathered.is_full());
        let taken = gathered.take();
        assert_eq!(taken.len(), GATHERED_BATCHES_MAX);
        let first = taken.iter().find(|(batch, _)| *batch == BatchId(0)).unwrap();
        assert_eq!(first.1.dead, 2);
    }
}
