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

/// What holds for all jobs of a stored batch.
#[derive(Debug)]
pub(crate) struct BatchHead {
    pub lane_id: i64,
    pub priority: i16,
    pub submitted_at: Timestamp,
    /// From when its first slice can be claimed.
    pub run_at: Timestamp,
    pub options: BatchOptions,
    /// Whether some of its jobs have tags.
    pub tagged: bool,
    /// Of its payloads, in the mean. At least 1.
    pub job_bytes: u32,
}

impl BatchHead {
    /// Lower is claimed first.
    pub fn rank(&self) -> i32 {
        -i32::from(self.priority)
    }

    /// Whether its jobs have keys or tags.
    pub fn is_labelled(&self) -> bool {
        self.tagged || self.options.unique.is_some()
    }
}

/// The cache of a handle. Batches and lanes never change and their ids are never given again; they are cached
/// once they are committed.
#[derive(Debug)]
pub(crate) struct HandleCache {
    lanes: Mutex<Lanes>,
    controls: Mutex<Controls>,
    contents: Mutex<Contents<BatchHead>>,
    rng: Mutex<Box<dyn DebugRng>>,
    /// Batches that the store packed by itself, since they were last added up.
    hops: Mutex<BatchStats>,
    /// Counts of ended jobs that are not in the database yet.
    ended: Mutex<GatheredEnds>,
    /// How many jobs the slices had, in the mean, that were claimed last.
    jobs_per_slice: AtomicU32,
    /// Whether the last claim took all that was due.
    keeps_up: AtomicBool,
    /// The id of a lease that there never was; 0 for none.
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

    /// Learns from a claim how many jobs a slice has.
    pub fn remember_claim(&self, taken: &[Taken]) {
        let jobs: u32 = taken.iter().map(|part| part.slice.positions.len()).sum();
        if let Some(mean) = jobs.checked_div(u32::try_from(taken.len()).unwrap_or(u32::MAX)) {
            self.jobs_per_slice.store(mean, Ordering::Relaxed);
        }
    }

    /// Whether the last claim took all that was due, so that the next one may as well.
    pub fn keeps_up(&self) -> bool {
        self.keeps_up.load(Ordering::Relaxed)
    }

    /// Learns from a claim whether it took all that was due.
    pub fn remember_keeping_up(&self, keeps_up: bool) {
        self.keeps_up.store(keeps_up, Ordering::Relaxed);
    }

    /// The id of a lease that there never was, if one is at hand.
    pub fn take_spare_lease(&self) -> Option<i64> {
        Some(self.spare_lease.swap(0, Ordering::Relaxed)).filter(|lease| *lease != 0)
    }

    /// Keeps the id of a lease that did not come to be.
    pub fn keep_spare_lease(&self, lease: i64) {
        self.spare_lease.store(lease, Ordering::Relaxed);
    }

    /// The lane after which a claim begins that cannot look into all lanes at once; 0 for the first.
    pub fn look_after(&self) -> i32 {
        self.look_after.load(Ordering::Relaxed)
    }

    /// Lets the next such claim begin after this lane.
    pub fn remember_look(&self, lane_id: i32) {
        self.look_after.store(lane_id, Ordering::Relaxed);
    }

    /// The lanes that are known.
    pub fn lanes(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }

    /// The controls, as they were read last.
    pub fn controls(&self) -> MutexGuard<'_, Controls> {
        lock(&self.controls)
    }

    /// Where the jitter of retries comes from.
    pub fn rng(&self) -> MutexGuard<'_, Box<dyn DebugRng>> {
        lock(&self.rng)
    }

    /// What the store has counted by itself.
    pub fn hops(&self) -> MutexGuard<'_, BatchStats> {
        lock(&self.hops)
    }

    /// Whether something was counted that is not in the database yet.
    pub fn has_counts(&self) -> bool {
        !self.hops().hops.is_empty() || !self.ended().is_empty()
    }

    /// The counts of ended jobs that were gathered.
    pub fn ended(&self) -> MutexGuard<'_, GatheredEnds> {
        lock(&self.ended)
    }

    /// A batch, if it is at hand.
    pub fn content(&self, batch: BatchId) -> Option<Content<BatchHead>> {
        lock(&self.contents).get(batch).cloned()
    }

    /// Keeps a batch at hand that is committed.
    pub fn keep(&self, batch: BatchId, content: Content<BatchHead>) {
        let mut contents = lock(&self.contents);
        // A head alone must not push out the payloads.
        if content.payloads.is_some() || contents.get(batch).is_none() {
            contents.put(batch, content);
        }
    }
}

/// The value in a lock, whatever panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
