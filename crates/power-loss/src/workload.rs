//! Workloads on a recording volume, and the checks of their images.

mod ingest;
mod run;
mod submit;
mod worker;

use std::sync::Arc;

use gristmill_store_sqlite::Synchronous;
use serde::{Deserialize, Serialize};

use crate::check::{self, Fault};
use crate::error::RecordError;
use crate::limits::DEEP_EVERY;
use crate::note::Promises;
use crate::trace::Event;
use crate::vfs;
use crate::volume::{Syncs, Volume};

/// A trace, and the workload that made it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recording {
    /// The workload.
    pub workload: Workload,
    /// The trace of the workload.
    pub events: Vec<Event>,
}

/// A workload: several sessions of a program with the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// Submits of packed, single and keyed jobs, and cancellations.
    Submit,
    /// A run: one task submits its input while a worker of the engine runs the jobs. The run ends with a hook.
    Run,
    /// A worker with leases, outcomes, retries, deaths, rescues and compaction.
    Worker,
    /// An ingestion into a knowledge base, with extractions as jobs.
    Ingest,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 4] = [
        Workload::Submit,
        Workload::Run,
        Workload::Worker,
        Workload::Ingest,
    ];

    /// Carries out the workload on a new volume, with choices drawn from `seed`. Returns the recording of the volume.
    pub async fn record(
        self,
        syncs: Syncs,
        synchronous: Synchronous,
        seed: u64,
    ) -> Result<Recording, RecordError> {
        vfs::register();
        let volume = Volume::recording(syncs);
        match self {
            Workload::Submit => submit::record(&volume, synchronous, seed).await?,
            Workload::Run => run::record(&volume, synchronous).await?,
            Workload::Worker => worker::record(&volume, synchronous, seed).await?,
            Workload::Ingest => ingest::record(&volume, synchronous).await?,
        }
        Ok(Recording {
            workload: self,
            events: volume.take_trace(),
        })
    }

    /// Checks an image. One seed in [`DEEP_EVERY`] gets a deep check.
    pub async fn check(self, volume: &Arc<Volume>, promises: &Promises, seed: u64) -> Result<(), Fault> {
        let deep = seed.is_multiple_of(DEEP_EVERY);
        match self {
            Workload::Submit | Workload::Run | Workload::Worker => {
                check::jobs::check(volume, promises, deep).await
            }
            Workload::Ingest => ingest::check(volume, promises, deep).await,
        }
    }
}
