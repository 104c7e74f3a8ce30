//! Work on a volume that records, and the checks of its images.

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

/// A trace with the workload that it is of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recording {
    /// The workload.
    pub workload: Workload,
    /// Its trace.
    pub events: Vec<Event>,
}

/// A workload: several sessions of a program on the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// Submits: packed, single, with keys; and cancels.
    Submit,
    /// A run: its input is submitted while a worker of the engine runs it, and it finishes with a hook.
    Run,
    /// A worker: leases, outcomes, retries, deaths, rescues, compaction.
    Worker,
    /// An ingestion into a knowledge base, with extractions as jobs.
    Ingest,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 4] = [
        Workload::Submit,
        Workload::Run,
        Workload::Worker,
        Workload::Ingest,
    ];

    /// Carries it out on a new volume, with choices by `seed`, and returns what the volume recorded.
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

    /// Checks an image. Every few seeds, all of its work is done as well.
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
