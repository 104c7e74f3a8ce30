//! The cache of a handle between transactions: data that never changes in the database.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_batching::BatchStats;
use gristmill_model::limits::LEASE_SLICES_MAX;
use gristmill_model::{BatchId, BatchOptions, Timestamp};
use gristmill_store::metrics::GatheredEnds;
use gristmill_store::options::DebugRng;
use gristmill_store::rules::contents::{Content, Contents};
use gristmill_store::rules::controls::Controls;
use gristmill_store::rules::lanes::Lanes;

use crate::database::rows::Taken;

/// The data that all jobs of a stored batch share.
#[derive(Debug)]
pub(crate) struct BatchHead {
    pub lane_id: i64,
    pub priority: i16,
    pub submitted_at: Timestamp,
    /// When its first slice can be claimed.
    pub run_at: Timestamp,
    pub options: BatchOptions,
    /// Whether some of its jobs have tags.
    pub tagged: bool,
    /// The mean size of its payloads. At least 1.
    pub job_bytes: u32,
}

impl BatchHead {
    /// The rank; a lower rank is claimed first.
    pub fn rank(&self) -> i32 {
        -i32::from(self.priority)
    }

    /// Reports whether its jobs have keys or tags.
    pub fn is_labelled(&self) -> bool {
        self.tagged || self.options.unique.is_some()
    }
}

/// The cache of a handle. Batches and lanes never change, and their ids are never given again; they are cached once
/// they are committed.
#[derive(Debug)]
pub(crate) struct HandleCache {
    lanes: Mutex<Lanes>,
    controls: Mutex<Controls>,
    contents: Mutex<Contents<BatchHead>>,
    rng: Mutex<Box<dyn DebugRng>>,
    /// Batches that the store packed itself, not yet added to the totals.
    hops: Mutex<BatchStats>,
    /// Counts of ended jobs that are not in the database yet.
    ended: Mutex<GatheredEnds>,
    /// The mean number of jobs in the slices of the last claim.
    jobs_per_slice: AtomicU32,
    /// Whether the last claim took all due jobs.
    keeps_up: AtomicBool,
    /// Whether other jobs waited for those of the last reports.
    settles: AtomicBool,
    /// A lease id that was never used; 0 for none.
    spare_lease: AtomicI64,
    /// The lane after which the next claim begins that cannot look into all lanes at once.
    look_after: AtomicI32,
}

impl HandleCache {
    pub fn new(rng: Box<dyn DebugRng>) -> Self {
        HandleCache {
            lanes: Mutex::default(),
            controls: Mutex::default(),
            contents: Mutex::default(),
            rng: Mutex::new(rng),
            hops: Mutex::default(),
            ended: Mutex::default(),
            jobs_per_slice: AtomicU32::new(1),
            keeps_up: AtomicBool::new(false),
            settles: AtomicBool::new(false),
            spare_lease: AtomicI64::new(0),
            look_after: AtomicI32::new(0),
        }
    }

    /// How many slices a claim of `jobs` should look at.
    pub fn slices_for(&self, jobs: u32) -> u32 {
        let jobs_per_slice = self.jobs_per_slice.load(Ordering::Relaxed).max(1);
        jobs.div_ceil(jobs_per_slice)
            .saturating_add(1)
            .min(LEASE_SLICES_MAX)
    }

    /// Stores how many jobs a slice has, from a claim.
    pub fn remember_claim(&self, taken: &[Taken]) {
        let jobs: u32 = taken.iter().map(|part| part.slice.positions.len()).sum();
        if let Some(mean) = jobs.checked_div(u32::try_from(taken.len()).unwrap_or(u32::MAX)) {
            self.jobs_per_slice.store(mean, Ordering::Relaxed);
        }
    }

    /// Reports whether the last claim took all due jobs, so that the next one may do so too.
    pub fn keeps_up(&self) -> bool {
        self.keeps_up.load(Ordering::Relaxed)
    }

    /// Stores whether a claim took all due jobs.
    pub fn remember_keeping_up(&self, keeps_up: bool) {
        self.keeps_up.store(keeps_up, Ordering::Relaxed);
    }

    /// Reports whether other jobs waited for those of the last reports, so that they probably wait for the next ones too.
    pub fn settles(&self) -> bool {
        self.settles.load(Ordering::Relaxed)
    }

    /// Stores whether other jobs waited for reported ones.
    pub fn remember_settling(&self, settles: bool) {
        self.settles.store(settles, Ordering::Relaxed);
    }

    /// A lease id that was never used, if there is one in memory.
    pub fn take_spare_lease(&self) -> Option<i64> {
        Some(self.spare_lease.swap(0, Ordering::Relaxed)).filter(|lease| *lease != 0)
    }

    /// Keeps an unused lease id.
    pub fn keep_spare_lease(&self, lease: i64) {
        self.spare_lease.store(lease, Ordering::Relaxed);
    }

    /// The lane after which a claim begins that cannot look into all lanes at once; 0 for the first.
    pub fn look_after(&self) -> i32 {
        self.look_after.load(Ordering::Relaxed)
    }

    /// Makes the next such claim begin after this lane.
    pub fn remember_look(&self, lane_id: i32) {
        self.look_after.store(lane_id, Ordering::Relaxed);
    }

    /// The known lanes.
    pub fn lanes(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }

    /// The controls, as they were last read.
    pub fn controls(&self) -> MutexGuard<'_, Controls> {
        lock(&self.controls)
    }

    /// The random numbers for the jitter of retries.
    pub fn rng(&self) -> MutexGuard<'_, Box<dyn DebugRng>> {
        lock(&self.rng)
    }

    /// The statistics of batches that the store packed itself.
    pub fn hops(&self) -> MutexGuard<'_, BatchStats> {
        lock(&self.hops)
    }

    /// Reports whether it has counts that are not in the database yet.
    pub fn has_counts(&self) -> bool {
        !self.hops().hops.is_empty() || !self.ended().is_empty()
    }

    /// The counts of ended jobs that were gathered.
    pub fn ended(&self) -> MutexGuard<'_, GatheredEnds> {
        lock(&self.ended)
    }

    /// A batch, if it is in memory.
    pub fn content(&self, batch: BatchId) -> Option<Content<BatchHead>> {
        lock(&self.contents).get(batch).cloned()
    }

    /// Keeps a committed batch in memory.
    pub fn keep(&self, batch: BatchId, content: Content<BatchHead>) {
        let mut contents = lock(&self.contents);
        // A head alone must not displace the payloads.
        if content.payloads.is_some() || contents.get(batch).is_none() {
            contents.put(batch, content);
        }
    }
}

/// The value in a lock, even if a thread panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
